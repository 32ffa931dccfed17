// The prompt of `varve run`: from the command line, a file or stdin, plain or as a chat turn.

#ifndef VARVE_CLI_RUN_RUN_PROMPT_H_
#define VARVE_CLI_RUN_RUN_PROMPT_H_

#include <cstdint>
#include <optional>
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

// The value of --chat: a built-in template by name, or "@FILE"; empty: the model's own.
Result<ChatTemplate> FindChatTemplate(const std::string& format, const LoadedModel& model);

// The template of the chat that the options mean; none: the prompt is text to continue.
//
// A model with a chat template chats: what -p says, or somebody types at a terminal, is a message
// to it. Texts of files, of stdin and behind --load, and a prompt cut by --prompt-tokens, are
// continued; a note says so. --chat, --turns and --system make any prompt a message, --raw none.
// Errors say what in the template is not supported, and which formats there are.
Result<std::optional<ChatTemplate>> ChatTemplateOf(const RunOptions& options,
                                                   const LoadedModel& model);

// A conversation up to a message of the user. No prompt is without tokens: what the vocabulary has
// nothing for is refused. Without --special nothing in a message is a special token: "<|im_end|>"
// ends no turn. There is one BOS token: the template's, or the one that the model asks for.
//
// `behind_answer`: the messages follow an answer that is there as tokens (--load).
Result<std::vector<int32_t>> EncodeChat(const RunOptions& options, const RunSetup& setup,
                                        std::span<const ChatMessage> messages,
                                        bool behind_answer = false);

// What the options make of the text: a plain prompt or a chat turn with the system message. An
// empty prompt is the BOS token; an error where the model has none. Behind a loaded text it begins
// nothing: no BOS, and none at all is fine.
Result<std::vector<int32_t>> PromptTokens(const RunOptions& options, const RunSetup& setup,
                                          const std::string& text, bool behind_answer = false);

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_RUN_PROMPT_H_
