// Chat templates from strangers: whatever a file has as one, parsing and running it ends, with a
// text or with a reason, and what was said stays marked. The first byte chooses the conversation.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/jinja_template.h"
#include "runtime/tokenizer/chat_template.h"

namespace {

using varve::ChatMessage;

void Require(bool condition) {
  if (!condition) std::abort();
}

// "\x01" stands in what people said and nowhere else.
std::vector<ChatMessage> Conversation(int kind) {
  std::vector<ChatMessage> messages;
  if ((kind & 1) != 0) messages.push_back({"system", "\x01 Rule.\n"});
  messages.push_back({"user", " \x01q\x01 "});
  if ((kind & 2) != 0) {
    messages.push_back({"assistant", ""});
    messages.back().tool_calls = {{"\x01id",
                                   "\x01"
                                   "f",
                                   R"({"a": [1, 2.5, null], "b": "x"})"}};
    messages.push_back({"tool",
                        "\x01"
                        "7"});
    messages.back().tool_call_id = "\x01id";
  }
  if ((kind & 4) != 0) {
    messages.push_back({"assistant",
                        "\x01"
                        "a"});
    messages.push_back({"user", "\x01r"});
  }
  return messages;
}

// Less than the program's own limits, so that every input is quick.
varve::jinja::EvaluationLimits SmallLimits() {
  varve::jinja::EvaluationLimits limits;
  limits.steps = 50'000;
  limits.text_bytes = 1 << 20;
  limits.value_weight = 1 << 14;
  return limits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view source(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto made = varve::ChatTemplate::Parse(source, {"<s>", "</s>"});
  if (!made.ok()) {
    Require(made.status().message().starts_with("line ") || source.size() > (1 << 20));
    Require(made.status().code() != varve::StatusCode::kInternal);
    return 0;
  }
  const std::vector<ChatMessage> messages = Conversation(data[0]);
  varve::ChatRequest request{.messages = messages, .now = 1767268800, .limits = SmallLimits()};
  if ((data[0] & 8) != 0) request.tools = R"([{"type": "function", "function": {"name": "f"}}])";
  const auto prompt = made->Render(request);
  if (!prompt.ok()) {
    Require(!prompt.status().message().empty());
    Require(prompt.status().code() != varve::StatusCode::kInternal);
    return 0;
  }
  // Ranges ascend and lie inside; nothing that was said is outside of them.
  size_t at = 0;
  const bool writes_mark = source.find('\x01') != source.npos || source.find('\\') != source.npos;
  for (const varve::TextRange& range : prompt->messages) {
    Require(range.begin >= at && range.begin < range.end && range.end <= prompt->text.size());
    const std::string_view between = std::string_view(prompt->text).substr(at, range.begin - at);
    Require(writes_mark || between.find('\x01') == between.npos);
    at = range.end;
  }
  Require(writes_mark || prompt->text.find('\x01', at) == std::string::npos);
  return 0;
}
