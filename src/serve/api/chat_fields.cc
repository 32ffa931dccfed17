// The messages of a chat: roles, contents and tools as OpenAI's API has them.

#include <ctime>
#include <utility>

#include <fmt/chrono.h>
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

// What an assistant asked for: [{"id": …, "function": {"name": …, "arguments": "…"}}].
ApiError ReadToolCalls(const json& calls, size_t index, std::vector<ToolCall>* out) {
  const std::string param = fmt::format("messages[{}].tool_calls", index);
  if (calls.is_null()) return {};
  if (!calls.is_array()) return InvalidRequest(param + ": not a list", param);
  for (const json& call : calls) {
    const json function = call.is_object() ? call.value("function", json()) : json();
    if (!function.is_object() || !function.value("name", json()).is_string()) {
      return InvalidRequest(param + ": a call without function.name", param);
    }
    const json arguments = function.value("arguments", json());
    const json id = call.value("id", json());
    out->push_back(
        {.id = id.is_string() ? id.get<std::string>() : "",
         .name = function["name"].get<std::string>(),
         .arguments = arguments.is_string() ? arguments.get<std::string>() : arguments.dump()});
  }
  return {};
}

std::string TextField(const json& message, const char* name) {
  const json value = message.value(name, json());
  return value.is_string() ? value.get<std::string>() : std::string();
}

ApiError ReadMessage(const json& message, size_t index, ChatMessage* out) {
  const std::string param = fmt::format("messages[{}]", index);
  if (!message.is_object()) return InvalidRequest(param + ": not an object", param);
  const json role = message.value("role", json());
  if (!role.is_string()) return InvalidRequest(param + ".role: missing", param + ".role");
  out->role = role.get<std::string>();
  if (out->role == "developer") out->role = "system";
  out->name = TextField(message, "name");
  out->tool_call_id = TextField(message, "tool_call_id");
  ApiError error = ReadToolCalls(message.value("tool_calls", json()), index, &out->tool_calls);
  if (!error.ok()) return error;
  return ReadContent(message.value("content", json()), index, &out->content);
}

// What the assistant has begun to say: vLLM's continue_final_message. The message is taken off.
ApiError TakeBeginning(const json& body, std::vector<ChatMessage>* chat, std::string* beginning) {
  if (body.value("continue_final_message", json()) != true) return {};
  if (body.value("add_generation_prompt", json()) == true) {
    return InvalidRequest("continue_final_message: excludes add_generation_prompt",
                          "continue_final_message");
  }
  if (chat->size() < 2 || chat->back().role != "assistant") {
    return InvalidRequest("continue_final_message: the last message is not the assistant's",
                          "continue_final_message");
  }
  *beginning = std::move(chat->back().content);
  chat->pop_back();
  return {};
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

// What llama-server tells every template, and what the request says beside or instead of it.
json TemplateVariables(const json& body) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  json variables = {{"enable_thinking", true},
                    {"date_string", fmt::format("{:%d %b %Y}", local)},
                    {"datetime", fmt::format("{:%b %d %Y}", local)}};
  const json asked = body.value("chat_template_kwargs", json());
  if (asked.is_object()) variables.update(asked);
  return asked.is_object() || asked.is_null() ? variables : asked;
}

// By the model's template, with the request's tools and variables.
ApiError RenderPrompt(const json& body, const std::vector<ChatMessage>& chat,
                      const ChatTemplate& chat_template, ChatPrompt* prompt) {
  const auto text_of = [&body](const char* name) {
    const json value = body.value(name, json());
    return value.is_null() ? std::string() : value.dump();
  };
  const std::string tools = text_of("tools");
  const std::string variables = TemplateVariables(body).dump();
  // Without it, and with nothing to continue, the prompt ends behind the last message.
  const bool add_generation_prompt = body.value("add_generation_prompt", json()) != false ||
                                     body.value("continue_final_message", json()) == true;
  Result<ChatPrompt> rendered =
      chat_template.Render({.messages = chat,
                            .tools = tools,
                            .add_generation_prompt = add_generation_prompt,
                            .variables = variables});
  if (!rendered.ok()) return InvalidRequest(rendered.status().message(), "messages");
  *prompt = *std::move(rendered);
  return {};
}

}  // namespace

ApiError ChatTokens(const json& body, const ServedModel& model, std::vector<int32_t>* tokens,
                    std::string* text) {
  const json messages = body.value("messages", json());
  if (messages.is_null()) return InvalidRequest("messages: missing", "messages");
  if (!messages.is_array()) return InvalidRequest("messages: not a list", "messages");
  if (messages.empty()) return InvalidRequest("messages: an empty list", "messages");
  std::vector<ChatMessage> chat;
  for (size_t i = 0; i < messages.size(); ++i) {
    ApiError error = ReadMessage(messages[i], i, &chat.emplace_back());
    if (!error.ok()) return error;
  }
  std::string beginning;
  ApiError wrong = TakeBeginning(body, &chat, &beginning);
  if (!wrong.ok()) return wrong;
  ChatPrompt prompt;
  bool has_bos = false;
  if (model.chat == nullptr) {
    prompt = PlainPrompt(chat);
  } else {
    ApiError error = RenderPrompt(body, chat, *model.chat, &prompt);
    if (!error.ok()) return error;
    has_bos = model.chat->HasBos(prompt);
  }
  if (!beginning.empty()) {
    prompt.messages.push_back({prompt.text.size(), prompt.text.size() + beginning.size()});
    prompt.text += beginning;
  }
  *text = prompt.text;
  // Nobody's words are special tokens: the messages are literal.
  *tokens = model.tokenizer->Encode(
      prompt.text, {.add_special = !has_bos, .parse_special = true, .literal = prompt.messages});
  if (!tokens->empty()) return {};
  return InvalidRequest("messages: no tokens, at least 1 is needed", "messages");
}

}  // namespace varve::serve
