// EvaluateRecall: how many facts of long prompts a model finds with the f16 cache and with plans.
//
// Each plan reads each prompt once; EndPrompt follows, and every question gets a fork of that
// sequence (the last one the
// sequence itself), so that all questions see the same compressed text. Answers are decoded
// greedily.

#ifndef VARVE_RUNTIME_EVAL_RECALL_EVALUATOR_H_
#define VARVE_RUNTIME_EVAL_RECALL_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/eval/eval_lane.h"
#include "runtime/eval/recall_prompts.h"
#include "runtime/kernels/linear.h"
#include "runtime/model/decoder_model.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

struct RecallAnswer {
  int64_t prompt = 0;
  size_t depth_index = 0;
  std::string thing;
  std::string number;
  std::string generated;
  bool hit = false;
};

struct PlanRecall {
  std::string plan;
  std::vector<RecallAnswer> answers;  // in the order asked; the same questions for every plan
  int64_t hits = 0;
  // Pages held, page records and tables, at the end of the prompt; with a policy, when the last
  // question has been read: what it planned at the end of the prompt has been done by then.
  double bytes_per_token = 0;
  uint64_t scratch_bytes = 0;  // work buffers of the cache, apart
  double ratio = 0;            // f16's bytes_per_token / the plan's
  CacheMetrics metrics;        // at those moments
  CacheUse use;                // codebooks and compressors, in no other figure; fallbacks
};

struct RecallResult {
  std::vector<PlanRecall> plans;  // f16, then the plans in their order
  int64_t prompts = 0;            // finished by all plans
  bool stopped = false;           // by `progress`
};

// `progress`, if given, is called after each step of each plan; returning false stops, and drops
// the prompt that is being read.
Result<RecallResult> EvaluateRecall(const std::shared_ptr<const DecoderModel>& model,
                                    const Tokenizer& tokenizer,
                                    std::span<const RecallPrompt> prompts,
                                    std::span<const EvalPlan> plans, ProductPrecision precision,
                                    Executor& executor,
                                    const std::function<bool(const EvalProgress&)>& progress = {});

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_RECALL_EVALUATOR_H_
