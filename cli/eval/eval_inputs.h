// What the commands of `varve eval` share: model, text, plans, threads, and the shape of their
// reports.

#ifndef VARVE_CLI_EVAL_EVAL_INPUTS_H_
#define VARVE_CLI_EVAL_EVAL_INPUTS_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/model_argument.h"
#include "runtime/eval/eval_lane.h"
#include "runtime/kernels/linear.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

// Of the model's context, for the answer to a recall question and to be safe.
inline constexpr int64_t kAnswerRoom = 64;

// With that many decimals; "-" where there is no number.
std::string Number(double value, int decimals);

struct EvalOptions {
  std::string model;               // empty: the embedded one
  std::string text;                // a file; empty: the evaluation text of the embedded model
  std::vector<std::string> plans;  // as typed; f16 comes first in any case
  int64_t ctx = 0;                 // 0: what suits model and command
  int threads = 0;                 // 0: all cores
  std::string precision = "f32";   // of products with many tokens: f32, i16, bf16
  std::string device = "cpu";      // or "cuda"
  std::string json;
};

// -m, -f, --kv, --ctx, --threads, --precision, --device, --json.
void AddEvalOptions(CLI::App& command, EvalOptions& options);

struct EvalInputs {
  LoadedModel model;     // where --device says
  std::string products;  // how they are computed, for people: "f32", "i16", "bf16", "CUDA"
  std::string text;
  std::string text_name;        // for people
  std::vector<EvalPlan> plans;  // without f16
  ProductPrecision precision = ProductPrecision::kF32;
  std::unique_ptr<Executor> executor;
  std::FILE* out = nullptr;  // stdout, unless the JSON goes there
};

// Reads the plans first: what cannot work is refused before a model is loaded.
Result<EvalInputs> PrepareEval(const EvalOptions& options);

// A callback for the evaluators: draws the bar, and stops on Ctrl-C. `part` is what is counted
// ("window").
std::function<bool(const EvalProgress&)> ShowEvalProgress(const std::string& label,
                                                          const std::string& part);

// "3 windows", "1 window".
std::string Count(int64_t number, const std::string& noun);

// Says on stderr that a context is longer than the model was trained for.
void WarnBeyondContext(const EvalInputs& inputs, int64_t ctx);

}  // namespace varve::cli

#endif  // VARVE_CLI_EVAL_EVAL_INPUTS_H_
