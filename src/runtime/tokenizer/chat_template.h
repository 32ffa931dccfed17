// The chat formats of the common model families, built in: a template of the file is recognised,
// never executed.

#ifndef VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_
#define VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_

#include <span>
#include <string>
#include <string_view>

#include "runtime/gguf/gguf_file.h"
#include "varve/status.h"

namespace varve {

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

// "chatml", "llama3", "llama2", "mistral", "gemma", "zephyr", "phi3"
std::span<const std::string_view> ChatFormatNames();

// The format that the file's tokenizer.chat_template stands for; kNotFound if the file has none,
// kUnimplemented if it is none of ours.
Result<std::string_view> DetectChatFormat(const GgufFile& file);

// The prompt that makes the model answer as the assistant. Special tokens are in it as text:
// encode with parse_special. The BOS token is not in it: encode with add_special.
Result<std::string> FormatChat(std::string_view format, std::span<const ChatMessage> messages);

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_
