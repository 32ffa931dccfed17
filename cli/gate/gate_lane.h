// GateLane: one plan under `varve gate`: a cache of its own with one sequence, the recorders that
// watch it, and the clock of its decode steps.

#ifndef VARVE_CLI_GATE_GATE_LANE_H_
#define VARVE_CLI_GATE_GATE_LANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "cli/gate/faulty_pack_work.h"
#include "cli/report/retention_trace.h"
#include "cli/run/run_memory.h"
#include "runtime/model/decoder_model.h"
#include "varve/cache.h"

namespace varve::cli {

enum class GateFault { kNone, kCorruptPage };

class GateLane {
 public:
  // Refuses what the model cannot have, as Cache::Create does.
  static Result<std::unique_ptr<GateLane>> Make(const DecoderModel& model, const Plan& plan,
                                                Executor& executor,
                                                GateFault fault = GateFault::kNone);

  Cache& cache() { return *cache_; }
  const Cache& cache() const { return *cache_; }
  SequenceId sequence() const { return sequence_; }
  const std::vector<float>& logits() const { return logits_; }  // [vocab_size], of the last token
  const MemoryTrack& memory() const { return memory_; }

  // A prompt: begins it, reads it in pieces and ends it. `go_on` is asked after each piece; false
  // stops with kFailedPrecondition "stopped".
  Status Read(DecoderRunner& runner, std::span<const int32_t> tokens,
              const std::function<bool()>& go_on);
  // Feeds one token after the other; the microseconds of all, with what packing had left to do.
  Result<double> Decode(DecoderRunner& runner, std::span<const int32_t> tokens);
  // Goes back to an earlier length; for plans that lose nothing.
  Status CutTo(int64_t position) { return cache_->Truncate(sequence_, position); }

  // What has become of every token, by layer: docs/format/gate-summary.md, "spans".
  Result<nlohmann::ordered_json> Spans() const;

 private:
  GateLane() = default;
  void Sample();

  std::unique_ptr<FaultyPackWork> fault_;  // null: none
  std::unique_ptr<TraceRecorder> trace_;
  std::unique_ptr<Cache> cache_;  // goes before those that it uses
  SequenceId sequence_;
  std::vector<float> logits_;
  MemoryTrack memory_;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_LANE_H_
