#include <gtest/gtest.h>

#include <algorithm>

#include "serve/engine/batch_engine.h"
#include "serve/engine/batch_engine_testing.h"

namespace varve::serve {
namespace batch_admission_test {

TEST(BatchAdmission, EqualPrefixesThatComeTogetherAreComputedOnce) {
  TestEngine test;
  std::vector<std::shared_ptr<AnswerChannel>> channels;
  for (uint64_t i = 0; i < 6; ++i) channels.push_back(test.Ask(TestRequest(600, 3, i, 520)));
  test.RunAll();
  int64_t cached = 0;
  for (const auto& channel : channels) cached += Drain(*channel).end->cached_tokens;
  EXPECT_EQ(cached, 5 * 512);
}

TEST(BatchAdmission, HoldsItsBudgetWhileManyComeAndAnswersAll) {
  EngineOptions options;
  options.num_slots = 8;
  options.cache_bytes = uint64_t{3} << 20;
  TestEngine test(options);
  std::vector<std::shared_ptr<AnswerChannel>> channels;
  for (uint64_t i = 0; i < 60; ++i) {
    channels.push_back(test.Ask(TestRequest(100 + static_cast<int64_t>(i * 7 % 300), 30, i, 64)));
  }
  uint64_t most = 0;
  while (test.engine().Step()) {
    most = std::max(most, test.engine().Snapshot().bytes_held);
    ASSERT_LE(most, options.cache_bytes);
  }
  EXPECT_GT(most, options.cache_bytes / 2);
  for (const auto& channel : channels) {
    const TestAnswer answer = Drain(*channel);
    ASSERT_TRUE(answer.end.has_value());
    EXPECT_EQ(answer.end->reason, FinishReason::kLength) << answer.end->error.message();
    EXPECT_EQ(answer.tokens.size(), 30u);
  }
  EXPECT_GT(test.engine().Snapshot().prefix.pages_evicted, 0u);
}

TEST(BatchAdmission, RefusesWhatCanNeverFitByName) {
  EngineOptions options;
  options.cache_bytes = 100 << 10;
  TestEngine test(options);
  const TestAnswer answer = test.AskAlone(TestRequest(10, 900));
  ASSERT_EQ(answer.end->reason, FinishReason::kError);
  EXPECT_NE(answer.end->error.message().find("the limit is 102400"), std::string::npos)
      << answer.end->error.message();
}

TEST(BatchAdmission, RefusesARequestBeyondTheQueue) {
  EngineOptions options;
  options.num_slots = 1;
  options.max_waiting = 2;
  TestEngine test(options);
  std::vector<std::shared_ptr<AnswerChannel>> channels;
  for (uint64_t i = 0; i < 3; ++i) channels.push_back(test.Ask(TestRequest(5, 5, i)));
  EXPECT_EQ(Drain(*channels[2]).end->error.message(), "queue: 2 requests wait, the limit is 2");
  test.RunAll();
  EXPECT_EQ(Drain(*channels[1]).tokens.size(), 5u);
}

// Four conversations on memory for three and a half. A prompt that would push out what others have
// just used waits while turns that find their pages go ahead, and is answered in the end.
TEST(BatchAdmission, PromptsThatPushOutOthersWait) {
  const auto turn = [](uint64_t conversation, int64_t max_tokens = 2) {
    return TestRequest(640, max_tokens, conversation);
  };
  EngineOptions options;
  options.eviction = EvictionOrder::kLru;
  options.crowded_pause = 1e12;
  TestEngine measured(options);
  measured.AskAlone(turn(1));
  const uint64_t of_one = measured.engine().Snapshot().bytes_held;
  for (const bool has_room : {true, false}) {
    if (!has_room) options.cache_bytes = of_one * 7 / 2;
    TestEngine test(options);
    // The fourth pushes out the first: it is alone. After it comes the pause.
    for (const uint64_t conversation : {1, 2, 3, 4}) {
      for (int i = 0; i < 2; ++i) test.AskAlone(turn(conversation));
    }
    const auto running = test.Ask(turn(4, 60));
    test.engine().Step();
    const auto again = test.Ask(turn(1));
    const auto found = test.Ask(turn(3));
    TestAnswer answer;
    while (!answer.end) {
      test.engine().Step();
      answer = Drain(*found);
    }
    EXPECT_EQ(answer.end->cached_tokens, 9 * 64);
    EXPECT_EQ(test.engine().Snapshot().waiting, has_room ? 0u : 1u);
    test.RunAll();
    EXPECT_EQ(Drain(*running).tokens.size(), 60u);
    EXPECT_EQ(Drain(*again).tokens.size(), 2u);
  }
}

}  // namespace batch_admission_test
}  // namespace varve::serve
