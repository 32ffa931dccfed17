// The verdict of `varve gate` on a case: every limit of the case against what was measured, bucket
// by bucket, with the reason of each failure. Pure functions of figures.

#ifndef VARVE_CLI_GATE_GATE_VERDICT_H_
#define VARVE_CLI_GATE_GATE_VERDICT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/gate/gate_case.h"
#include "cli/gate/gate_measure.h"
#include "cli/gate/gate_quality.h"
#include "cli/gate/gate_speed.h"

namespace varve::cli {

enum class GateStatus { kPassed, kFailed, kUndecided, kSkipped, kNotRun };
// "passed", "failed", "undecided", "skipped", "not_run".
const char* GateStatusName(GateStatus status);

// The bucket of figures over all buckets.
inline constexpr const char* kAllBuckets = "all";

struct GateResult {
  std::string gate;  // the figure
  std::string bucket;
  std::optional<double> value;  // the worst of the bucket's prompts; nothing: missing
  std::string op;
  double limit = 0;
  std::optional<double> noise;
  GateStatus status = GateStatus::kPassed;
  std::string reason;
};

// A speed that stands in for the baseline of the run: from a file, or the median of a history.
struct FixedSpeed {
  double tokens_per_s = 0;
  double noise = 0;  // relative
};

struct CaseFigures {
  std::vector<PromptFigures> prompts;       // those of a bucket behind one another
  std::optional<GateQuality> quality;       // nothing: not measured
  std::map<std::string, FixedSpeed> fixed;  // by bucket; none: the baseline of the run
  std::map<std::string, double> run_noise;  // RunNoise, by bucket
};

struct CaseVerdict {
  GateStatus status = GateStatus::kPassed;
  std::string reason;  // of the first failure, or what is undecided
  std::vector<GateResult> gates;
};

CaseVerdict JudgeCase(const GateCase& gate_case, const CaseFigures& figures,
                      const std::string& model);

// Blocks of all prompts of a bucket, or of all ("all").
std::vector<SpeedBlock> BlocksOf(const CaseFigures& figures, const std::string& bucket);
// Nothing where no block was timed. A fixed speed holds for a bucket, never for all together.
std::optional<SpeedFigures> SpeedOf(const CaseFigures& figures, const std::string& bucket);
// In the order in which they were measured.
std::vector<std::string> BucketsOf(const CaseFigures& figures);

// The names that every case must have: the list of the specification.
const std::vector<std::string>& RequiredMetrics();

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_VERDICT_H_
