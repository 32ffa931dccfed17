// Chat templates of the common families of models, for files that bring none of their own.

#ifndef VARVE_RUNTIME_TOKENIZER_CHAT_FORMATS_H_
#define VARVE_RUNTIME_TOKENIZER_CHAT_FORMATS_H_

#include <span>
#include <string_view>

namespace varve {

struct ChatFormat {
  std::string_view name;
  std::string_view source;  // Jinja; the BOS token in front is the tokenizer's
};

// Families without a system message get it in front of the first message of the user. The three of
// Mistral differ in blanks: "[INST] text [/INST]", "[INST] text[/INST]", "[INST]text[/INST]".
std::span<const ChatFormat> ChatFormats();

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_CHAT_FORMATS_H_
