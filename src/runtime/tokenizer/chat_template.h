// The chat formats of the common model families, built in: a template of the file is recognised by
// strings that only its family has, never executed. Pure functions.

#ifndef VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_
#define VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve {

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

// "chatml", "llama3", "llama2", "mistral", "mistral-v3", "mistral-tekken", "gemma", "zephyr",
// "phi3". The three of Mistral differ in blanks: "[INST] text [/INST]", "[INST] text[/INST]",
// "[INST]text[/INST]".
std::span<const std::string_view> ChatFormatNames();

// The format that the file's tokenizer.chat_template stands for; kNotFound if the file has none,
// kUnimplemented if it is none of ours.
Result<std::string_view> DetectChatFormat(const GgufFile& file);

// The prompt that makes the model answer as the assistant. Special tokens are in it as text: encode
// with parse_special, and with the messages as literal ranges, so that nobody's words end a turn.
// The BOS token is not in front of it: encode with add_special.
struct ChatPrompt {
  std::string text;
  std::vector<TextRange> messages;  // what was said; the rest is the format's
};

// A system message can only be the first; families without one get it in front of the first user
// message. kInvalidArgument names an unknown format, role or a message at a wrong place.
Result<ChatPrompt> FormatChat(std::string_view format, std::span<const ChatMessage> messages);

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_
