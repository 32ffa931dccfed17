// The prompt of `varve run`: from the command line, a file or stdin, plain or as a chat turn.

#ifndef VARVE_CLI_RUN_RUN_PROMPT_H_
#define VARVE_CLI_RUN_RUN_PROMPT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/model_argument.h"
#include "cli/run/run_options.h"
#include "runtime/tokenizer/chat_template.h"

namespace varve::cli {

// -p, or -f, or stdin where it is no terminal; else nothing. One newline at the end of a file or of
// stdin is not part of the prompt: what comes next continues the last line.
bool PromptIsFromStdin(const RunOptions& options);
Result<std::string> ReadPromptText(const RunOptions& options);

// Empty text is the BOS token; an error where the model has none. No prompt is without tokens: what
// the vocabulary has nothing for is refused, here and in a chat.
Result<std::vector<int32_t>> EncodePrompt(const LoadedModel& model, const std::string& text);

// The format asked for, or the one that the file names. Errors say which formats there are.
Result<std::string> ChatFormatOf(const RunOptions& options, const LoadedModel& model);
Result<std::vector<int32_t>> EncodeChat(const RunOptions& options, const LoadedModel& model,
                                        const std::string& format,
                                        std::span<const ChatMessage> messages);

// What the options make of the text: a plain prompt or a chat turn with the system message. Behind
// a loaded text it begins nothing: no BOS, and none at all is fine.
Result<std::vector<int32_t>> PromptTokens(const RunOptions& options, const LoadedModel& model,
                                          const std::string& text);

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_RUN_PROMPT_H_
