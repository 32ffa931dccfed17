// GateBench: one prompt of `varve gate`, read and decoded by the baseline and by the plan of one
// case after the other, in turn with the baseline.
//
// The baseline (f16) has two caches, for the noise. A plan that packs has a twin: the same plan
// without pack=, fed the same tokens. Packing changes bytes, not values, so logits and every row of
// both must be equal bit for bit. One thread.

#ifndef VARVE_CLI_GATE_GATE_MEASURE_H_
#define VARVE_CLI_GATE_GATE_MEASURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/gate/gate_case.h"
#include "cli/gate/gate_lane.h"
#include "cli/gate/gate_prompts.h"
#include "cli/gate/gate_speed.h"
#include "varve/cache_stats.h"

namespace varve::cli {

// Layers that count as the first ones.
inline constexpr int kFrontLayers = 2;

// What one case did on one prompt.
struct PromptFigures {
  std::string prompt;
  std::string bucket;
  int64_t prompt_tokens = 0;
  int64_t end_tokens = 0;
  Status status;                          // that reading, decoding or comparing ended with
  std::map<std::string, double> figures;  // properties of the cache and those of the gate, by name
  std::vector<SpeedBlock> blocks;
  // Why a policy, and why packing in the first layers and in the rest, had nothing to do; empty
  // where they had.
  std::string policy_idle;
  std::string front_idle;
  std::string rest_idle;
  std::vector<LayerReport> layers;
  nlohmann::ordered_json memory;
  nlohmann::ordered_json spans;
};

class GateBench {
 public:
  // Reads the prompt with both baselines, and has them write the replies that it does not have.
  // `go_on` is asked now and then; false ends the call with kFailedPrecondition "stopped".
  static Result<std::unique_ptr<GateBench>> Make(std::shared_ptr<const DecoderModel> model,
                                                 Executor& executor, DecoderRunner& runner,
                                                 GatePrompt prompt, std::function<bool()> go_on);

  const GatePrompt& prompt() const { return prompt_; }

  // Fails only if the baseline does, or if stopped; what the case does is in the figures.
  Result<PromptFigures> Measure(const GateCase& gate_case, GateFault fault);

 private:
  GateBench(std::shared_ptr<const DecoderModel> model, Executor& executor, DecoderRunner& runner,
            GatePrompt prompt, std::function<bool()> go_on);
  Status Prepare();
  Status WriteReply(GateTurn* turn);
  // All tokens of the prompt, without a clock.
  Status ReadAll(GateLane& lane);
  Result<GateLane*> TwinOf(const Plan& plan);
  // The plan's lane and both baselines through all turns; the outcome of the plan is in *result.
  Status RunTurns(GateLane& lane, PromptFigures* result);
  // Fails if the baseline does; *plan_status is how the plan's lane fared.
  Status TimeReply(GateLane& lane, const GateTurn& turn, std::vector<SpeedBlock>* blocks,
                   Status* plan_status);
  Status TimeBlock(GateLane& lane, std::span<const int32_t> tokens, size_t first, SpeedBlock* block,
                   Status* plan_status);
  void TakeFigures(const GateLane& lane, PromptFigures* result) const;

  std::shared_ptr<const DecoderModel> model_;
  Executor& executor_;
  DecoderRunner& runner_;
  GatePrompt prompt_;
  std::function<bool()> go_on_;
  std::unique_ptr<GateLane> baseline_;
  std::unique_ptr<GateLane> again_;
  uint64_t baseline_bytes_ = 0;                             // at the end
  std::map<std::string, std::unique_ptr<GateLane>> twins_;  // by plan
};

// The plan without pack= and what belongs to it.
Plan WithoutPacking(const Plan& plan);

// Ok if both lanes predict the same and hold the same rows, bit for bit; else kDataLoss names the
// first difference.
Status CompareLanes(const GateLane& lane, const GateLane& twin);

// Why a policy, or packing in the layers [first, end), had nothing to do on this lane; empty where
// it should have acted.
std::string PolicyIdleReason(const Plan& plan, int64_t tokens);
std::string PackingIdleReason(const GateLane& lane, int first, int end);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_MEASURE_H_
