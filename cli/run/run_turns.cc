// `varve run --turns FILE`: conversations from a file, with a report per turn.

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/run/run_options.h"
#include "cli/run/run_probe.h"
#include "cli/run/text_run.h"
#include "cli/run/turns_file.h"

namespace varve::cli {
namespace {

void ReportTurn(size_t index, const ChatTurn& turn, const std::string& cache) {
  const RunTotals& totals = turn.totals;
  WriteNote(
      fmt::format("turn {}: prompt {} tokens, {:.1f} tokens/s | generated {} tokens, {:.1f} "
                  "tokens/s | {}\n",
                  index + 1, totals.prompt_tokens, totals.prompt_tokens_per_s(), totals.tokens,
                  totals.tokens_per_s(), cache));
}

// One conversation, from an empty cache.
Status PlayTalk(const ScriptedTalk& talk, TextRun* run, nlohmann::ordered_json* rows) {
  VARVE_RETURN_IF_ERROR(run->Clear());
  WriteNote(fmt::format("--- {} ---\n", talk.name));
  for (size_t i = 0; i < talk.turns.size() && !InterruptScope::interrupted(); ++i) {
    WriteNote(fmt::format("> {}\n", talk.turns[i]));
    VARVE_ASSIGN_OR_RETURN(const ChatTurn turn, run->Ask(talk.turns[i]));
    ReportTurn(i, turn, run->CacheLine());
    nlohmann::ordered_json row = run->TurnRow(turn);
    row["conversation"] = talk.name;
    row["turn"] = i + 1;
    row["message"] = talk.turns[i];
    rows->push_back(std::move(row));
  }
  return Status();
}

}  // namespace

Status RunTurns(const RunOptions& asked) {
  if (asked.plans.size() != 1 || !asked.report.empty()) {
    return InvalidArgument("--turns: conversations are run with one plan, without --report");
  }
  VARVE_ASSIGN_OR_RETURN(const std::vector<ScriptedTalk> talks, ReadTurnsFile(asked.turns));
  for (const auto& [option, file] :
       {std::pair("--load", asked.load), {"--save", asked.save}, {"--trace", asked.trace}}) {
    if (!file.empty()) return InvalidArgument(fmt::format("--turns: not together with {}", option));
  }
  const Timer since_start;
  VARVE_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(asked));
  WarnOfLoss(asked, setup);
  TraceRecorder recorder;
  VARVE_ASSIGN_OR_RETURN(RunSetup::Lane lane, setup.MakeLane(setup.plans[0]));
  TextRun run(asked, std::move(setup), std::move(lane), &recorder, since_start);
  const int64_t max_tokens = run.generate().max_tokens;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Status ended;
  for (const ScriptedTalk& talk : talks) {
    run.generate().max_tokens =
        asked.tokens < 0 && talk.reply_tokens > 0 ? talk.reply_tokens : max_tokens;
    ended = PlayTalk(talk, &run, &rows);
    if (!ended.ok() || InterruptScope::interrupted()) break;
  }
  return FinishJson(ended, asked.json, "run", rows);
}

}  // namespace varve::cli
