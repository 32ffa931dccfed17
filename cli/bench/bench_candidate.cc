#include "cli/bench/bench_candidate.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/timer.h"
#include "cli/bench/stage_report.h"

namespace varve::cli {
namespace {

// One call of Attend for every sequence of the cache, over one layer. output [batch, heads, dim]
Status AttendLayer(const FilledCache& filled, const Workload& workload, int layer,
                   std::vector<float>& output) {
  std::vector<AttendRequest> requests(filled.sequences.size());
  const size_t floats = workload.queries().size();
  output.resize(requests.size() * floats);
  for (size_t b = 0; b < requests.size(); ++b) {
    requests[b].sequence = filled.sequences[b];
    requests[b].queries = workload.queries().data();
    requests[b].output = output.data() + b * floats;
  }
  return filled.cache->Attend(layer, requests, {});
}

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

Error Worst(const Error& a, const Error& b) {
  return {std::max(a.max, b.max), std::max(a.rms, b.rms)};
}

// Compares the output of a layer, [heads, dim], with double precision.
Status CheckLayer(Candidate& candidate, const Workload& workload, int layer, double limit,
                  const std::vector<float>& output, Executor& executor) {
  const FilledCache& filled = *candidate.filled;
  const int64_t ctx = workload.shape().ctx;
  Result<std::vector<double>> decoded =
      workload.Reference(executor, [&](int head, Part part, float* rows) -> Status {
        VARVE_ASSIGN_OR_RETURN(int64_t count, filled.cache->ReadRows(filled.sequences[0], layer,
                                                                     head, part, 0, ctx, rows));
        if (count == ctx) return Status();
        return Internal(fmt::format("bench: plan {}: layer {} has {} rows, not {}", candidate.plan,
                                    layer, count, ctx));
      });
  if (!decoded.ok()) return decoded.status();
  const Error kernel_error = CompareOutputs(output, *decoded);
  if (!(kernel_error.rms <= limit)) {
    return Internal(fmt::format(
        "bench: plan {}: layer {}: kernel error {:.3g} (RMS) > {:.3g}: the result is wrong",
        candidate.plan, layer, kernel_error.rms, limit));
  }
  candidate.kernel_error = Worst(candidate.kernel_error, kernel_error);
  candidate.error = Worst(candidate.error, CompareOutputs(output, workload.exact()));
  return Status();
}

}  // namespace

double KernelErrorLimit(const LayerForm& layer) {
  double limit = layer.open_rung->kernel_error;
  for (const LayerForm::Stage& stage : layer.stages) {
    limit = std::max({limit, stage.k->kernel_error, stage.v->kernel_error});
  }
  return limit;
}

Status CheckAnswers(Candidate& candidate, const Workload& workload, Executor& executor) {
  const FilledCache& filled = *candidate.filled;
  VARVE_ASSIGN_OR_RETURN(ResolvedPlan resolved,
                         ResolvePlan(filled.cache->plan(), filled.cache->shape()));
  struct Kind {
    const LayerForm* plan;
    std::vector<float> output;  // [heads, dim], checked
  };
  std::vector<Kind> kinds;
  const size_t floats = workload.queries().size();
  std::vector<float>& output = candidate.output;
  for (int layer = 0; layer < filled.layers; ++layer) {
    VARVE_RETURN_IF_ERROR(AttendLayer(filled, workload, layer, output));
    const LayerForm& plan = resolved.layers[static_cast<size_t>(layer)];
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const Kind& known) { return *known.plan == plan; });
    if (kind == kinds.end()) {
      const std::vector<float> first(output.data(), output.data() + floats);
      VARVE_RETURN_IF_ERROR(
          CheckLayer(candidate, workload, layer, KernelErrorLimit(plan), first, executor));
      kind = kinds.insert(kinds.end(), {&plan, first});
    }
    for (size_t b = 0; b < filled.sequences.size(); ++b) {
      if (SameBits(output.data() + b * floats, kind->output.data(), floats)) continue;
      return Internal(
          fmt::format("bench: plan {}: layer {}, sequence {} of the batch: the output differs from "
                      "that of the same rows elsewhere",
                      candidate.plan, layer, b));
    }
  }
  return Status();
}

Status TimeLayer(Candidate& candidate, const Workload& workload) {
  constexpr double kMinUs = 2000;
  const FilledCache& filled = *candidate.filled;
  std::vector<float> output(candidate.output.size());
  const StageTimes before = filled.cache->Report().stages;
  const Timer timer;
  for (int passes = 1;; ++passes) {
    for (int layer = 0; layer < filled.layers; ++layer) {
      VARVE_RETURN_IF_ERROR(AttendLayer(filled, workload, layer, output));
    }
    const double us = timer.us();
    if (us < kMinUs) continue;
    const double calls = static_cast<double>(passes) * filled.layers;
    candidate.us.push_back(us / calls);
    candidate.calls += calls;
    AddStages(StagesBetween(before, filled.cache->Report().stages), &candidate.stages);
    break;
  }
  if (SameBits(output.data(), candidate.output.data(), output.size())) return Status();
  return Internal(
      fmt::format("bench: plan {}: the last timed output is not the checked one", candidate.plan));
}

}  // namespace varve::cli
