#include "runtime/eval/eval_lane.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "runtime/model_cache.h"

namespace varve {

void CacheFootprint::Sample(const CacheReport& stats, int64_t tokens) {
  if (tokens <= 0) return;
  const auto bytes = static_cast<double>(stats.bytes_held + stats.bytes_tables);
  sum_ += bytes / static_cast<double>(tokens);
  f16_share_sum_ += bytes / static_cast<double>(std::max<uint64_t>(1, stats.bytes_f16_seen));
  keep_sum_ += stats.retention.keep_ratio;
  lossy_share_sum_ += 1 / stats.retention.lossy_ratio;
  last_ = stats;
  ++samples_;
  scratch_bytes_ = std::max(scratch_bytes_, stats.bytes_scratch);
}

double CacheFootprint::bytes_per_token() const {
  if (empty()) return std::numeric_limits<double>::quiet_NaN();
  return sum_ / static_cast<double>(samples_);
}

CacheMetrics CacheFootprint::metrics() const {
  CacheMetrics metrics = last_;
  if (empty()) return metrics;
  const auto samples = static_cast<double>(samples_);
  metrics.retention.keep_ratio = keep_sum_ / samples;
  metrics.retention.lossy_ratio = samples / lossy_share_sum_;
  metrics.total_ratio = samples / f16_share_sum_;
  return metrics;
}

CacheUse UseOf(const CacheReport& stats) {
  return {stats.bytes_codebooks, stats.bytes_compressors, stats.fallbacks};
}

Result<std::vector<EvalLane>> MakeLanes(const DecoderModel& model, std::span<const EvalPlan> plans,
                                        Executor& executor) {
  std::vector<EvalLane> lanes;
  const auto add = [&](const std::string& name, const Plan& plan) -> Status {
    EvalLane lane;
    lane.name = name;
    CacheOptions options = CacheOptionsFor(model);
    options.plan = plan;
    options.executor = &executor;
    Result<std::unique_ptr<Cache>> cache = Cache::Create(model.cache_shape(), std::move(options));
    if (!cache.ok()) return InLane(lane, cache.status());
    lane.cache = std::move(*cache);
    lanes.push_back(std::move(lane));
    return Status();
  };
  VARVE_RETURN_IF_ERROR(add("f16", Plan()));  // the empty plan is f16 in every layer
  for (const EvalPlan& plan : plans) VARVE_RETURN_IF_ERROR(add(plan.name, plan.plan));
  return lanes;
}

Status InLane(const EvalLane& lane, const Status& status) {
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("plan \"{}\": {}", lane.name, status.message()));
}

}  // namespace varve
