// Conversations that nobody continues: they are put to rest, leave memory for a tier, and come
// back.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/engine/batch_engine_testing.h"
#include "serve/engine/engine.h"
#include "tests/gguf_testing.h"

namespace varve::serve {
namespace batch_engine_idle_test {

constexpr const char* kPlan = "t4,idle_k=t3,idle_v=t2,exact=0";

EngineOptions WithPlan(const char* plan) {
  EngineOptions options;
  options.plan = *ParsePlan(plan);
  options.idle_s = 0.2;
  return options;
}

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Looks after what is idle until `is_done`, as the engine's thread does; false after ten seconds.
template <typename IsDone>
bool TendUntil(TestEngine& engine, const IsDone& is_done) {
  for (int i = 0; i < 1000; ++i) {
    engine.RunAll();
    if (is_done(engine.engine().Snapshot())) return true;
    Sleep(0.01);
  }
  return false;
}

// "idle t3/t2 x4" for the only conversation.
std::string PagesOf(const EngineSnapshot& snapshot) {
  EXPECT_EQ(snapshot.conversations.size(), 1u);
  std::string text;
  for (const PageRun& run : snapshot.conversations.at(0).pages) {
    text +=
        (text.empty() ? "" : ", ") + run.state + " " + run.rung + " x" + std::to_string(run.pages);
  }
  return text;
}

// The next turn: what was asked and answered, and more.
CompletionRequest NextTurn(const CompletionRequest& first, const TestAnswer& answer) {
  CompletionRequest next = first;
  next.prompt.insert(next.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  for (int32_t i = 0; i < 10; ++i) next.prompt.push_back(i);
  return next;
}

TEST(BatchEngineIdle, AConversationRestsAndGoesOn) {
  TestEngine engine(WithPlan(kPlan));
  const CompletionRequest request = TestRequest(300, 20);
  const TestAnswer first = engine.AskAlone(request);
  const EngineSnapshot active = engine.engine().Snapshot();
  EXPECT_EQ(PagesOf(active), "sealed t4 x4");  // 319 tokens were fed
  ASSERT_TRUE(
      TendUntil(engine, [](const EngineSnapshot& now) { return now.prefix.pages_rested == 4; }));
  const EngineSnapshot idle = engine.engine().Snapshot();
  EXPECT_EQ(PagesOf(idle), "idle t3/t2 x4");
  EXPECT_LT(static_cast<double>(idle.cache.bytes_used),
            0.75 * static_cast<double>(active.cache.bytes_used));
  EXPECT_LT(idle.bytes_held, active.bytes_held);
  EXPECT_TRUE(std::isinf(engine.engine().SecondsToIdleWork()));

  const TestAnswer second = engine.AskAlone(NextTurn(request, first));
  ASSERT_TRUE(second.end.has_value());
  EXPECT_EQ(second.end->reason, FinishReason::kLength);
  EXPECT_EQ(second.tokens.size(), 20u);
  EXPECT_EQ(second.end->cached_tokens, 4 * 64);
}

TEST(BatchEngineIdle, WithoutIdleInThePlanNothingRests) {
  TestEngine engine(WithPlan("t4,exact=0"));
  engine.AskAlone(TestRequest(300, 20));
  EXPECT_TRUE(std::isinf(engine.engine().SecondsToIdleWork()));
  EngineOptions never = WithPlan(kPlan);
  never.idle_s = 0;
  TestEngine other(never);
  other.AskAlone(TestRequest(300, 20));
  EXPECT_TRUE(std::isinf(other.engine().SecondsToIdleWork()));
}

TEST(BatchEngineIdle, OthersRestWhileOneIsAnswered) {
  TestEngine engine(WithPlan(kPlan));
  engine.AskAlone(TestRequest(300, 2, 1));
  const auto channel = engine.Ask(TestRequest(100, 400, 2));
  uint64_t rested = 0;
  while (engine.engine().Step() && rested == 0) {
    Sleep(0.001);
    const EngineSnapshot now = engine.engine().Snapshot();
    if (now.conversations.empty() || now.conversations[0].slot < 0) break;
    rested = now.prefix.pages_rested;
  }
  EXPECT_GT(rested, 0u);
  engine.RunAll();
  EXPECT_EQ(Drain(*channel).tokens.size(), 400u);
}

TEST(BatchEngineIdle, TheEngineWakesUpByItself) {
  const std::vector<std::byte> bytes = TinyModel().Build();
  const auto model = LoadDecoderModel(*GgufFile::FromMemory(bytes, "tiny"));
  const auto tokenizer = (*model)->MakeTokenizer();
  const auto executor = MakeThreadPool(1);
  auto batch = BatchEngine::Create(*model, **tokenizer, *executor, WithPlan(kPlan));
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  Engine engine(std::move(*batch));
  const auto channel = std::make_shared<AnswerChannel>();
  engine.Submit(TestRequest(300, 2), channel);
  while (const auto event = channel->Next(std::chrono::seconds(10))) {
    if (event->end) break;
  }
  Sleep(1.5);  // nobody asks for anything
  uint64_t rested = 0;
  engine.Run([&](BatchEngine& running) { rested = running.Snapshot().prefix.pages_rested; });
  EXPECT_EQ(rested, 4u);
}

EngineOptions WithSpill(const TempFolder& folder, TierWrites writes) {
  EngineOptions options = WithPlan(kPlan);
  options.tiers.disk_folder = folder.File("pages");
  options.tiers.disk_bytes = uint64_t{64} << 20;
  options.tier_writes = writes;
  options.idle_s = 0;  // what goes to a tier is at rest all the same
  options.spill_s = 0.1;
  return options;
}

class BatchEngineSpill : public testing::TestWithParam<TierWrites> {};

TEST_P(BatchEngineSpill, AConversationLeavesMemoryAndComesBackAtRest) {
  const TempFolder folder;
  TestEngine engine(WithSpill(folder, GetParam()));
  const CompletionRequest request = TestRequest(300, 20);
  const TestAnswer first = engine.AskAlone(request);
  const uint64_t written = engine.engine().Snapshot().tiers.pages_exported;
  EXPECT_EQ(written, GetParam() == TierWrites::kComputed ? 4u : 0u);
  ASSERT_TRUE(
      TendUntil(engine, [](const EngineSnapshot& now) { return now.prefix.pages_spilled == 4; }));
  const EngineSnapshot gone = engine.engine().Snapshot();
  EXPECT_EQ(gone.cache.pages, 0u);
  EXPECT_EQ(gone.prefix.pages, 0u);
  EXPECT_EQ(gone.prefix.pages_evicted, 0u);
  EXPECT_EQ(gone.tiers.pages_exported, 4u);  // each once
  EXPECT_EQ(gone.tiers.tiers.at(0).stats.stored, 4u);

  const TestAnswer second = engine.AskAlone(NextTurn(request, first));
  EXPECT_EQ(second.end->cached_tokens, 4 * 64);
  EXPECT_EQ(second.tokens.size(), 20u);
  EXPECT_EQ(engine.engine().Snapshot().tiers.pages_imported, 4u);
  EXPECT_EQ(PagesOf(engine.engine().Snapshot()), "idle t3/t2 x4, sealed t4 x1");
}

// The tiers are asked about one path at a time, in the background.
TEST_P(BatchEngineSpill, ManyConversationsLeave) {
  const TempFolder folder;
  TestEngine engine(WithSpill(folder, GetParam()));
  for (uint64_t seed = 1; seed <= 6; ++seed) engine.AskAlone(TestRequest(300, 2, seed));
  EXPECT_TRUE(TendUntil(engine, [&](const EngineSnapshot& now) { return now.prefix.pages == 0; }));
  EXPECT_EQ(engine.engine().Snapshot().prefix.pages_spilled, 6u * 4);
}

TEST_P(BatchEngineSpill, APageThatFindsNoTierStays) {
  const TempFolder folder;
  EngineOptions options = WithSpill(folder, GetParam());
  options.tiers.disk_bytes = uint64_t{64} << 10;  // too little for a page
  TestEngine engine(options);
  engine.AskAlone(TestRequest(15 * 64, 1));  // more pages than are handed over at once
  const uint64_t before = engine.engine().Snapshot().tiers.pages_exported;
  // It is tried again, but not all the time.
  ASSERT_TRUE(TendUntil(engine, [&](const EngineSnapshot& now) {
    return now.tiers.pages_exported >= before + 2 * 15;
  }));
  const EngineSnapshot now = engine.engine().Snapshot();
  EXPECT_EQ(now.tiers.pages_exported, before + 2 * 15);
  EXPECT_EQ(now.tiers.tiers.at(0).stats.stored, 0u);
  EXPECT_EQ(now.prefix.pages_spilled, 0u);
  EXPECT_EQ(now.prefix.pages, 15u);
}

INSTANTIATE_TEST_SUITE_P(Writes, BatchEngineSpill,
                         testing::Values(TierWrites::kComputed, TierWrites::kLeaving));

TEST(BatchEngineIdle, WhatLeavesForWantOfRoomGoesToATier) {
  const TempFolder folder;
  EngineOptions options = WithSpill(folder, TierWrites::kLeaving);
  options.spill_s = 0;
  const CompletionRequest request = TestRequest(300, 2);
  uint64_t page_bytes = 0;
  {
    TestEngine engine(options);
    engine.AskAlone(request);
    EXPECT_EQ(engine.engine().Snapshot().tiers.pages_exported, 0u);
    engine.engine().EndAll(Status());  // as a stop does
    const EngineSnapshot end = engine.engine().Snapshot();
    EXPECT_EQ(end.tiers.pages_exported, 4u);
    page_bytes = end.tiers.tiers.at(0).stats.bytes_written / 4;
  }
  EXPECT_EQ(TestEngine(options).AskAlone(request).end->cached_tokens, 4 * 64);

  // Much more than may wait to be written: it is handed over as it can be taken.
  options.tiers.queue_bytes = 3 * page_bytes;
  const CompletionRequest long_request = TestRequest(14 * 64, 2, 2);
  {
    TestEngine engine(options);
    engine.AskAlone(long_request);
    engine.engine().EndAll(Status());
    EXPECT_EQ(engine.engine().Snapshot().tiers.tiers.at(0).stats.dropped_queue, 0u);
  }
  EXPECT_EQ(TestEngine(options).AskAlone(long_request).end->cached_tokens, 13 * 64);
}

}  // namespace batch_engine_idle_test
}  // namespace varve::serve
