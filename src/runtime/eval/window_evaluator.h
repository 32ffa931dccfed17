// EvaluateWindows: perplexity of a text with the f16 cache and with any number of plans, and how
// far each plan's predictions are from f16's.
//
// Every plan reads every window in pieces of at most kPieceTokens, all plans one piece before any
// the next; logits of two plans are in memory at a time, never those of a window. The figures are
// the same bit for bit with any number of threads.

#ifndef VARVE_RUNTIME_EVAL_WINDOW_EVALUATOR_H_
#define VARVE_RUNTIME_EVAL_WINDOW_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/eval/eval_lane.h"
#include "runtime/kernels/linear.h"
#include "runtime/model/decoder_model.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

struct WindowEvalOptions {
  ProductPrecision precision = ProductPrecision::kF32;
  // The first half of a window is the prompt (then EndPrompt), the second half is scored. In force
  // for all plans of a run if one of them evicts or folds; else every token after the first is
  // scored.
  bool prompt_half = false;
  // At the end of the prompt, plans with idle= put it to rest: what is scored is a conversation
  // that goes on after a pause. Implies prompt_half.
  bool rest = false;
};

// Mean KL of the scored positions [begin, end) of all windows: whether a plan drifts with depth.
struct PositionLoss {
  int64_t begin = 0;
  int64_t end = 0;
  double kl_mean = 0;  // NaN if none is scored
  double kl_sem = 0;
};
// Parts of equal length that a window is cut into for it.
inline constexpr int64_t kPositionParts = 8;

// One row of the report. Figures that there is no data for are NaN.
struct PlanQuality {
  std::string plan;
  double perplexity = 0;
  double bits_per_byte = 0;                  // of the scored tokens' text
  double kl_mean = 0;                        // KL(f16 || plan) per scored token, nats
  double kl_sem = 0;                         // standard error of kl_mean
  double kl_p99 = 0;                         // 99th percentile
  std::vector<PositionLoss> kl_by_position;  // [kPositionParts]
  double top1 = 0;             // share of tokens with the same most likely token as f16
  double dlnppl = 0;           // ln perplexity minus f16's …
  double dlnppl_sem = 0;       // … and its standard error
  double bytes_per_token = 0;  // pages held, page records and tables, at the end of a window
  uint64_t scratch_bytes = 0;  // work buffers of the cache, apart
  double ratio = 0;            // f16's bytes_per_token / the plan's
  CacheMetrics metrics;        // at those moments
  CacheUse use;                // codebooks and compressors, in no other figure; fallbacks
};

struct WindowEvalResult {
  std::vector<PlanQuality> plans;  // f16, then the plans in their order
  int64_t ctx = 0;
  int64_t windows = 0;  // begun
  int64_t tokens = 0;   // scored, by each plan
  bool prompt_half = false;
  bool stopped = false;  // by `progress`: figures are of the tokens that all plans had read
};

// True if the plan has a rule that needs to know where the prompt ends.
bool NeedsPromptEnd(const Plan& plan);

// `windows` are of one length (CutWindows). `progress`, if given, is called after each piece of
// each plan; returning false stops.
Result<WindowEvalResult> EvaluateWindows(
    const std::shared_ptr<const DecoderModel>& model, const Tokenizer& tokenizer,
    std::span<const std::vector<int32_t>> windows, std::span<const EvalPlan> plans,
    const WindowEvalOptions& options, Executor& executor,
    const std::function<bool(const EvalProgress&)>& progress = {});

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_WINDOW_EVALUATOR_H_
