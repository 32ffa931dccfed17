#include "cli/gate/gate_lane.h"

#include <algorithm>

#include "base/timer.h"
#include "cache/cache_services.h"
#include "cli/report/trace_document.h"
#include "runtime/model_cache.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of a prompt, between two looks at the memory.
constexpr size_t kPieceTokens = 128;

}  // namespace

Result<std::unique_ptr<GateLane>> GateLane::Make(const DecoderModel& model, const Plan& plan,
                                                 Executor& executor, GateFault fault) {
  std::unique_ptr<GateLane> lane(new GateLane);
  lane->trace_ = std::make_unique<TraceRecorder>();
  CacheOptions options = CacheOptionsFor(model);
  options.plan = plan;
  options.executor = &executor;
  options.retention_observer = lane->trace_.get();
  CacheServices services;
  if (fault == GateFault::kCorruptPage) {
    lane->fault_ = std::make_unique<FaultyPackWork>();
    services.pack_work = lane->fault_.get();
  }
  VARVE_ASSIGN_OR_RETURN(lane->cache_,
                         CreateCache(model.cache_shape(), std::move(options), services));
  VARVE_ASSIGN_OR_RETURN(lane->sequence_, lane->cache_->CreateSequence());
  lane->logits_.resize(static_cast<size_t>(model.vocab_size()));
  return lane;
}

void GateLane::Sample() {
  const Result<int64_t> tokens = cache_->TokensSeen(sequence_);
  if (tokens.ok()) memory_.Add(SampleOf(*cache_, *tokens));
}

Status GateLane::Read(DecoderRunner& runner, std::span<const int32_t> tokens,
                      const std::function<bool()>& go_on) {
  VARVE_RETURN_IF_ERROR(cache_->BeginPrompt(sequence_));
  while (!tokens.empty()) {
    const size_t piece = std::min(tokens.size(), kPieceTokens);
    const bool is_last = piece == tokens.size();
    VARVE_RETURN_IF_ERROR(runner.Forward(*cache_, sequence_, tokens.first(piece),
                                         is_last ? Logits::kLast : Logits::kNone,
                                         is_last ? logits_.data() : nullptr));
    tokens = tokens.subspan(piece);
    Sample();
    if (!go_on()) return FailedPrecondition("stopped");
  }
  VARVE_RETURN_IF_ERROR(cache_->EndPrompt(sequence_));
  cache_->WaitForPacking();
  Sample();
  return Status();
}

Result<double> GateLane::Decode(DecoderRunner& runner, std::span<const int32_t> tokens) {
  const Timer timer;
  for (const int32_t token : tokens) {
    const DecodeEntry entry{sequence_, token};
    VARVE_RETURN_IF_ERROR(runner.Decode(*cache_, {&entry, 1}, logits_.data()));
  }
  cache_->WaitForPacking();
  const double us = timer.us();
  Sample();
  return us;
}

Result<Json> GateLane::Spans() const { return SpansJson(*cache_, sequence_, trace_->trace()); }

}  // namespace varve::cli
