#include "serve/api/completion_fields.h"

#include <gtest/gtest.h>

#include "serve/api/field_reader.h"
#include "tests/byte_tokenizer.h"

namespace varve::serve {
namespace completion_fields_test {

using nlohmann::json;

class CompletionFieldsTest : public testing::Test {
 protected:
  CompletionFieldsTest() {
    model_.id = "test";
    model_.tokenizer = &tokenizer_;
    model_.context = 100;
    model_.vocab_size = tokenizer_.vocab_size();
  }
  ApiError Text(const json& body) {
    call_ = {};
    return ReadCompletion(body, model_, "", 7, &call_);
  }
  ApiError Chat(const json& body) {
    call_ = {};
    return ReadChat(body, model_, "", 7, &call_);
  }

  ByteTokenizer tokenizer_;
  ServedModel model_;
  CompletionCall call_;
};

TEST_F(CompletionFieldsTest, ReadsFieldsOfBothApis) {
  const json body = {{"prompt", "ab"},
                     {"max_tokens", 5},
                     {"temperature", 0.5},
                     {"top_p", 0.25},
                     {"top_k", 3},
                     {"min_p", 0.125},
                     {"seed", 11},
                     {"stop", {"x", "y"}},
                     {"ignore_eos", true},
                     {"cache_prompt", false},
                     {"logprobs", 4},
                     {"stream", true},
                     {"logit_bias", {{"65", -100}}},
                     {"presence_penalty", 1.5},
                     {"stream_options", {{"include_usage", true}}}};
  ASSERT_TRUE(Text(body).ok());
  ASSERT_EQ(call_.requests.size(), 1u);
  const CompletionRequest& request = call_.requests[0];
  EXPECT_EQ(request.prompt, (std::vector<int32_t>{256, 'a', 'b'}));
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.sampler.temperature, 0.5f);
  EXPECT_EQ(request.sampler.top_p, 0.25f);
  EXPECT_EQ(request.sampler.top_k, 3);
  EXPECT_EQ(request.sampler.min_p, 0.125f);
  EXPECT_EQ(request.sampler.seed, 11u);
  EXPECT_EQ(request.stops, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(request.ignore_end);
  EXPECT_FALSE(request.reuse_prefix);
  EXPECT_EQ(request.num_logprobs, 4);
  EXPECT_EQ(request.edits.bias.at(65), -100.0f);
  EXPECT_EQ(request.edits.presence_penalty, 1.5f);
  EXPECT_TRUE(call_.stream);
  EXPECT_TRUE(call_.include_usage);
}

TEST_F(CompletionFieldsTest, AbsentFieldsAndNullAreTheDefaults) {
  ASSERT_TRUE(Text({{"prompt", "a"}, {"max_tokens", nullptr}, {"stop", nullptr}}).ok());
  EXPECT_EQ(call_.requests[0].max_tokens, -1);
  EXPECT_EQ(call_.requests[0].sampler.seed, 7u);
  EXPECT_TRUE(call_.requests[0].reuse_prefix);
  EXPECT_EQ(call_.requests[0].num_logprobs, -1);
  EXPECT_FALSE(call_.stream);
}

TEST_F(CompletionFieldsTest, PromptsAreTextsIdsOrLists) {
  ASSERT_TRUE(Text({{"prompt", {1, 2, 3}}}).ok());
  EXPECT_EQ(call_.requests[0].prompt, (std::vector<int32_t>{1, 2, 3}));
  ASSERT_TRUE(Text({{"prompt", {1, "b"}}}).ok());
  EXPECT_EQ(call_.requests[0].prompt, (std::vector<int32_t>{1, 'b'}));
  ASSERT_TRUE(Text({{"prompt", {"a", "b"}}, {"n", 2}, {"seed", 5}}).ok());
  ASSERT_EQ(call_.requests.size(), 4u);
  EXPECT_EQ(call_.requests[2].prompt.back(), 'b');
  EXPECT_EQ(call_.requests[3].choice, 3);
  EXPECT_EQ(call_.requests[3].sampler.seed, 6u);
}

TEST_F(CompletionFieldsTest, ErrorsNameFieldValueAndLimit) {
  const auto message = [&](const json& body) { return Text(body).message; };
  EXPECT_EQ(message(json::object()), "prompt: missing");
  EXPECT_EQ(message({{"prompt", "a"}, {"max_tokens", 101}}), "max_tokens: 101 is not in -1 … 100");
  EXPECT_EQ(message({{"prompt", "a"}, {"max_tokens", "many"}}),
            "max_tokens: \"many\" is not a whole number");
  EXPECT_EQ(message({{"prompt", "a"}, {"temperature", -1}}), "temperature: -1 is not in 0 … 100");
  EXPECT_EQ(message({{"prompt", "a"}, {"stream", "yes"}}), "stream: \"yes\" is not true or false");
  EXPECT_EQ(message({{"prompt", "a"}, {"logit_bias", {{"x", 1}}}}),
            "logit_bias: \"x\" is no token id");
  EXPECT_EQ(message({{"prompt", {1, 258}}}),
            "prompt: element 1 is neither a text nor a token id of 0 … 257");
  EXPECT_EQ(message({{"prompt", "a"}, {"n", 17}}), "n: 17 is not in 1 … 16");
  EXPECT_EQ(message({{"prompt", json::array()}}), "prompt: an empty list");
  const ApiError error = Text({{"prompt", std::string(100, 'a')}});
  EXPECT_EQ(error.type, "exceed_context_size_error");
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.message,
            "the prompt of 101 tokens exceeds the available context size: 100 with its answer");
}

TEST_F(CompletionFieldsTest, MessagesAreTextsOrParts) {
  const json parts =
      json::array({{{"type", "text"}, {"text", "hel"}}, {{"type", "text"}, {"text", "lo"}}});
  ASSERT_TRUE(Chat({{"messages", {{{"role", "user"}, {"content", parts}}}}}).ok());
  EXPECT_EQ(call_.requests[0].prompt, (std::vector<int32_t>{256, 'h', 'e', 'l', 'l', 'o'}));
  EXPECT_TRUE(call_.requests[0].is_turn);
  EXPECT_EQ(Chat({{"messages", json::array()}}).message, "messages: an empty list");
  EXPECT_EQ(Chat({{"messages", {{{"content", "x"}}}}}).param, "messages[0].role");
  EXPECT_EQ(Chat({{"messages", {{{"role", "user"}, {"content", 3}}}}}).param,
            "messages[0].content");
  const ChatTemplate chatml = *ChatTemplate::BuiltIn("chatml", {});
  model_.chat = &chatml;
  EXPECT_NE(Chat({{"messages", {{{"role", "robot"}, {"content", "x"}}}}}).message.find("robot"),
            std::string::npos);
}

TEST_F(CompletionFieldsTest, ToolsAndTheirCallsReachTheTemplate) {
  const ChatTemplate chat = *ChatTemplate::Parse(
      "{{ tools[0].function.name }}:{% for m in messages %}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name }}={{ c.function.arguments.x }};{% endfor %}{{ m.content or '' }}{% "
      "endfor %}",
      {});
  model_.chat = &chat;
  const json tools = json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  const json call = {{"id", "1"}, {"function", {{"name", "f"}, {"arguments", R"({"x": 7})"}}}};
  const json body = {{"tools", tools},
                     {"messages",
                      {{{"role", "assistant"}, {"tool_calls", json::array({call})}},
                       {{"role", "tool"}, {"content", "9"}}}}};
  const ApiError error = Chat(body);
  ASSERT_TRUE(error.ok()) << error.message;
  EXPECT_EQ(tokenizer_.Decode(call_.requests[0].prompt, false), "f:f=7;9");
  EXPECT_EQ(Chat({{"messages", {{{"role", "assistant"}, {"tool_calls", {{{"id", "1"}}}}}}}}).param,
            "messages[0].tool_calls");
}

TEST_F(CompletionFieldsTest, BiasesOfLlamaServerAreListsOfPairs) {
  ASSERT_TRUE(Text({{"prompt", "a"}, {"logit_bias", {{65, 1.5}, {"BC", false}}}}).ok());
  const std::map<int32_t, float> wanted = {{'A', 1.5f}, {'B', -100.0f}, {'C', -100.0f}};
  EXPECT_EQ(call_.requests[0].edits.bias, wanted);
  for (const char* wrong : {"[[65]]", "[[65, 101]]", "[[-1, 1]]", "[[65, true]]", "[7]"}) {
    const json body = {{"prompt", "a"}, {"logit_bias", json::parse(wrong)}};
    EXPECT_EQ(Text(body).param, "logit_bias") << wrong;
  }
}

TEST_F(CompletionFieldsTest, WhatWouldShapeTheAnswerIsRefusedAndNotIgnored) {
  EXPECT_TRUE(Text({{"prompt", "a"}, {"response_format", {{"type", "text"}}}}).ok());
  EXPECT_EQ(Text({{"prompt", "a"}, {"response_format", {{"type", "json_object"}}}}).param,
            "response_format");
  EXPECT_EQ(Text({{"prompt", "a"}, {"grammar", "root ::= \"a\""}}).param, "grammar");
  EXPECT_EQ(Text({{"prompt", "a"}, {"json_schema", {{"const", 1}}}}).param, "json_schema");
}

TEST_F(CompletionFieldsTest, APromptMayBeAnObjectWithoutImages) {
  ASSERT_TRUE(Text({{"prompt", {{"prompt_string", "ab"}}}}).ok());
  EXPECT_EQ(call_.requests[0].prompt, (std::vector<int32_t>{256, 'a', 'b'}));
  EXPECT_EQ(Text({{"prompt", {{"prompt_string", "a"}, {"multimodal_data", "x"}}}}).param, "prompt");
  EXPECT_EQ(Text({{"prompt", {{"text", "a"}}}}).param, "prompt");
}

TEST_F(CompletionFieldsTest, ALastMessageOfTheAssistantIsContinuedIfAsked) {
  const ChatTemplate chatml = *ChatTemplate::BuiltIn("chatml", {});
  model_.chat = &chatml;
  const json said =
      json::parse(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "So"}])");
  json body = {{"messages", said}, {"continue_final_message", true}};
  std::vector<int32_t> tokens;
  std::string text;
  ASSERT_TRUE(ChatTokens(body, model_, &tokens, &text).ok());
  EXPECT_TRUE(text.ends_with("<|im_start|>assistant\nSo")) << text;
  body["add_generation_prompt"] = true;
  EXPECT_EQ(ChatTokens(body, model_, &tokens, &text).param, "continue_final_message");
  body = {{"messages", json::array({said[0]})}, {"add_generation_prompt", false}};
  ASSERT_TRUE(ChatTokens(body, model_, &tokens, &text).ok());
  EXPECT_EQ(text.find("assistant"), std::string::npos) << text;
  body["continue_final_message"] = true;
  EXPECT_EQ(ChatTokens(body, model_, &tokens, &text).param, "continue_final_message");
}

TEST_F(CompletionFieldsTest, SaltAndKeyMakeDifferentTenants) {
  CompletionCall with_key;
  ASSERT_TRUE(ReadCompletion({{"prompt", "a"}}, model_, "key", 0, &with_key).ok());
  ASSERT_TRUE(Text({{"prompt", "a"}, {"cache_salt", "key"}}).ok());
  EXPECT_NE(call_.requests[0].tenant, with_key.requests[0].tenant);
  ASSERT_TRUE(Text({{"prompt", "a"}}).ok());
  EXPECT_NE(call_.requests[0].tenant, with_key.requests[0].tenant);
}

TEST_F(CompletionFieldsTest, BodiesThatAreNoObjectsAreRefused) {
  json object;
  EXPECT_EQ(ParseBody("[1]", &object).message, "body: [1] is no JSON object");
  EXPECT_EQ(ParseBody("{\"a\":", &object).http_status, 400);
  EXPECT_EQ(ParseBody("\xff\xfe", &object).http_status, 400);
  EXPECT_TRUE(ParseBody("{}", &object).ok());
}

}  // namespace completion_fields_test
}  // namespace varve::serve
