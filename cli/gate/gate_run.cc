#include "cli/gate/gate_run.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/timer.h"
#include "cli/gate/gate_baseline.h"
#include "cli/gate/gate_setup.h"
#include "cli/gate/gate_summary.h"
#include "cli/gate/gate_table.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/report/report_page.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

class GateRunner {
 public:
  GateRunner(const GateOptions& options, GateSetup setup)
      : options_(options), setup_(std::move(setup)), quality_(setup_.cases.size()) {
    report_.prompts = setup_.prompts;
  }
  Result<GateVerdict> Run();

 private:
  // The cases of one run, those skipped that the model cannot have.
  std::vector<CaseOutcome> NewCases() const;
  Status RunOnce(RunOutcome* run);
  Status MeasurePrompt(const GatePrompt& prompt, RunOutcome* run);
  Status MeasureCase(GateBench& bench, CaseOutcome* outcome);
  Status MeasureQualityOf(RunOutcome* run);
  // What the run tells so far of the noise in the buckets of a case.
  void NoteNoise(CaseOutcome* outcome) const;
  void Judge(RunOutcome* run) const;
  Result<GateVerdict> Finish();
  // Counts work, draws the bar; false once Ctrl-C came.
  bool GoOn(double tokens);
  double TotalWork() const;

  const GateOptions& options_;
  GateSetup setup_;
  Timer since_start_;
  GateReport report_;
  std::vector<std::optional<GateQuality>> quality_;        // [cases], the same in every run
  std::map<std::string, std::vector<double>> self_drops_;  // of this run, by bucket
  std::unique_ptr<Progress> progress_;
  double work_done_ = 0;
  std::string note_;
};

std::vector<CaseOutcome> GateRunner::NewCases() const {
  std::vector<CaseOutcome> cases;
  for (const GateCase& gate_case : setup_.cases) {
    CaseOutcome outcome;
    outcome.gate_case = gate_case;
    // Making an empty cache costs nothing and refuses what this model cannot have.
    const Status status =
        GateLane::Make(*setup_.model.model, gate_case.plan, *setup_.executor).status();
    if (!status.ok()) outcome.skipped = "not for this model: " + status.message();
    outcome.figures.fixed = setup_.baseline.speeds;
    cases.push_back(std::move(outcome));
  }
  return cases;
}

double GateRunner::TotalWork() const {
  double work = 0;
  for (const GatePrompt& prompt : report_.prompts) {
    const auto lanes = static_cast<double>(setup_.cases.size()) + 3;
    work += lanes * static_cast<double>(prompt.end_tokens()) * options_.runs;
  }
  return 1.5 * work;  // a third is for the quality
}

bool GateRunner::GoOn(double tokens) {
  work_done_ += tokens;
  progress_->Update(work_done_, note_);
  return !InterruptScope::interrupted();
}

Status GateRunner::MeasureCase(GateBench& bench, CaseOutcome* outcome) {
  const std::string bucket = bench.prompt().bucket;
  PromptFigures kept;
  for (int round = 0; round <= setup_.effort.retries; ++round) {
    note_ = fmt::format("{}, {} tokens{}", outcome->gate_case.name, bucket,
                        round == 0 ? "" : fmt::format(", again ({})", round));
    VARVE_ASSIGN_OR_RETURN(PromptFigures figures,
                           bench.Measure(outcome->gate_case, options_.fault));
    outcome->rounds = std::max(outcome->rounds, round + 1);
    if (!figures.blocks.empty()) self_drops_[bucket].push_back(SelfDrop(figures.blocks));
    if (round == 0) {
      outcome->figures.prompts.push_back(std::move(figures));
    } else {
      std::vector<SpeedBlock>& blocks = outcome->figures.prompts.back().blocks;
      blocks.insert(blocks.end(), figures.blocks.begin(), figures.blocks.end());
      if (!figures.status.ok()) outcome->figures.prompts.back().status = figures.status;
    }
    NoteNoise(outcome);
    const CaseVerdict verdict =
        JudgeCase(outcome->gate_case, outcome->figures, setup_.model.model->name());
    // A speed that fails is measured again, too: what happened once may have been the machine.
    const bool is_open = std::ranges::any_of(verdict.gates, [&](const GateResult& gate) {
      return gate.noise && gate.status != GateStatus::kPassed && gate.bucket == bucket;
    });
    if (!is_open || !outcome->figures.prompts.back().status.ok()) break;
  }
  return Status();
}

void GateRunner::NoteNoise(CaseOutcome* outcome) const {
  for (const auto& [bucket, drops] : self_drops_) {
    const auto blocks = static_cast<double>(BlocksOf(outcome->figures, bucket).size());
    outcome->figures.run_noise[bucket] = RunNoise(drops, blocks / setup_.effort.blocks);
  }
}

Status GateRunner::MeasurePrompt(const GatePrompt& prompt, RunOutcome* run) {
  note_ = fmt::format("f16, {} tokens", prompt.bucket);
  const auto go_on = [this] { return GoOn(0); };
  VARVE_ASSIGN_OR_RETURN(
      const std::unique_ptr<GateBench> bench,
      GateBench::Make(setup_.model.model, *setup_.executor, *setup_.runner, prompt, go_on));
  const auto tokens = static_cast<double>(prompt.end_tokens());
  GoOn(2 * tokens);
  for (CaseOutcome& outcome : run->cases) {
    const bool wants = prompt.bucket == kTurnsBucket || outcome.gate_case.Wants(prompt.bucket);
    if (wants && outcome.skipped.empty()) VARVE_RETURN_IF_ERROR(MeasureCase(*bench, &outcome));
    if (!GoOn(tokens)) return FailedPrecondition("stopped");
  }
  return Status();
}

Status GateRunner::MeasureQualityOf(RunOutcome* run) {
  if (!options_.quality || setup_.text.empty()) return Status();
  std::vector<Plan> plans;
  std::vector<size_t> indices;
  for (size_t i = 0; i < run->cases.size(); ++i) {
    if (!run->cases[i].skipped.empty()) continue;
    plans.push_back(run->cases[i].gate_case.plan);
    indices.push_back(i);
  }
  const double begin = work_done_;
  const double room = TotalWork() / 3;
  VARVE_ASSIGN_OR_RETURN(std::vector<GateQuality> quality,
                         MeasureQuality(setup_.model, setup_.text, plans, setup_.effort.quality,
                                        *setup_.executor, [&](double part, std::string_view note) {
                                          note_ = note;
                                          work_done_ = begin + part * room;
                                          return GoOn(0);
                                        }));
  if (InterruptScope::interrupted()) return FailedPrecondition("stopped");
  for (size_t i = 0; i < indices.size(); ++i) quality_[indices[i]] = std::move(quality[i]);
  return Status();
}

void GateRunner::Judge(RunOutcome* run) const {
  for (size_t i = 0; i < run->cases.size(); ++i) {
    CaseOutcome& outcome = run->cases[i];
    outcome.figures.quality = quality_[i];
    NoteNoise(&outcome);
    if (!outcome.skipped.empty()) {
      outcome.verdict = {GateStatus::kSkipped, outcome.skipped, {}};
      continue;
    }
    const bool measured = std::ranges::any_of(report_.prompts, [&](const GatePrompt& prompt) {
      return outcome.gate_case.Wants(prompt.bucket) || prompt.bucket == kTurnsBucket;
    });
    if (!measured) {
      outcome.verdict = {GateStatus::kSkipped, "no prompt of its buckets", {}};
    } else if (outcome.figures.prompts.empty()) {
      outcome.verdict = {GateStatus::kNotRun, "interrupted before it was measured", {}};
    } else {
      outcome.verdict = JudgeCase(outcome.gate_case, outcome.figures, setup_.model.model->name());
    }
  }
}

Status GateRunner::RunOnce(RunOutcome* run) {
  const Timer timer;
  run->cases = NewCases();
  self_drops_.clear();
  Status status;
  for (const GatePrompt& prompt : report_.prompts) {
    status = MeasurePrompt(prompt, run);
    if (!status.ok()) break;
  }
  if (status.ok() && report_.runs.size() == 1) status = MeasureQualityOf(run);
  run->interrupted = InterruptScope::interrupted();
  Judge(run);
  run->seconds = timer.seconds();
  return run->interrupted ? Status() : status;
}

Result<GateVerdict> GateRunner::Finish() {
  const RunOutcome& last = report_.runs.back();
  report_.head = GateHead(options_, setup_, since_start_.seconds());
  const Json summary = MakeGateSummary(report_);
  VARVE_RETURN_IF_ERROR(CheckGateSummary(summary));
  const std::filesystem::path folder(options_.output);
  VARVE_RETURN_IF_ERROR(
      WriteText((folder / "summary.json").string(),
                summary.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  VARVE_RETURN_IF_ERROR(WriteReport((folder / "report.html").string(),
                                    fmt::format("varve gate, {}", setup_.model.name), summary));
  if (!options_.history.empty() && !last.interrupted) {
    VARVE_RETURN_IF_ERROR(AppendHistory(options_.history, setup_.place, summary));
  }
  const bool failed = std::ranges::any_of(report_.runs, &RunOutcome::failed);
  const bool passed = summary["overall_pass"].get<bool>();
  PrintGateTable(last, stdout);
  for (const RunOutcome& run : report_.runs) PrintGateReasons(run, stdout);
  fmt::print("{}: {} of {} cases passed, {} undecided, {} skipped; {:.0f} s; {}\n",
             passed   ? "PASSED"
             : failed ? "FAILED"
                      : "NOT DECIDED",
             summary["counts"]["passed"].get<int>(), last.cases.size(),
             summary["counts"]["undecided"].get<int>(), summary["counts"]["skipped"].get<int>(),
             since_start_.seconds(), (folder / "report.html").string());
  if (last.interrupted) fmt::print("interrupted: what was measured so far is in it\n");
  if (passed) return GateVerdict::kPassed;
  return failed ? GateVerdict::kFailed : GateVerdict::kUndecided;
}

Result<GateVerdict> GateRunner::Run() {
  const InterruptScope scope;
  progress_ = std::make_unique<Progress>("gate", TotalWork());
  for (int i = 0; i < options_.runs && !InterruptScope::interrupted(); ++i) {
    report_.runs.emplace_back();
    VARVE_RETURN_IF_ERROR(RunOnce(&report_.runs.back()));
  }
  progress_.reset();
  return Finish();
}

}  // namespace

Result<GateVerdict> RunGate(const GateOptions& options) {
  VARVE_ASSIGN_OR_RETURN(GateSetup setup, PrepareGate(options));
  return GateRunner(options, std::move(setup)).Run();
}

}  // namespace varve::cli
