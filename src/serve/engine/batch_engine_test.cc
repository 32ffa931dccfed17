#include "serve/engine/batch_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/embedded_model.h"
#include "serve/engine/batch_engine_testing.h"

namespace varve::serve {
namespace batch_engine_test {

TEST(BatchEngine, AnswersInABatchAreThoseOfTheRequestAlone) {
  std::vector<CompletionRequest> requests;
  for (uint64_t i = 0; i < 20; ++i) {
    requests.push_back(TestRequest(3 + static_cast<int64_t>(i) * 17, 20, i, /*shared_tokens=*/70));
  }
  EngineOptions options;
  options.num_slots = 12;  // more than one group, and some wait
  TestEngine together(options);
  std::vector<std::shared_ptr<AnswerChannel>> channels;
  for (const CompletionRequest& request : requests) channels.push_back(together.Ask(request));
  together.RunAll();
  for (size_t i = 0; i < requests.size(); ++i) {
    TestEngine alone;
    CompletionRequest request = requests[i];
    request.reuse_prefix = false;
    const TestAnswer expected = alone.AskAlone(request);
    const TestAnswer answer = Drain(*channels[i]);
    ASSERT_EQ(expected.tokens.size(), 20u);
    EXPECT_EQ(answer.tokens, expected.tokens) << "request " << i;
    EXPECT_EQ(answer.text, expected.text);
  }
}

// The weights of the embedded model are integers: there the products of few tokens and of many
// really differ. Log-probabilities show every bit of the logits.
TEST(BatchEngine, LogitsOfTheEmbeddedModelDoNotDependOnTheBatch) {
  const auto file = GgufFile::FromMemory(EmbeddedModel(), "embedded");
  ASSERT_TRUE(file.ok());
  const auto model = LoadDecoderModel(*file);
  ASSERT_TRUE(model.ok());
  const auto tokenizer = (*model)->MakeTokenizer();
  ASSERT_TRUE(tokenizer.ok());
  const auto executor = MakeThreadPool(2);
  const auto run = [&](size_t num_requests, bool reuse) {
    EngineOptions options;
    options.num_slots = 10;
    auto engine = BatchEngine::Create(*model, **tokenizer, *executor, options);
    EXPECT_TRUE(engine.ok());
    std::vector<std::shared_ptr<AnswerChannel>> channels;
    for (uint64_t i = 0; i < num_requests; ++i) {
      CompletionRequest request = TestRequest(150 - static_cast<int64_t>(i), 4, i, 128);
      request.num_logprobs = 2;
      request.reuse_prefix = reuse;
      channels.push_back(std::make_shared<AnswerChannel>());
      (*engine)->Add(request, channels.back());
    }
    while ((*engine)->Step()) {
    }
    std::vector<float> logprobs;
    while (auto event = channels[0]->Next(std::chrono::milliseconds(0))) {
      if (event->token) logprobs.push_back(event->token->logprob);
    }
    return logprobs;
  };
  const std::vector<float> alone = run(1, false);
  ASSERT_EQ(alone.size(), 4u);
  EXPECT_EQ(run(10, false), alone);
  EXPECT_EQ(run(10, true), alone);
}

TEST(BatchEngine, ReusesTheLongestPrefixAndReportsItExactly) {
  TestEngine test;
  EXPECT_EQ(test.AskAlone(TestRequest(200, 5, 1, 150)).end->cached_tokens, 0);
  // The same again: the last token is always computed.
  EXPECT_EQ(test.AskAlone(TestRequest(200, 5, 1, 150)).end->cached_tokens, 192);
  // 150 tokens in common are two whole pages.
  EXPECT_EQ(test.AskAlone(TestRequest(200, 5, 2, 150)).end->cached_tokens, 128);
  EXPECT_EQ(test.AskAlone(TestRequest(128, 5, 2, 128)).end->cached_tokens, 64);
  CompletionRequest fresh = TestRequest(200, 5, 1, 150);
  fresh.reuse_prefix = false;
  EXPECT_EQ(test.AskAlone(fresh).end->cached_tokens, 0);
}

TEST(BatchEngine, AConversationContinuesOnTheTokensItGenerated) {
  for (const bool reuse_generated : {true, false}) {
    EngineOptions options;
    options.reuse_generated = reuse_generated;
    TestEngine test(options);
    CompletionRequest request = TestRequest(60, 100);
    const TestAnswer first = test.AskAlone(request);
    request.prompt.insert(request.prompt.end(), first.tokens.begin(), first.tokens.end());
    request.prompt.push_back(7);
    // The last of 160 tokens was drawn and not fed.
    EXPECT_EQ(test.AskAlone(request).end->cached_tokens, reuse_generated ? 159 : 0);
  }
}

TEST(BatchEngine, ATurnThatTakesUpAnAnswerGoesOnInTheMiddleOfAPage) {
  TestEngine test;
  const CompletionRequest first = TestRequest(60, 100);
  const TestAnswer answer = test.AskAlone(first);
  const auto next = [&](size_t num_answered) {
    CompletionRequest request = first;
    request.prompt.insert(request.prompt.end(), answer.tokens.begin(),
                          answer.tokens.begin() + static_cast<ptrdiff_t>(num_answered));
    request.prompt.insert(request.prompt.end(), {256, 7, 8});
    return request;
  };
  CompletionRequest foreign = next(100);
  foreign.tenant = "other";
  EXPECT_EQ(test.AskAlone(foreign).end->cached_tokens, 0);
  // Half of the answer, twice: what is cut off is there for others.
  EXPECT_EQ(test.AskAlone(next(50)).end->cached_tokens, 110);
  EXPECT_EQ(test.AskAlone(next(100)).end->cached_tokens, 159);
  // Where nothing that was generated is reused, pages alone are: prompts are cut as ever.
  EXPECT_EQ(test.AskAlone(next(0)).end->cached_tokens, 0);
  EXPECT_EQ(test.AskAlone(first).end->cached_tokens, 0);
}

// A sealed page that is cut cannot grow, and all behind it would stand at odd places: no key would
// be theirs.
TEST(BatchEngine, ATurnThatLeavesAnAnswerInASealedPageBeginsAtABorder) {
  EngineOptions options;
  options.plan = *ParsePlan("q8_0,idle=q4_0,exact=0");
  options.idle_s = 1e-3;
  TestEngine test(options);
  const CompletionRequest first = TestRequest(60, 100);
  const TestAnswer answer = test.AskAlone(first);
  CompletionRequest other = first;
  other.prompt.insert(other.prompt.end(), answer.tokens.begin(), answer.tokens.begin() + 50);
  other.prompt.insert(other.prompt.end(), 90, 7);
  EXPECT_EQ(test.AskAlone(other).end->cached_tokens, 64);
  // Every page of both rests: one in common, one and three of their own.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  test.RunAll();
  EXPECT_EQ(test.engine().Snapshot().prefix.pages_rested, 5u);
}

TEST(BatchEngine, TenantsNeverShareAPage) {
  TestEngine test;
  CompletionRequest request = TestRequest(300, 3);
  request.tenant = "a";
  EXPECT_EQ(test.AskAlone(request).end->cached_tokens, 0);
  request.tenant = "b";
  EXPECT_EQ(test.AskAlone(request).end->cached_tokens, 0);
  request.tenant = "a";
  EXPECT_EQ(test.AskAlone(request).end->cached_tokens, 256);
}

TEST(BatchEngine, AClientThatGoesFreesItsPagesAtOnce) {
  EngineOptions options;
  options.reuse_prefixes = false;
  TestEngine test(options);
  const auto channel = test.Ask(TestRequest(300, 500));
  const auto other = test.Ask(TestRequest(10, 500));
  for (int i = 0; i < 10; ++i) test.engine().Step();
  ASSERT_GT(test.engine().cache().Stats().pages, 0u);
  channel->Cancel();
  other->Cancel();
  test.RunAll();
  EXPECT_EQ(test.engine().cache().Stats().pages, 0u);
  EXPECT_EQ(Drain(*channel).end->reason, FinishReason::kCancelled);
  EXPECT_EQ(test.engine().Snapshot().counters.cancelled, 2u);
}

TEST(BatchEngine, PlansThatDropPagesShareNoPrefixesAndAnswer) {
  EngineOptions options;
  const Result<Plan> plan = ParsePlan("window=128");
  ASSERT_TRUE(plan.ok());
  options.plan = *plan;
  TestEngine test(options);
  EXPECT_EQ(test.AskAlone(TestRequest(300, 5)).tokens.size(), 5u);
  EXPECT_EQ(test.AskAlone(TestRequest(300, 5)).end->cached_tokens, 0);
  EXPECT_NE(test.engine().Snapshot().prefix_note.find("window="), std::string::npos);
}

TEST(BatchEngine, EndsAtAStopTextAndShowsNothingOfIt) {
  TestEngine test;
  const TestAnswer whole = test.AskAlone(TestRequest(20, 40));
  ASSERT_GT(whole.text.size(), 12u);
  CompletionRequest request = TestRequest(20, 40);
  const size_t at = whole.text.size() / 2;
  request.stops = {whole.text.substr(at, 3)};
  const TestAnswer cut = test.AskAlone(request);
  EXPECT_EQ(cut.end->reason, FinishReason::kStopText);
  EXPECT_EQ(cut.end->stop_text, request.stops[0]);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(request.stops[0])));
}

TEST(BatchEngine, EndsThatAreIgnoredAreNeverDrawn) {
  TestEngine test;
  CompletionRequest request = TestRequest(20, 10);
  request.edits.bias = {{257, 100.0f}};
  const TestAnswer answer = test.AskAlone(request);
  EXPECT_EQ(answer.tokens.size(), 10u);
  EXPECT_EQ(std::count(answer.tokens.begin(), answer.tokens.end(), 257), 0);
  request.ignore_end = false;
  EXPECT_EQ(test.AskAlone(request).end->reason, FinishReason::kEnd);
}

TEST(BatchEngine, BiasAndPenaltiesChangeWhatIsDrawn) {
  TestEngine test;
  CompletionRequest request = TestRequest(20, 10);
  request.edits.bias = {{65, 100.0f}};
  EXPECT_EQ(test.AskAlone(request).text, "AAAAAAAAAA");
  request.edits.bias = {{65, 100.0f}, {66, 99.5f}};
  request.edits.frequency_penalty = 2;
  const std::string text = test.AskAlone(request).text;
  EXPECT_NE(text.find('B'), std::string::npos) << text;
}

}  // namespace batch_engine_test
}  // namespace varve::serve
