// What the golden files do not have; the formats themselves are in tokenizer_golden_test.cc.

#include "runtime/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gguf_testing.h"

namespace varve {
namespace chat_template_test {

Result<std::string_view> Detect(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.Build();
  const auto file = GgufFile::FromMemory(bytes, "test");
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return DetectChatFormat(**file);
}

Result<std::string_view> Detect(std::string_view source) {
  return Detect(GgufBuilder().String("tokenizer.chat_template", source));
}

TEST(ChatTemplate, EveryNameIsAFormatThatEndsWhereTheAssistantBegins) {
  const std::vector<ChatMessage> messages = {{"system", "Rule."}, {"user", "Question?"}};
  for (const std::string_view name : ChatFormatNames()) {
    const Result<ChatPrompt> prompt = FormatChat(name, messages);
    ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
    EXPECT_NE(prompt->text.find("Rule."), std::string::npos) << name;
    EXPECT_LT(prompt->text.find("Rule."), prompt->text.find("Question?")) << name;
  }
}

TEST(ChatTemplate, TellsTheMessagesFromTheFrame) {
  const std::vector<ChatMessage> talk = {
      {"system", "Rule."}, {"user", " q "}, {"assistant", "a"}, {"user", "r"}};
  for (const std::string_view name : ChatFormatNames()) {
    const ChatPrompt prompt = *FormatChat(name, talk);
    std::string said;
    size_t end = 0;
    for (const TextRange& range : prompt.messages) {
      EXPECT_GE(range.begin, end) << name;
      end = range.end;
      said += prompt.text.substr(range.begin, range.end - range.begin);
    }
    EXPECT_LE(end, prompt.text.size());
    // In the order in which it was said, and nothing that could be a special token of the frame.
    for (const char* text : {"Rule.", "q", "a", "r"}) EXPECT_NE(said.find(text), std::string::npos);
    for (const char* text : {"<|", "|>", "[INST]", "</s>", "_turn>"}) {
      EXPECT_EQ(said.find(text), std::string::npos) << name;
    }
  }
}

TEST(ChatTemplate, MistralsDifferInBlanks) {
  const std::vector<ChatMessage> talk = {{"user", "q"}, {"assistant", "a"}, {"user", "r"}};
  EXPECT_EQ(FormatChat("mistral", talk)->text, "[INST] q [/INST] a</s>[INST] r [/INST]");
  EXPECT_EQ(FormatChat("mistral-v3", talk)->text, "[INST] q[/INST] a</s>[INST] r[/INST]");
  EXPECT_EQ(FormatChat("mistral-tekken", talk)->text, "[INST]q[/INST]a</s>[INST]r[/INST]");
  EXPECT_EQ(*Detect("{{ '[INST] ' + m + ' [/INST]' }}"), "mistral");
  EXPECT_EQ(*Detect("{{ '[INST] ' + m + '[/INST]' }}"), "mistral-v3");
  EXPECT_EQ(*Detect("{{ '[INST]' + m + '[/INST]' }}"), "mistral-tekken");
}

TEST(ChatTemplate, SaysWhenAFileHasNoneOrOneThatIsNotOurs) {
  EXPECT_EQ(Detect(GgufBuilder()).status().code(), StatusCode::kNotFound);
  for (const char* source :
       {"", "{{ messages }}", "<|im_start|>user<|im_sep|>", "[SYSTEM_PROMPT][INST]"}) {
    const Result<std::string_view> format = Detect(source);
    ASSERT_FALSE(format.ok()) << source;
    EXPECT_EQ(format.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(format.status().message().find("chatml"), std::string::npos);
  }
  const Result<std::string_view> number = Detect(GgufBuilder().Int("tokenizer.chat_template", 3));
  EXPECT_EQ(number.status().code(), StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, NamesWhatIsWrongWithTheMessages) {
  const std::pair<std::vector<ChatMessage>, std::string> wrong[] = {
      {{}, "0 messages"},
      {{{"tool", "x"}}, "message 0 has role \"tool\""},
      {{{"user", "x"}, {"system", "y"}, {"user", "z"}}, "message 1"},
      {{{"user", "x"}, {"assistant", "y"}}, "last message"},
  };
  for (const auto& [messages, named] : wrong) {
    const Result<ChatPrompt> prompt = FormatChat("chatml", messages);
    ASSERT_FALSE(prompt.ok()) << named;
    EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(prompt.status().message().find(named), std::string::npos)
        << prompt.status().message();
  }
  const std::vector<ChatMessage> question = {{"user", "x"}};
  const Result<ChatPrompt> prompt = FormatChat("vicuna", question);
  EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(prompt.status().message().find("vicuna"), std::string::npos);
}

}  // namespace chat_template_test
}  // namespace varve
