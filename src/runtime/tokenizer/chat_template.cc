#include "runtime/tokenizer/chat_template.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/json_value.h"
#include "base/nearest_word.h"
#include "base/quoted.h"
#include "runtime/tokenizer/chat_formats.h"

namespace varve {
namespace {

using jinja::MarkedText;
using jinja::Value;

constexpr int kMaxJsonDepth = 32;
constexpr std::array<std::string_view, 7> kRoles = {"system", "developer", "user",   "assistant",
                                                    "tool",   "function",  "ipython"};

Value Said(const std::string& text) { return Value::Text(MarkedText::Said(text)); }

std::pair<Value, Value> Entry(std::string_view key, Value value) {
  return {Value::Text(key), std::move(value)};
}

// Models write arguments as JSON; templates want the value.
Value ArgumentsOf(const std::string& text) {
  const Result<JsonValue> json = JsonValue::Parse(text, kMaxJsonDepth);
  return json.ok() ? Value::FromJson(*json) : Said(text);
}

Value CallValue(const ToolCall& call) {
  Value function = Value::OfDict(
      {Entry("name", Said(call.name)), Entry("arguments", ArgumentsOf(call.arguments))});
  jinja::Entries entries = {Entry("type", Value::Text("function")),
                            Entry("function", std::move(function))};
  if (!call.id.empty()) entries.push_back(Entry("id", Said(call.id)));
  return Value::OfDict(std::move(entries));
}

// The role is one of ours, so it is no stranger's text: templates build special tokens of it.
Value MessageValue(const ChatMessage& message) {
  const bool is_call_alone = message.content.empty() && !message.tool_calls.empty();
  jinja::Entries entries = {
      Entry("role", Value::Text(message.role)),
      Entry("content", is_call_alone ? Value::None() : Said(message.content))};
  if (!message.tool_calls.empty()) {
    jinja::List calls;
    for (const ToolCall& call : message.tool_calls) calls.push_back(CallValue(call));
    entries.push_back(Entry("tool_calls", Value::OfList(std::move(calls))));
  }
  if (!message.tool_call_id.empty()) {
    entries.push_back(Entry("tool_call_id", Said(message.tool_call_id)));
  }
  if (!message.name.empty()) entries.push_back(Entry("name", Said(message.name)));
  return Value::OfDict(std::move(entries));
}

Status CheckMessages(std::span<const ChatMessage> messages) {
  if (messages.empty()) return InvalidArgument("chat: 0 messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (std::ranges::find(kRoles, role) != kRoles.end()) continue;
    return InvalidArgument(
        fmt::format("chat: message {} has role {}{}", i, Quoted(role), DidYouMean(role, kRoles)));
  }
  return {};
}

Result<Value> ReadJson(std::string_view what, std::string_view text) {
  const Result<JsonValue> json = JsonValue::Parse(text, kMaxJsonDepth);
  if (!json.ok()) {
    return InvalidArgument(fmt::format("chat: {}: {}", what, json.status().message()));
  }
  return Value::FromJson(*json);
}

Result<jinja::NamedValues> VariablesOf(const ChatRequest& request,
                                       const ChatTemplate::Tokens& tokens) {
  jinja::NamedValues variables;
  if (!request.variables.empty()) {
    VARVE_ASSIGN_OR_RETURN(const Value extra, ReadJson("variables", request.variables));
    if (!extra.is(jinja::Kind::kDict)) return InvalidArgument("chat: variables: no JSON object");
    for (const auto& [key, value] : extra.dict()) variables.emplace_back(key.text(), value);
  }
  Value tools = Value::None();
  if (!request.tools.empty()) {
    VARVE_ASSIGN_OR_RETURN(tools, ReadJson("tools", request.tools));
    if (!tools.is(jinja::Kind::kList)) return InvalidArgument("chat: tools: no JSON list");
  }
  jinja::List messages;
  for (const ChatMessage& message : request.messages) messages.push_back(MessageValue(message));
  // What the interpreter itself sets wins: the first of a name is found.
  variables.insert(variables.begin(),
                   {{"messages", Value::OfList(std::move(messages))},
                    {"tools", std::move(tools)},
                    {"documents", Value::None()},
                    {"add_generation_prompt", Value::Bool(request.add_generation_prompt)},
                    {"bos_token", Value::Text(tokens.bos)},
                    {"eos_token", Value::Text(tokens.eos)}});
  return variables;
}

}  // namespace

ChatTemplate::Tokens ChatTemplate::TokensOf(const Tokenizer& tokenizer) {
  return {std::string(tokenizer.TokenBytes(tokenizer.bos(), /*show_special=*/true)),
          std::string(tokenizer.TokenBytes(tokenizer.eos(), /*show_special=*/true))};
}

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, Tokens tokens) {
  VARVE_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source));
  return ChatTemplate(std::move(parsed), std::move(tokens));
}

Result<ChatTemplate> ChatTemplate::FromFile(const GgufFile& file, Tokens tokens) {
  VARVE_ASSIGN_OR_RETURN(std::string_view source, file.GetString("tokenizer.chat_template"));
  Result<ChatTemplate> parsed = Parse(source, std::move(tokens));
  if (parsed.ok()) return parsed;
  return Status(parsed.status().code(),
                fmt::format("tokenizer.chat_template: {}", parsed.status().message()));
}

Result<ChatTemplate> ChatTemplate::BuiltIn(std::string_view name, Tokens tokens) {
  for (const ChatFormat& format : ChatFormats()) {
    if (format.name == name) return Parse(format.source, std::move(tokens));
  }
  std::string list;
  for (const std::string_view known : BuiltInNames()) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", known);
  }
  return InvalidArgument(fmt::format("chat format {} is not built in{}; there are {}", Quoted(name),
                                     DidYouMean(name, BuiltInNames()), list));
}

std::vector<std::string_view> ChatTemplate::BuiltInNames() {
  std::vector<std::string_view> names;
  for (const ChatFormat& format : ChatFormats()) names.push_back(format.name);
  return names;
}

Result<ChatPrompt> ChatTemplate::Render(const ChatRequest& request) const {
  VARVE_RETURN_IF_ERROR(CheckMessages(request.messages));
  VARVE_ASSIGN_OR_RETURN(jinja::NamedValues variables, VariablesOf(request, tokens_));
  const std::time_t now = request.now != 0 ? request.now : std::time(nullptr);
  Result<MarkedText> text = template_.Run(std::move(variables), now, request.limits);
  if (!text.ok()) {
    return Status(text.status().code(), fmt::format("chat template: {}", text.status().message()));
  }
  return ChatPrompt{text->text(), text->said()};
}

Result<ChatPrompt> ChatTemplate::RenderBehindAnswer(const ChatRequest& request) const {
  // A word that no template writes itself stands for the answer.
  static constexpr std::string_view kAnswer = "varve-answer-3f1c";
  std::vector<ChatMessage> messages = {{"user", "?"}, {"assistant", std::string(kAnswer)}};
  messages.insert(messages.end(), request.messages.begin(), request.messages.end());
  ChatRequest whole = request;
  whole.messages = messages;
  VARVE_ASSIGN_OR_RETURN(ChatPrompt prompt, Render(whole));
  const size_t found = prompt.text.find(kAnswer);
  if (found == std::string::npos) {
    return Unimplemented("chat template: writes no earlier answers, so none can be gone on from");
  }
  const size_t cut = found + kAnswer.size();
  ChatPrompt behind{prompt.text.substr(cut), {}};
  for (const TextRange& range : prompt.messages) {
    if (range.end <= cut) continue;
    behind.messages.push_back({std::max(range.begin, cut) - cut, range.end - cut});
  }
  return behind;
}

bool ChatTemplate::IsBeginningOf(std::string_view text) const {
  const std::vector<ChatMessage> with_system = {{"system", "s"}, {"user", "u"}};
  const Result<ChatPrompt> plain = Render({.messages = std::span(with_system).subspan(1)});
  if (!plain.ok()) return false;
  size_t frame = plain->messages.empty() ? plain->text.size() : plain->messages[0].begin;
  // What a system message may stand in place of does not count.
  const Result<ChatPrompt> other = Render({.messages = with_system});
  if (other.ok()) {
    const size_t own = other->messages.empty() ? other->text.size() : other->messages[0].begin;
    const auto ends =
        std::mismatch(plain->text.begin(), plain->text.begin() + static_cast<ptrdiff_t>(frame),
                      other->text.begin(), other->text.begin() + static_cast<ptrdiff_t>(own));
    frame = static_cast<size_t>(ends.first - plain->text.begin());
  }
  std::string_view opening = std::string_view(plain->text).substr(0, frame);
  for (std::string_view* side : {&opening, &text}) {
    if (!tokens_.bos.empty() && side->starts_with(tokens_.bos))
      side->remove_prefix(tokens_.bos.size());
  }
  return text.starts_with(opening) && !opening.empty();
}

}  // namespace varve
