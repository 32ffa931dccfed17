// A conversation: messages in, answers out, one cache all the while.
//
// Every turn the template writes the whole conversation anew; the cache keeps what the new tokens
// begin with, so that only the rest is read.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/run/chat_input.h"
#include "cli/run/run_prompt.h"
#include "cli/run/text_run.h"

namespace varve::cli {
namespace {

// The most tokens that the plan lets a layer see; 0: no layer has a window.
int64_t WindowOf(const Plan& plan) {
  int64_t most = 0;
  for (const LayerRule& rule : plan.rules) {
    if (!rule.window_tokens) continue;
    most = std::max(most, *rule.window_tokens + rule.sink_tokens.value_or(0));
  }
  return most;
}

}  // namespace

Result<std::vector<int32_t>> TextRun::ChatTokens() const {
  VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                         EncodeChat(options_, setup_, messages_, behind_answer_));
  tokens.insert(tokens.begin(), loaded_.begin(), loaded_.end());
  return tokens;
}

Result<TextRun::FeedPlan> TextRun::FindFeed(std::span<const int32_t> tokens) const {
  // The last token must give its logits anew.
  const size_t most = std::min(fed_.size(), tokens.size() - 1);
  const auto mismatch =
      std::mismatch(fed_.begin(), fed_.begin() + static_cast<ptrdiff_t>(most), tokens.begin());
  FeedPlan feed;
  VARVE_ASSIGN_OR_RETURN(feed.cut,
                         lane_.cache->FindCut(lane_.sequence, mismatch.first - fed_.begin()));
  feed.kept = static_cast<size_t>(feed.cut.num_tokens);
  feed.end = feed.cut.position + static_cast<int64_t>(tokens.size() - feed.kept);
  return feed;
}

Result<std::string> TextRun::Feed(std::span<const int32_t> tokens) {
  VARVE_ASSIGN_OR_RETURN(const FeedPlan feed, FindFeed(tokens));
  VARVE_RETURN_IF_ERROR(lane_.cache->Truncate(lane_.sequence, feed.cut.position));
  fed_.resize(feed.kept);
  return Show(tokens.subspan(feed.kept), true);
}

bool TextRun::MayForget() const { return WindowOf(setup_.plans[0]) > 0; }

// The oldest thing that is no system message: what was loaded, or a user's message with all that
// answers it. The last message stays.
bool TextRun::ForgetOne() {
  if (!loaded_.empty()) {
    loaded_.clear();
    behind_answer_ = false;
    return true;
  }
  const size_t begin = !messages_.empty() && messages_[0].role == "system" ? 1 : 0;
  size_t end = begin + 1;
  while (end < messages_.size() && messages_[end].role != "user") ++end;
  if (end >= messages_.size()) return false;
  messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(begin),
                  messages_.begin() + static_cast<ptrdiff_t>(end));
  return true;
}

Result<bool> TextRun::ForgetOldest(ChatTurn* turn) {
  // What lies behind the window is not seen any more; a quarter of the context is for what comes.
  const int64_t context = setup_.generate.max_context;
  const int64_t target = std::min(WindowOf(setup_.plans[0]), context - context / 4);
  const size_t before = messages_.size();
  const bool had_loaded = !loaded_.empty();
  int64_t count = context + 1;
  while (count > target) {
    if (!ForgetOne()) break;
    VARVE_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, ChatTokens());
    count = static_cast<int64_t>(tokens.size());
  }
  if (count > context) return false;
  const auto gone = static_cast<int64_t>(before - messages_.size());
  turn->forgotten_messages += gone;
  WriteNote(fmt::format(
      "varve: the context of {} tokens is full; {}{} oldest messages are forgotten (window=), the "
      "other {} tokens are read again\n",
      context, had_loaded ? "what was loaded and " : "", gone, count));
  return true;
}

std::string TextRun::FullAdvice() const {
  const int64_t context = setup_.generate.max_context;
  const int64_t most = setup_.model.model->context();
  const std::string larger =
      context < most ? fmt::format("--ctx up to {} has more room; ", most) : std::string();
  return fmt::format(
      "{}/clear begins anew, /save FILE keeps it; a plan with a window, such as --kv "
      "window={},sink=64 (now: /plan window={},sink=64), goes on and forgets what is oldest",
      larger, context / 2, context / 2);
}

Result<ChatTurn> TextRun::Ask(const std::string& message) {
  const RunTotals before = std::exchange(totals_, RunTotals());
  ChatTurn turn;
  messages_.push_back({"user", message});
  std::string answer;
  bool fits = true;
  const InterruptScope scope;
  const int64_t max_tokens = setup_.generate.max_tokens;  // of all rounds together
  // More than one round only where the context is full and the plan forgets.
  while (fits) {
    VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, ChatTokens());
    if (!answer.empty()) {
      const std::vector<int32_t> said =
          setup_.model.tokenizer->Encode(answer, {.add_special = false});
      tokens.insert(tokens.end(), said.begin(), said.end());
    }
    VARVE_ASSIGN_OR_RETURN(const FeedPlan feed, FindFeed(tokens));
    const bool has_room = feed.end <= setup_.generate.max_context - (answer.empty() ? 0 : 1);
    if (has_room) {
      setup_.generate.max_tokens = max_tokens - totals_.tokens;
      Result<std::string> piece = Feed(tokens);
      setup_.generate.max_tokens = max_tokens;
      if (!piece.ok()) return piece.status();
      answer += *piece;
      if (totals_.stop != StopReason::kContext || piece->empty()) break;
    }
    fits = false;
    if (MayForget()) {
      VARVE_ASSIGN_OR_RETURN(fits, ForgetOldest(&turn));
    }
    if (fits) continue;
    WriteNote(fmt::format("{}varve: {} the context of {} tokens; {}\n", answer.empty() ? "" : "\n",
                          answer.empty()
                              ? fmt::format("this message ends at position {}, beyond", feed.end)
                              : std::string("the answer has filled"),
                          setup_.generate.max_context, FullAdvice()));
    totals_.stop = StopReason::kContext;
  }
  EndLine(answer);
  if (totals_.stop == StopReason::kStopped) WriteNote("varve: interrupted\n");
  if (answer.empty() && totals_.stop == StopReason::kContext) {
    messages_.pop_back();
  } else {
    messages_.push_back({"assistant", answer});
  }
  turn.totals = totals_;
  totals_ = before;
  totals_.Add(turn.totals);
  return turn;
}

Status TextRun::Clear() {
  VARVE_RETURN_IF_ERROR(lane_.cache->Free(lane_.sequence));
  VARVE_ASSIGN_OR_RETURN(lane_.sequence, lane_.cache->CreateSequence());
  fed_.clear();
  waiting_.clear();
  loaded_.clear();
  behind_answer_ = false;
  messages_.clear();
  if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  return Status();
}

Status TextRun::ChangePlan(const std::string& text) {
  if (!options_.trace.empty()) {
    return InvalidArgument("/plan: not with --trace, which is of one plan");
  }
  VARVE_ASSIGN_OR_RETURN(Plan plan, ReadPlanArgument(text));
  VARVE_ASSIGN_OR_RETURN(RunSetup::Lane lane, setup_.MakeLane(plan));
  lane_ = std::move(lane);
  setup_.plans[0] = std::move(plan);
  options_.plans[0] = text;
  waiting_.clear();
  const size_t count = std::exchange(fed_, {}).size();
  WriteNote(
      fmt::format("the plan is {}; {} tokens are read again with the next message\n", text, count));
  return Status();
}

Status TextRun::Command(const ChatCommand& command, bool* goes_on) {
  if (command.name == "help") WriteNote(ChatHelp());
  if (command.name == "exit") *goes_on = false;
  if (command.name == "stats") WriteNote(CacheLine() + "\n");
  if (command.name == "clear") return Clear();
  if (command.name == "save") {
    const std::string& path = command.argument.empty() ? options_.save : command.argument;
    return path.empty() ? InvalidArgument("/save: no FILE, and no --save that names one")
                        : Save(path);
  }
  if (command.name == "load") {
    VARVE_RETURN_IF_ERROR(LoadFrom(command.argument));
    messages_.clear();
    WriteNote(fmt::format("loaded {} tokens{}\n", loaded_.size(),
                          behind_answer_ ? "" : ", which are no conversation of this model"));
    return Status();
  }
  if (command.name != "plan") return Status();
  if (!command.argument.empty()) return ChangePlan(command.argument);
  WriteNote(fmt::format("{}; `varve plan '{}'` says what it means\n", options_.plans[0],
                        options_.plans[0]));
  return Status();
}

Status TextRun::Converse() {
  WriteNote(fmt::format("{}, {}; /help lists commands, Ctrl-D ends, Ctrl-C stops an answer\n",
                        setup_.model.name, setup_.chat_name));
  if (behind_answer_) WriteNote(fmt::format("{} tokens of it are loaded\n", loaded_.size()));
  ChatInput input;
  for (bool goes_on = true; goes_on && !InterruptScope::ending();) {
    std::optional<std::string> message;
    {
      const InterruptScope scope;
      message = input.Next();
    }
    if (!message) break;
    if (message->find_first_not_of(" \t\n") == std::string::npos) continue;
    Status done;
    if (IsChatCommand(*message)) {
      const Result<ChatCommand> command = ParseChatCommand(*message);
      done = command.ok() ? Command(*command, &goes_on) : command.status();
      // A command that fails ends nothing.
      if (!done.ok()) WriteNote(fmt::format("varve: {}\n", done.message()));
      continue;
    }
    since_start_.Restart();
    VARVE_RETURN_IF_ERROR(Ask(*message).status());
  }
  WriteNote("\n");
  return Status();
}

}  // namespace varve::cli
