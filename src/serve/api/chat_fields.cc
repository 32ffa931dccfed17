// The messages of a chat: roles and contents as OpenAI's API has them.

#include <fmt/format.h>

#include "runtime/tokenizer/chat_template.h"
#include "serve/api/completion_fields.h"

namespace varve::serve {
namespace {

using nlohmann::json;

// A text, or a list of {"type": "text", "text": …}.
ApiError ReadContent(const json& content, size_t index, std::string* text) {
  const std::string param = fmt::format("messages[{}].content", index);
  if (content.is_null()) return {};
  if (content.is_string()) {
    *text = content.get<std::string>();
    return {};
  }
  if (!content.is_array()) {
    return InvalidRequest(param + ": neither a text nor a list of parts", param);
  }
  for (const json& part : content) {
    const bool is_text = part.is_object() && part.value("type", json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      return InvalidRequest(param +
                                ": a part that is no {\"type\": \"text\"}; this model reads "
                                "nothing else",
                            param);
    }
    *text += part["text"].get_ref<const std::string&>();
  }
  return {};
}

ApiError ReadMessage(const json& message, size_t index, ChatMessage* out) {
  const std::string param = fmt::format("messages[{}]", index);
  if (!message.is_object()) return InvalidRequest(param + ": not an object", param);
  const json role = message.value("role", json());
  if (!role.is_string()) return InvalidRequest(param + ".role: missing", param + ".role");
  out->role = role.get<std::string>();
  if (out->role == "developer") out->role = "system";
  return ReadContent(message.value("content", json()), index, &out->content);
}

ChatPrompt PlainPrompt(const std::vector<ChatMessage>& messages) {
  ChatPrompt prompt;
  for (const ChatMessage& message : messages) {
    if (!prompt.text.empty()) prompt.text += "\n\n";
    const size_t begin = prompt.text.size();
    prompt.text += message.content;
    prompt.messages.push_back({begin, prompt.text.size()});
  }
  return prompt;
}

}  // namespace

ApiError ChatTokens(const json& messages, const ServedModel& model, std::vector<int32_t>* tokens,
                    std::string* text) {
  if (!messages.is_array()) return InvalidRequest("messages: not a list", "messages");
  if (messages.empty()) return InvalidRequest("messages: an empty list", "messages");
  std::vector<ChatMessage> chat;
  for (size_t i = 0; i < messages.size(); ++i) {
    ApiError error = ReadMessage(messages[i], i, &chat.emplace_back());
    if (!error.ok()) return error;
  }
  ChatPrompt prompt;
  if (model.chat_format == kPlainChat) {
    prompt = PlainPrompt(chat);
  } else {
    Result<ChatPrompt> formatted = FormatChat(model.chat_format, chat);
    if (!formatted.ok()) return InvalidRequest(formatted.status().message(), "messages");
    prompt = *std::move(formatted);
  }
  *text = prompt.text;
  // Nobody's words are special tokens: the messages are literal.
  *tokens = model.tokenizer->Encode(
      prompt.text, {.add_special = true, .parse_special = true, .literal = prompt.messages});
  if (!tokens->empty()) return {};
  return InvalidRequest("messages: no tokens, at least 1 is needed", "messages");
}

}  // namespace varve::serve
