// Speed of a plan against the baseline of the same run, from blocks of decode steps that were timed
// in turn: baseline, plan, and the baseline once more, which is the measure of noise. Pure.

#ifndef VARVE_CLI_GATE_GATE_SPEED_H_
#define VARVE_CLI_GATE_GATE_SPEED_H_

#include <optional>
#include <span>

namespace varve::cli {

// Tokens of a block: policies decide every 16 tokens, so that each block has its share.
inline constexpr int kGateBlockTokens = 16;

struct SpeedBlock {
  double baseline_us = 0;
  double plan_us = 0;
  double again_us = 0;  // the baseline, a second cache
};

struct SpeedFigures {
  double tokens_per_s = 0;
  double baseline_tokens_per_s = 0;
  double ratio = 1;  // of the speeds; the median of the blocks' own
  double drop = 0;   // 1 - ratio
  // What the drop may be off by: what the baseline differs from itself, or twice the standard
  // error of the medians, whichever is more.
  double noise = 0;
};

// Of at least one block. `fixed_tokens_per_s` stands in for the baseline of the run, `fixed_noise`
// (a part of it) is what that figure itself may be off by.
SpeedFigures SummariseSpeed(std::span<const SpeedBlock> blocks,
                            std::optional<double> fixed_tokens_per_s = {}, double fixed_noise = 0);

// What the baseline differs from itself in these blocks: 1 - the median of the ratios.
double SelfDrop(std::span<const SpeedBlock> blocks);

// What the drop of a case may be off by, judged by all drops of the baseline against itself in this
// run: they wander as much, whatever else the machine does. Twice their root mean square, less
// where a case was measured several times. 0 as long as there are fewer than three.
double RunNoise(std::span<const double> self_drops, double times_measured);

enum class SpeedVerdict { kPassed, kFailed, kUndecided };

// Undecided where the limit lies within the noise around the drop.
SpeedVerdict JudgeSpeed(const SpeedFigures& figures, double max_drop);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_SPEED_H_
