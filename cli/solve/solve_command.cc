#include "cli/solve/solve_command.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/solve/solve_report.h"
#include "rungs/rung_table.h"
#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"
#include "runtime/solve/plan_solver.h"

namespace varve::cli {
namespace {

constexpr int64_t kSolveCtx = 4096;
constexpr int64_t kSolveWindow = 1024;
// Models that read more weights per token than these get fewer windows: the time stays in minutes.
constexpr uint64_t kSmallWeights = uint64_t{160} << 20;
constexpr uint64_t kMiddleWeights = uint64_t{640} << 20;
// No tokenizer in use makes tokens longer than this on average.
constexpr size_t kMaxBytesPerToken = 16;

struct SolveWindows {
  std::vector<std::vector<int32_t>> solve;
  std::vector<std::vector<int32_t>> check;
};

int64_t WindowsFor(const SolveCommandOptions& options, const DecoderModel& model) {
  if (options.windows > 0) return options.windows;
  if (model.weight_bytes_per_token() <= kSmallWeights) return 4;
  return model.weight_bytes_per_token() <= kMiddleWeights ? 2 : 1;
}

// A place at which a text may be cut.
size_t LineAfter(const std::string& text, size_t position) {
  const size_t end = text.find('\n', std::min(position, text.size()));
  return end == std::string::npos ? text.size() : end + 1;
}

// The beginning of the text is checked on, as `eval` reads it; what lies behind its middle is
// solved on.
Result<SolveWindows> CutForSolve(const EvalInputs& inputs, int64_t window, int64_t count) {
  const Tokenizer& tokenizer = *inputs.model.tokenizer;
  const auto cut = [&](std::string_view text) {
    EncodeOptions encode;
    encode.add_special = false;
    text = text.substr(0, static_cast<size_t>(window * count) * kMaxBytesPerToken);
    return CutWindows(tokenizer.Encode(text, encode), window,
                      tokenizer.adds_bos() ? tokenizer.bos() : -1, count);
  };
  const std::string_view text = inputs.text;
  const size_t middle = LineAfter(inputs.text, text.size() / 2);
  auto check = cut(text.substr(0, middle));
  auto solve = cut(text.substr(middle));
  for (const auto* half : {&check, &solve}) {
    if (half->ok() && static_cast<int64_t>((**half).size()) == count) continue;
    return InvalidArgument(fmt::format(
        "{}: each half of the text must fill {} of {} tokens; name a longer text with -f, or use "
        "--windows and --window",
        inputs.text_name, Count(count, "window"), window));
  }
  return SolveWindows{std::move(*solve), std::move(*check)};
}

Status CheckTargets(const SolveCommandOptions& options) {
  const size_t targets =
      options.ratios.size() + options.max_kls.size() + options.bytes_per_token.size();
  if (targets == 0) {
    return InvalidArgument("say what to solve for: --ratio, --max-kl or --bytes-per-token");
  }
  if (!options.output.empty() && targets > 1) {
    return InvalidArgument(fmt::format("-o \"{}\": a file is of one plan, and {} were asked for",
                                       options.output, targets));
  }
  return CheckWritable("-o", options.output);
}

Status CheckCandidates(const std::vector<std::string>& rungs, const CacheShape& shape) {
  for (const std::string& rung : rungs) {
    for (const int dim : {shape.key_dim, shape.value_dim}) {
      const RungDescriptor* found = FindRung(rung, dim);
      if (found == nullptr) {
        return InvalidArgument(
            fmt::format("--rungs: unknown rung \"{}\"; known: {}", rung, KnownRungNames()));
      }
      VARVE_RETURN_IF_ERROR(found->CheckDim(dim));
    }
  }
  return Status();
}

Status WritePlan(const std::string& path, const Plan& plan) {
  return WriteText(path, PrintPlanJson(plan) + "\n");
}

class SolveRun {
 public:
  SolveRun(const SolveCommandOptions& options, EvalInputs inputs)
      : options_(options), inputs_(std::move(inputs)) {}

  Status Run();

 private:
  Status SolveAll(PlanSolver& solver, double f16_bytes);
  Status Check(std::span<const std::vector<int32_t>> windows);
  Status Add(const std::string& target, Result<SolvedPlan> solved);

  const SolveCommandOptions& options_;
  EvalInputs inputs_;
  std::vector<SolvedTarget> targets_;
};

Status SolveRun::Add(const std::string& target, Result<SolvedPlan> solved) {
  if (!solved.ok()) {
    return Status(solved.status().code(), fmt::format("{}: {}", target, solved.status().message()));
  }
  targets_.push_back({target, std::move(*solved), {}, {}});
  return Status();
}

Status SolveRun::SolveAll(PlanSolver& solver, double f16_bytes) {
  for (const double ratio : options_.ratios) {
    VARVE_RETURN_IF_ERROR(Add(fmt::format("ratio {:g}", ratio),
                              solver.SolveBytes(static_cast<uint64_t>(f16_bytes / ratio))));
  }
  for (const double bytes : options_.bytes_per_token) {
    const double all = bytes * static_cast<double>(solver.space().num_tokens());
    VARVE_RETURN_IF_ERROR(Add(fmt::format("{:g} bytes per token", bytes),
                              solver.SolveBytes(static_cast<uint64_t>(all))));
  }
  for (const double max_kl : options_.max_kls) {
    VARVE_RETURN_IF_ERROR(Add(fmt::format("KL {:g}", max_kl), solver.SolveLoss(max_kl)));
  }
  return Status();
}

Status SolveRun::Check(std::span<const std::vector<int32_t>> windows) {
  std::vector<EvalPlan> plans;
  for (const SolvedTarget& target : targets_) {
    plans.push_back({target.target, target.solved.plan.plan});
    if (target.solved.uniform) plans.push_back({"best pair", target.solved.uniform->plan});
  }
  VARVE_ASSIGN_OR_RETURN(
      WindowEvalResult result,
      EvaluateWindows(inputs_.model.model, *inputs_.model.tokenizer, windows, plans,
                      {.precision = inputs_.precision, .prompt_half = false}, *inputs_.executor,
                      ShowEvalProgress("check", "window")));
  size_t next = 1;
  for (SolvedTarget& target : targets_) {
    target.checked = result.plans[next++];
    if (target.solved.uniform) target.uniform_checked = result.plans[next++];
  }
  return Status();
}

Status SolveRun::Run() {
  const DecoderModel& model = *inputs_.model.model;
  SolveOptions solve;
  solve.num_tokens = options_.ctx > 0 ? options_.ctx : std::min(kSolveCtx, model.context());
  const int64_t window = options_.window > 0
                             ? options_.window
                             : std::min({kSolveWindow, solve.num_tokens, model.context()});
  const int64_t count = WindowsFor(options_, model);
  VARVE_ASSIGN_OR_RETURN(SolveWindows windows, CutForSolve(inputs_, window, count));
  const CacheShape& shape = model.cache_shape();
  solve.rungs = options_.rungs.empty() ? CandidateRungs(shape) : options_.rungs;
  VARVE_RETURN_IF_ERROR(CheckCandidates(solve.rungs, shape));
  solve.tail_tokens = options_.tail;
  solve.precision = inputs_.precision;
  solve.num_targets = static_cast<int>(options_.ratios.size() + options_.max_kls.size() +
                                       options_.bytes_per_token.size());

  const InterruptScope scope;
  auto bar = std::make_unique<Progress>("solve", 1.0);
  VARVE_ASSIGN_OR_RETURN(
      std::unique_ptr<PlanSolver> solver,
      PlanSolver::Make(inputs_.model.model, *inputs_.model.tokenizer, windows.solve, solve,
                       *inputs_.executor, [&](const SolveProgress& progress) {
                         bar->Update(static_cast<double>(progress.done_tokens) /
                                         static_cast<double>(progress.total_tokens),
                                     progress.step);
                         return !InterruptScope::interrupted();
                       }));
  VARVE_RETURN_IF_ERROR(SolveAll(*solver, static_cast<double>(solver->space().f16_bytes())));
  bar->Clear();
  VARVE_RETURN_IF_ERROR(Check(windows.check));

  fmt::print(inputs_.out, "{}, {}: solved on {} of {} tokens, checked on as many others\n\n",
             inputs_.model.name, inputs_.text_name, Count(count, "window"), window);
  const SolveReport report{solver.get(), targets_, window, count};
  PrintSolveReport(report, inputs_.out);
  if (!options_.output.empty()) {
    VARVE_RETURN_IF_ERROR(WritePlan(options_.output, targets_[0].solved.plan.plan));
    fmt::print(inputs_.out, "\nuse it with --kv @{}\n", options_.output);
  }
  if (options_.json.empty()) return Status();
  return WriteJson(options_.json, "solve", SolveRows(report));
}

}  // namespace

std::vector<std::string> CandidateRungs(const CacheShape& shape) {
  std::vector<std::string> names;
  for (const std::string_view name : RungNames()) {
    const RungDescriptor* keys = FindRung(name, shape.key_dim);
    const RungDescriptor* values = FindRung(name, shape.value_dim);
    if (keys == nullptr || values == nullptr) continue;
    if (!keys->CheckDim(shape.key_dim).ok() || !values->CheckDim(shape.value_dim).ok()) continue;
    if (keys->needs_codebook()) continue;
    if (keys->can_append && name != "f16") continue;
    names.emplace_back(name);
  }
  return names;
}

Status SolvePlans(const SolveCommandOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckTargets(options));
  VARVE_ASSIGN_OR_RETURN(EvalInputs inputs, PrepareEval(options));
  return SolveRun(options, std::move(inputs)).Run();
}

}  // namespace varve::cli

void AddSolveCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("solve", "The plan for a number of bytes or a loss, on a model");
  auto options = std::make_shared<varve::cli::SolveCommandOptions>();
  varve::cli::AddEvalOptions(*command, *options);
  command->remove_option(command->get_option("--kv"));
  command->get_option("--ctx")->description(
      "Tokens of a sequence that bytes and ratio are of (default: 4096, or the model's context)");
  command->add_option("--ratio", options->ratios, "Bytes of f16 over those of the plan")
      ->delimiter(',')
      ->check(CLI::Range(1.0, 1e6));
  command->add_option("--bytes-per-token", options->bytes_per_token, "Bytes of the plan per token")
      ->delimiter(',')
      ->check(CLI::Range(1.0, 1e12));
  command->add_option("--max-kl", options->max_kls, "KL divergence from f16, nats per token")
      ->delimiter(',')
      ->check(CLI::Range(1e-9, 100.0));
  command
      ->add_option("--rungs", options->rungs,
                   "Candidates (default: every rung that needs no codebook)")
      ->delimiter(',');
  command->add_option("--window", options->window, "Tokens of a window (default: 1024)")
      ->check(CLI::Range(256, 1 << 20));
  command
      ->add_option("--windows", options->windows,
                   "Windows to solve on, and as many to check on (default: 4, 2 or 1 by the "
                   "model's size)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--tail", options->tail, "Tokens of a window that a probe computes")
      ->capture_default_str()
      ->check(CLI::Range(16, 1024));
  command->add_option("-o,--output", options->output, "Write the plan as JSON for --kv @FILE")
      ->type_name("FILE");
  command->footer(
      "Measures on the second half of the text what each rung costs in K and V and in each layer, "
      "then chooses rungs\nper layer, exact= and open=. What it chose, and the best pair of rungs "
      "for all layers at the same bytes, are\nmeasured again on the first half.\n\n"
      "Examples:\n"
      "  varve solve --ratio 4\n"
      "  varve solve -m model.gguf -f book.txt --ratio 4 --ctx 16384 -o plan.json\n"
      "  varve run -m model.gguf --kv @plan.json -p Hello\n"
      "  varve solve -m model.gguf -f book.txt --max-kl 0.01\n"
      "  varve solve -m model.gguf -f book.txt --ratio 3,4,6 --json out.json");
  command->callback(varve::cli::Action(options, varve::cli::SolvePlans, exit_code));
}
