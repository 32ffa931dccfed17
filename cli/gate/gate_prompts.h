// What `varve gate` lets a model read: passages of a text in buckets of equal length, a user's own
// files, or scripted conversations. All of them are turns: a prompt, then a reply that every plan
// is fed alike, so that caches differ in nothing but their plan.

#ifndef VARVE_CLI_GATE_GATE_PROMPTS_H_
#define VARVE_CLI_GATE_GATE_PROMPTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve::cli {

// The bucket of conversations.
inline constexpr const char* kTurnsBucket = "turns";

struct GateTurn {
  std::vector<int32_t> tokens;
  // What follows. The text's own continuation, or empty: then the baseline writes it.
  std::vector<int32_t> reply;
  int64_t reply_tokens = 0;
};

struct GatePrompt {
  std::string name;
  std::string bucket;  // "2048"
  std::string source;  // where the text is from
  uint64_t hash = 0;   // XXH3-64 of the text
  size_t bytes = 0;    // of the text
  std::vector<GateTurn> turns;

  int64_t prompt_tokens() const;  // of all turns
  int64_t end_tokens() const;     // with the replies
};

struct GatePromptOptions {
  std::vector<int64_t> buckets;  // ascending
  int64_t reply_tokens = 0;
  int per_bucket = 1;
};

// Passages of `text` that the manifest names; each must have the hash that stands there. The first
// `bucket` tokens are the prompt, what follows is the reply.
Result<std::vector<GatePrompt>> PassagePrompts(const Tokenizer& tokenizer,
                                               std::string_view manifest, std::string_view text,
                                               const GatePromptOptions& options);

// The files of a folder, each whole, in the largest bucket that it fills.
Result<std::vector<GatePrompt>> FolderPrompts(const Tokenizer& tokenizer, const std::string& folder,
                                              const GatePromptOptions& options);

// The conversations of a file (cli/run/turns_file.h), each a prompt of several turns.
Result<std::vector<GatePrompt>> TurnPrompts(const Tokenizer& tokenizer, const std::string& path,
                                            const GatePromptOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_PROMPTS_H_
