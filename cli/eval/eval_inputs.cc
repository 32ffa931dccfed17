#include "cli/eval/eval_inputs.h"

#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "runtime/embedded_model.h"

namespace varve::cli {
namespace {

Result<std::vector<EvalPlan>> ReadPlans(const std::vector<std::string>& texts) {
  std::vector<EvalPlan> plans;
  for (const std::string& text : texts) {
    VARVE_ASSIGN_OR_RETURN(Plan plan, ReadKvOption(text));
    const Status status = CheckSupported(plan);
    if (!status.ok()) {
      return Status(status.code(), fmt::format("--kv \"{}\": {}", text, status.message()));
    }
    if (text != "f16") plans.push_back({text, std::move(plan)});
  }
  return plans;
}

Status ReadText(const EvalOptions& options, EvalInputs& inputs) {
  if (options.text.empty()) {
    inputs.text = EmbeddedEvalText();
    inputs.text_name = "the evaluation text";
    if (inputs.text.empty()) {
      return FailedPrecondition("this build has no evaluation text; name a text file with -f");
    }
    return Status();
  }
  VARVE_ASSIGN_OR_RETURN(std::string text, ReadTextFile(options.text));
  if (text.empty())
    return InvalidArgument(fmt::format("-f \"{}\": the file is empty", options.text));
  inputs.text = std::move(text);
  inputs.text_name = options.text == "-" ? "stdin" : options.text;
  return Status();
}

}  // namespace

void AddEvalOptions(CLI::App& command, EvalOptions& options) {
  AddModelOption(command, options.model);
  command
      .add_option("-f,--file", options.text,
                  "Text, - for stdin (default: the evaluation text of the embedded model)")
      ->type_name("FILE");
  command.add_option("--kv", options.plans, "Plans to compare with f16, separated by spaces")
      ->default_str(fmt::format("{}", fmt::join(options.plans, " ")));
  command.add_option("--ctx", options.ctx, "Tokens of context")->check(CLI::Range(2, 1 << 24));
  command.add_option("--threads", options.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--precision", options.precision,
                  "Products of many tokens: f32, i16 (integers, activations of 14 bits), or bf16 "
                  "(rounds more)")
      ->capture_default_str()
      ->check(PrecisionValidator());
  AddDeviceOption(command, options.device);
  command.add_option("--json", options.json, "Write the rows as JSON to FILE, or - for stdout");
}

Result<EvalInputs> PrepareEval(const EvalOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckWritable("--json", options.json));
  EvalInputs inputs;
  VARVE_ASSIGN_OR_RETURN(inputs.plans, ReadPlans(options.plans));
  VARVE_RETURN_IF_ERROR(ReadText(options, inputs));
  VARVE_ASSIGN_OR_RETURN(inputs.model, LoadModel(options.model));
  inputs.precision = FindPrecision(options.precision).value_or(ProductPrecision::kF32);
  inputs.executor = MakeThreadPool(options.threads);
  VARVE_RETURN_IF_ERROR(PlaceModel(options.device, *inputs.executor, inputs.model.model));
  inputs.products = options.device == "cuda" ? "CUDA" : NameOf(inputs.precision);
  inputs.out = options.json == "-" ? stderr : stdout;
  return inputs;
}

std::function<bool(const EvalProgress&)> ShowEvalProgress(const std::string& label,
                                                          const std::string& part) {
  const auto bar = std::make_shared<Progress>(label, 1.0);
  return [bar, part](const EvalProgress& progress) {
    bar->Update(
        static_cast<double>(progress.done_tokens) / static_cast<double>(progress.total_tokens),
        fmt::format("{} {} of {}", part, progress.part + 1, progress.num_parts));
    return !InterruptScope::interrupted();
  };
}

std::string Count(int64_t number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

void WarnBeyondContext(const EvalInputs& inputs, int64_t ctx) {
  const int64_t context = inputs.model.model->context();
  if (ctx <= context) return;
  WriteNote(fmt::format(
      "varve: {} tokens are beyond the context of {} that the model was made for\n", ctx, context));
}

std::string Number(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "-";
}

}  // namespace varve::cli
