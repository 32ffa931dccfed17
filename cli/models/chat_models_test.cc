// The chat templates in files of models that we did not make, against Jinja2: default system
// messages, tools and their answers. What Jinja2 writes is known by its hash
// (tools/make_jinja_golden.py --model); without a model its test is skipped.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/model_argument.h"
#include "cli/models/model_testing.h"
#include "runtime/tokenizer/chat_template.h"
#include "tests/test_data.h"

namespace varve::cli {
namespace chat_models_test {

using Json = nlohmann::ordered_json;

std::string HashOf(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

std::vector<ChatMessage> MessagesOf(const Json& json) {
  std::vector<ChatMessage> messages;
  for (const Json& one : json) {
    const Json content = one.value("content", Json());
    ChatMessage message{one["role"], content.is_string() ? content.get<std::string>() : ""};
    message.tool_call_id = one.value("tool_call_id", "");
    message.name = one.value("name", "");
    for (const Json& call : one.value("tool_calls", Json::array())) {
      const Json& function = call["function"];
      message.tool_calls.push_back(
          {call.value("id", ""), function["name"], function["arguments"].dump()});
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

void ExpectWhatJinja2Writes(const std::string& path, const std::string& golden_name) {
  const Result<std::shared_ptr<const GgufFile>> file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(**file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto made = ChatTemplate::FromFile(**file, ChatTemplate::TokensOf(**tokenizer));
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Json cases = Json::parse(std::ifstream(TestDataPath("jinja/" + golden_name)));
  ASSERT_GE(cases.size(), 3u);
  for (const Json& golden : cases) {
    const std::vector<ChatMessage> messages = MessagesOf(golden["messages"]);
    const std::string tools = golden["tools"].is_null() ? "" : golden["tools"].dump();
    const Result<ChatPrompt> prompt = made->Render({.messages = messages, .tools = tools});
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    EXPECT_EQ(prompt->text.size(), golden["bytes"].get<size_t>()) << prompt->text;
    EXPECT_EQ(HashOf(prompt->text), golden["fnv1a"].get<std::string>()) << prompt->text;
  }
}

TEST(ChatOnModels, SmolLm2WritesItsDefaultSystemMessage) {
  std::string path;
  VARVE_FIND_MODEL_OR_SKIP("smollm2", path);
  ExpectWhatJinja2Writes(path, "smollm2.json");
}

TEST(ChatOnModels, QwenWritesToolsCallsAndAnswers) {
  std::string path;
  VARVE_FIND_MODEL_OR_SKIP("qwen2.5-coder-1.5b-instruct-q4_k_m", path);
  ExpectWhatJinja2Writes(path, "qwen2.5-coder-1.5b.json");
}

}  // namespace chat_models_test
}  // namespace varve::cli
