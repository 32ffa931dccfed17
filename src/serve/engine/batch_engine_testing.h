// A batch engine on the tiny model, for tests: made-up prompts in, tokens out.

#ifndef VARVE_SERVE_ENGINE_BATCH_ENGINE_TESTING_H_
#define VARVE_SERVE_ENGINE_BATCH_ENGINE_TESTING_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/open_model.h"
#include "serve/engine/batch_engine.h"
#include "tests/tiny_model.h"

namespace varve::serve {

struct TestAnswer {
  std::vector<int32_t> tokens;
  std::string text;
  std::optional<AnswerEnd> end;
};

// What has come through the channel so far.
inline TestAnswer Drain(AnswerChannel& channel) {
  TestAnswer answer;
  while (auto event = channel.Next(std::chrono::milliseconds(0))) {
    answer.text += event->text;
    if (event->token) answer.tokens.push_back(event->token->token);
    if (event->end) answer.end = event->end;
  }
  return answer;
}

class TestEngine {
 public:
  explicit TestEngine(const EngineOptions& options = {}) {
    auto file = GgufFile::FromMemory(bytes_, "tiny");
    EXPECT_TRUE(file.ok()) << file.status().message();
    auto model = LoadDecoderModel(*file);
    EXPECT_TRUE(model.ok()) << model.status().message();
    auto tokenizer = (*model)->MakeTokenizer();
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(*tokenizer);
    executor_ = MakeThreadPool(2);
    auto engine = BatchEngine::Create(*model, *tokenizer_, *executor_, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
  }

  BatchEngine& engine() { return *engine_; }

  std::shared_ptr<AnswerChannel> Ask(const CompletionRequest& request) {
    auto channel = std::make_shared<AnswerChannel>();
    engine_->Add(request, channel);
    return channel;
  }
  void RunAll() {
    while (engine_->Step()) {
    }
  }
  TestAnswer AskAlone(const CompletionRequest& request) {
    const auto channel = Ask(request);
    RunAll();
    return Drain(*channel);
  }

 private:
  std::vector<std::byte> bytes_ = TinyModel().Build();
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<BatchEngine> engine_;
};

// Greedy; goes on where the model would end.
inline CompletionRequest TestRequest(int64_t prompt_tokens, int64_t max_tokens, uint64_t seed = 1,
                                     int64_t shared_tokens = 0) {
  CompletionRequest request;
  SplitMix64 common(99);
  SplitMix64 own(seed);
  for (int64_t i = 0; i < prompt_tokens; ++i) {
    SplitMix64& random = i < shared_tokens ? common : own;
    request.prompt.push_back(static_cast<int32_t>(random.Next() % 256));
  }
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  return request;
}

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_BATCH_ENGINE_TESTING_H_
