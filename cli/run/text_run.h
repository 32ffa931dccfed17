// TextRun: one plan, one sequence, and the text that goes on in it: a prompt once, or a
// conversation.
//
// run_text.cc has what both need (generating, saving, figures), run_chat.cc the conversation. One
// thread.

#ifndef VARVE_CLI_RUN_TEXT_RUN_H_
#define VARVE_CLI_RUN_TEXT_RUN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/timer.h"
#include "cli/report/retention_trace.h"
#include "cli/run/chat_commands.h"
#include "cli/run/run_options.h"
#include "runtime/generate.h"
#include "runtime/tokenizer/chat_template.h"

namespace varve::cli {

// What the closing line tells; several turns of a conversation add up.
struct RunTotals {
  int64_t prompt_tokens = 0;
  double prompt_us = 0;
  int64_t tokens = 0;
  int64_t decode_steps = 0;
  double decode_us = 0;
  // From the start of the command, loading included; where somebody types or pipes, from the end of
  // the first input.
  double first_token_s = 0;
  StopReason stop = StopReason::kMaxTokens;
  std::string text;

  double prompt_tokens_per_s() const {
    return prompt_us > 0 ? 1e6 * static_cast<double>(prompt_tokens) / prompt_us : 0.0;
  }
  double tokens_per_s() const {
    return decode_us > 0 ? 1e6 * static_cast<double>(decode_steps) / decode_us : 0.0;
  }

  void Add(const RunTotals& turn) {
    prompt_tokens += turn.prompt_tokens;
    prompt_us += turn.prompt_us;
    tokens += turn.tokens;
    decode_steps += turn.decode_steps;
    decode_us += turn.decode_us;
    if (first_token_s == 0) first_token_s = turn.first_token_s;
    stop = turn.stop;
    text += turn.text;
  }
  void Add(const Generation& generation) {
    prompt_tokens += generation.prompt_tokens;
    prompt_us += generation.prompt_us;
    tokens += static_cast<int64_t>(generation.tokens.size());
    decode_steps += generation.decode_steps;
    decode_us += generation.decode_us;
    stop = generation.stop;
  }
};

// What happened to one message of a user.
struct ChatTurn {
  RunTotals totals;  // of this turn alone
  int64_t forgotten_messages = 0;
};

class TextRun {
 public:
  // `recorder` watches the lane's cache, and outlives this.
  TextRun(RunOptions options, RunSetup setup, RunSetup::Lane lane, TraceRecorder* recorder,
          const Timer& since_start);

  // --load: what follows goes behind the file's tokens.
  Status Load() { return options_.load.empty() ? Status() : LoadFrom(options_.load); }
  Status Once();
  // Somebody types, until they end it or a signal does.
  Status Converse();
  // Forgets the conversation; the system message stays.
  Status Clear();
  // The answer to a user's message. A message that does not fit is taken back, and the user told.
  Result<ChatTurn> Ask(const std::string& message);
  // The closing line, and the JSON row if asked for. Of what went well, if not all did.
  Status Finish();
  // Whether a token has gone in since the start.
  bool has_begun() const { return totals_.prompt_tokens > 0; }
  nlohmann::ordered_json TurnRow(const ChatTurn& turn) const;
  // Cache, plan and positions so far, in one line.
  std::string CacheLine() const;

  GenerateOptions& generate() { return setup_.generate; }
  std::FILE* out() const { return setup_.out; }

 private:
  // Generates behind what the sequence holds and shows the text. Continues the prompt's text unless
  // it is an answer.
  Result<std::string> Show(std::span<const int32_t> prompt, bool is_answer);
  void Write(const std::string& text);
  void EndLine(const std::string& text);
  // The error of a step, with the option that it comes from and what is done.
  Status CapReached(const Status& error) const;
  void NoteStop();
  Status LoadFrom(const std::string& path);
  Status Save(const std::string& path) const;
  Status WriteTraceFile() const;

  // --- the conversation: run_chat.cc ---
  // All tokens of it, up to where the assistant speaks.
  Result<std::vector<int32_t>> ChatTokens() const;
  // Where the cache is to be cut, so that it keeps what the tokens begin with.
  struct FeedPlan {
    size_t kept = 0;
    int64_t end = 0;  // position behind the last token
    CutPoint cut;
  };
  Result<FeedPlan> FindFeed(std::span<const int32_t> tokens) const;
  // Cuts, reads the rest and shows the answer.
  Result<std::string> Feed(std::span<const int32_t> tokens);
  // True if the plan forgets by itself (window=), so that a conversation may, too.
  bool MayForget() const;
  // Takes the oldest messages away until the rest fits into the window. False: nothing can go.
  Result<bool> ForgetOldest(ChatTurn* turn);
  bool ForgetOne();
  Status Command(const ChatCommand& command, bool* goes_on);
  Status ChangePlan(const std::string& text);
  std::string FullAdvice() const;

  RunOptions options_;
  RunSetup setup_;
  RunSetup::Lane lane_;
  TraceRecorder* recorder_;
  Timer since_start_;
  std::vector<int32_t> loaded_;   // all that came with --load
  bool behind_answer_ = false;    // they are a conversation
  std::vector<int32_t> fed_;      // the tokens in the cache, in order
  std::vector<int32_t> waiting_;  // the text behind them: not fed yet
  std::vector<ChatMessage> messages_;
  RunTotals totals_;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_TEXT_RUN_H_
