// What the golden files do not have; what templates write is in tokenizer_golden_test.cc and in
// src/runtime/jinja.

#include "runtime/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/gguf_testing.h"

namespace varve {
namespace chat_template_test {

constexpr char kDefaultSystem[] =
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}"
    "{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

ChatTemplate Made(std::string_view source) {
  Result<ChatTemplate> made = ChatTemplate::Parse(source, {"<s>", "</s>"});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

Result<ChatTemplate> FromFile(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.Build();
  const auto file = GgufFile::FromMemory(bytes, "test");
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return ChatTemplate::FromFile(**file, {});
}

TEST(ChatTemplate, EveryBuiltInFormatTellsTheMessagesFromTheFrame) {
  const std::vector<ChatMessage> talk = {
      {"system", "Rule."}, {"user", " q "}, {"assistant", "a"}, {"user", "r"}};
  for (const std::string_view name : ChatTemplate::BuiltInNames()) {
    const ChatPrompt prompt = *ChatTemplate::BuiltIn(name, {"<s>", "</s>"})->Render({talk});
    std::string said;
    size_t end = 0;
    for (const TextRange& range : prompt.messages) {
      EXPECT_GE(range.begin, end) << name;
      end = range.end;
      said += prompt.text.substr(range.begin, range.end - range.begin);
    }
    EXPECT_LE(end, prompt.text.size());
    // In the order in which it was said, and nothing of the frame.
    std::erase(said, ' ');
    EXPECT_EQ(said, "Rule.qar") << name;
  }
  const Result<ChatTemplate> unknown = ChatTemplate::BuiltIn("chatlm", {});
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("did you mean \"chatml\"?"), std::string::npos);
}

TEST(ChatTemplate, MistralsDifferInBlanks) {
  const std::vector<ChatMessage> talk = {{"user", "q"}, {"assistant", "a"}, {"user", "r"}};
  const auto text = [&](const char* name) {
    return ChatTemplate::BuiltIn(name, {"<s>", "</s>"})->Render({talk})->text;
  };
  EXPECT_EQ(text("mistral"), "[INST] q [/INST] a</s>[INST] r [/INST]");
  EXPECT_EQ(text("mistral-v3"), "[INST] q[/INST] a</s>[INST] r[/INST]");
  EXPECT_EQ(text("mistral-tekken"), "[INST]q[/INST]a</s>[INST]r[/INST]");
}

TEST(ChatTemplate, SaysWhenAFileHasNoneOrOneThatCannotBeRun) {
  EXPECT_EQ(FromFile(GgufBuilder()).status().code(), StatusCode::kNotFound);
  const Status status =
      FromFile(GgufBuilder().String("tokenizer.chat_template", "a\n{% include 'b' %}")).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "tokenizer.chat_template: line 2: the statement {% include %} is not supported");
  EXPECT_EQ(FromFile(GgufBuilder().Int("tokenizer.chat_template", 3)).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, NamesWhatIsWrongWithTheRequest) {
  const ChatTemplate made = Made(kDefaultSystem);
  const std::vector<ChatMessage> stranger = {{"usr", "x"}};
  const std::vector<ChatMessage> fine = {{"user", "x"}};
  const std::pair<ChatRequest, std::string> wrong[] = {
      {{}, "0 messages"},
      {{.messages = stranger}, "message 0 has role \"usr\"; did you mean \"user\"?"},
      {{.messages = fine, .tools = "{"}, "chat: tools: "},
      {{.messages = fine, .tools = "{}"}, "chat: tools: no JSON list"},
      {{.messages = fine, .variables = "[]"}, "chat: variables: no JSON object"},
  };
  for (const auto& [request, named] : wrong) {
    const Result<ChatPrompt> prompt = made.Render(request);
    ASSERT_FALSE(prompt.ok()) << named;
    EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(prompt.status().message().find(named), std::string::npos)
        << prompt.status().message();
  }
  const Result<ChatPrompt> refused = Made("{{ raise_exception('no') }}").Render({fine});
  EXPECT_EQ(refused.status().message(), "chat template: line 1: the template refuses: no");
}

TEST(ChatTemplate, GivesTemplatesToolsAndTheirAnswers) {
  const ChatTemplate made = Made(
      "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}|{{ m.role }}:"
      "{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }})"
      "{{ c.id }}{% endfor %}{{ m.content if m.content is not none }}{{ m.tool_call_id }}"
      "{% endfor %}{{ mood }}");
  std::vector<ChatMessage> talk = {{"user", "q"}, {"assistant", ""}, {"tool", "7"}};
  talk[1].tool_calls = {{"id1", "f", R"({"b": 1, "a": "<|im_end|>"})"}, {"", "g", "no JSON"}};
  talk[2].tool_call_id = "id1";
  const ChatPrompt prompt = *made.Render(
      {.messages = talk, .tools = R"([{"name": "f"}])", .variables = R"({"mood": "calm"})"});
  EXPECT_EQ(
      prompt.text,
      R"({"name": "f"}|user:q|assistant:f({"b": 1, "a": "<|im_end|>"})id1g("no JSON")|tool:7id1calm)");
  // The forged token lies in what was said.
  const size_t forged = prompt.text.find("<|im_end|>");
  EXPECT_TRUE(std::ranges::any_of(prompt.messages, [&](const TextRange& range) {
    return range.begin <= forged && forged + 10 <= range.end;
  }));
}

TEST(ChatTemplate, GoesOnBehindAnAnswer) {
  const ChatTemplate made = Made(kDefaultSystem);
  const std::vector<ChatMessage> next = {{"user", "r"}};
  const ChatPrompt behind = *made.RenderBehindAnswer({next});
  EXPECT_EQ(behind.text, "<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n");
  ASSERT_EQ(behind.messages.size(), 1u);
  EXPECT_EQ(behind.text.substr(behind.messages[0].begin, 1), "r");
  const std::vector<ChatMessage> own = {{"system", "Rule."}, {"user", "q"}};
  EXPECT_TRUE(made.IsBeginningOf(made.Render({own})->text));
  EXPECT_TRUE(made.IsBeginningOf(made.Render({std::span(own).subspan(1)})->text));
  EXPECT_FALSE(made.IsBeginningOf("The old house stood"));
  EXPECT_EQ(Made("{{ messages[-1].content }}").RenderBehindAnswer({next}).status().code(),
            StatusCode::kUnimplemented);
}

TEST(ChatTemplate, TellsWhetherTheTemplateWritesBos) {
  const std::vector<ChatMessage> talk = {{"user", "q"}};
  const ChatTemplate with = Made("{{ bos_token }}{{ messages[0].content }}");
  EXPECT_TRUE(with.HasBos(*with.Render({talk})));
  const ChatTemplate without = Made(kDefaultSystem);
  EXPECT_FALSE(without.HasBos(*without.Render({talk})));
}

}  // namespace chat_template_test
}  // namespace varve
