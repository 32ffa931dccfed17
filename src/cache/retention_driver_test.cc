#include "cache/retention_driver.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "attention/backend_testing.h"
#include "pages/page_testing.h"
#include "retention/policy_table.h"
#include "tests/cache_testing.h"

namespace varve {
namespace retention_driver_test {

// A page is 16 tokens and 4096 bytes in f16, 256 bytes a token.
constexpr uint64_t kPageBytes = 4096;

class EventLog final : public RetentionObserver {
 public:
  void OnRetention(const RetentionEvent& event) override { events.push_back(event); }
  std::vector<RetentionEvent> events;
};

class RetentionDriverTest : public testing::Test {
 protected:
  RetentionDriverTest() { plans_.push_back(PlanOf("h2o")); }

  // The first page and the last one are the floor.
  LayerPlan PlanOf(const char* policy) const {
    LayerPlan plan;
    plan.open_rung = &f16_;
    plan.stages = {{&f16_, &f16_, 0}};
    plan.first_demotion = 1;
    RetentionRule rule;
    rule.policy = FindPolicy(policy);
    rule.ratio = 1.1;
    rule.sink_tokens = 16;
    rule.recent_tokens = 16;
    rule.trigger_tokens = 64;
    rule.every_tokens = 16;
    plan.retention = rule;
    return plan;
  }
  // demote: q8_0 is a level below f16.
  LayerPlan DemotingPlan() const {
    LayerPlan plan = PlanOf("demote");
    plan.stages.push_back({&q8_, &q8_, LayerPlan::kNeverByAge});
    plan.retention->levels = {{SlotBytes(kPageBytes), 0},
                              {SlotBytes(store_.PageBytes(q8_, q8_)), 1e-4}};
    return plan;
  }

  RetentionDriver& Driver() {
    if (driver_ == nullptr) {
      driver_ = std::make_unique<RetentionDriver>(SmallPageShape(static_cast<int>(plans_.size())),
                                                  plans_, sequences_, &store_, &ageing_, &log_);
    }
    return *driver_;
  }
  // A sequence of whole pages in every layer.
  Sequence& AddSequence(uint64_t id, int64_t tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->next_position = tokens;
    for (size_t layer = 0; layer < plans_.size(); ++layer) {
      LayerTable& table = sequence->layers.emplace_back(&schedule_);
      GrowTable(store_, SmallPageShape(), static_cast<int>(layer), tokens, f16_, random_, &table);
    }
    return *(sequences_[id] = std::move(sequence));
  }
  // One query, at the last position, has looked at the pages so much.
  static StepMass MassOf(const Sequence& sequence, const std::vector<float>& mass) {
    StepMass step;
    step.first_position = sequence.next_position - 1;
    for (const TableEntry& entry : sequence.layers[0].entries())
      step.pages.push_back(entry.page->first_position);
    step.mass = mass;
    return step;
  }
  static std::string PagesOf(const PageTable& table) {
    std::string text;
    for (const TableEntry& entry : table.entries())
      text += std::to_string(entry.page->first_position) + " ";
    return text;
  }

  const Rung& f16_ = TestRung("f16");
  const Rung& q8_ = TestRung("q8_0");
  PageSchedule schedule_{.page_tokens = 16, .open_rung = &f16_, .from_age = {0}};
  TestRandom random_{3};
  std::unique_ptr<Executor> executor_ = MakeThreadPool(1);
  NotingBackend backend_;
  PageStore store_{SmallPageShape(2), PoolShare(SystemPageMemory(), 0)};
  Ageing ageing_{&store_, &backend_, executor_.get(), 4};
  std::vector<LayerPlan> plans_;
  SequenceMap sequences_;
  EventLog log_;
  std::unique_ptr<RetentionDriver> driver_;
};

// --- mass ---

TEST_F(RetentionDriverTest, CollectsTheMeanOverHeadsOfTheQueriesOfTheStep) {
  const Sequence& sequence = AddSequence(1, 48);
  const PageSpan read[] = {{0, 16, 16, 16}, {32, 16, 16, 16}};  // the page at 16 was not read
  // Queries 46 and 47 with two heads; the step began at 47.
  const float mass[] = {9, 9, 9, 9, 0.5f, 0.25f, 0.25f, 0.75f};
  StepMass step;
  RetentionDriver::Collect({0, SequenceId{1}, 46, 2, 2, read, mass}, sequence.layers[0], 47, 2,
                           &step);
  EXPECT_EQ(step.first_position, 47);
  EXPECT_EQ(step.pages, (std::vector<int64_t>{0, 16, 32}));
  // 47 has asked, 48 has not.
  EXPECT_EQ(step.mass, (std::vector<float>{0.375f, 0, 0.5f, -1, -1, -1}));
}

TEST_F(RetentionDriverTest, AQueryCountsForThePagesThatItCouldSee) {
  Sequence& sequence = AddSequence(1, 48);
  StepMass step;
  step.first_position = 31;
  step.pages = {0, 16, 32};
  step.mass = {0.5f, 0.5f, 0.7f, 0.2f, 0.4f, 0.4f};  // 31 does not see the page at 32
  Driver().Commit(0, sequence.layers[0], step);
  const LayerTable& table = sequence.layers[0];
  // The bucket ends with 31.
  EXPECT_DOUBLE_EQ(table.entries()[0].score.smooth(), 0.5f);
  EXPECT_FLOAT_EQ(table.entries()[0].score.last(), 0.2f);
  EXPECT_EQ(table.entries()[2].score.state().num_buckets, 0);
  EXPECT_FLOAT_EQ(table.entries()[2].score.last(), 0.4f);
}

// --- decisions ---

TEST_F(RetentionDriverTest, DecidesWhenTheStepEndsAndActsWhenTheNextBegins) {
  Sequence& sequence = AddSequence(1, 96);
  LayerTable& table = sequence.layers[0];
  Driver().Commit(0, table, MassOf(sequence, {.1f, .05f, .3f, .2f, .25f, .1f}));
  Driver().DecideWhereDue(sequence);
  EXPECT_EQ(PagesOf(table), "0 16 32 48 64 80 ");
  ASSERT_TRUE(table.pending);
  Driver().ApplyDecisions(SequenceId{1}, sequence);
  EXPECT_EQ(PagesOf(table), "0 32 64 80 ");
  EXPECT_FALSE(table.pending);
  ASSERT_EQ(log_.events.size(), 1u);
  EXPECT_EQ(log_.events[0].pages[1].fate, PageFate::kDropped);
  EXPECT_EQ(log_.events[0].pages[2].fate, PageFate::kKept);
  EXPECT_EQ(log_.events[0].held_bytes, 4 * kPageBytes);
  EXPECT_EQ(ageing_.counters().dropped, 2u);
  const RetentionStats stats = Driver().Stats({});
  EXPECT_EQ(stats.pages_evicted, 2u);
  EXPECT_EQ(stats.tokens_evicted, 32u);
}

TEST_F(RetentionDriverTest, ADecisionAboutATableThatHasChangedIsDropped) {
  Sequence& sequence = AddSequence(1, 96);
  LayerTable& table = sequence.layers[0];
  Driver().Decide(sequence, 0);
  table.Kill(40, 41);
  Driver().ApplyDecisions(SequenceId{1}, sequence);
  EXPECT_EQ(PagesOf(table), "0 16 32 48 64 80 ");
  EXPECT_FALSE(table.pending);
  EXPECT_EQ(Driver().Stats({}).plans_stale, 1u);
  EXPECT_EQ(Driver().Stats({}).plans, 0u);
}

TEST_F(RetentionDriverTest, AStepEndsWhereADecisionIsDue) {
  Sequence& sequence = AddSequence(1, 48);
  EXPECT_EQ(Driver().TokensToNextDecision(sequence, 512), 16);  // the trigger
  sequence.next_position = 70;
  EXPECT_EQ(Driver().TokensToNextDecision(sequence, 512), 10);
  EXPECT_EQ(Driver().TokensToNextDecision(sequence, 4), 4);
  Driver().DecideWhereDue(sequence);
  EXPECT_FALSE(sequence.layers[0].pending);
  sequence.next_position = 80;
  sequence.layers[0].SetHeld(true);  // the prompt will be folded
  EXPECT_EQ(Driver().TokensToNextDecision(sequence, 512), 512);
  Driver().DecideWhereDue(sequence);
  EXPECT_FALSE(sequence.layers[0].pending);
}

TEST_F(RetentionDriverTest, APolicyOfThePromptDecidesWhenThePromptEnds) {
  plans_ = {PlanOf("snapkv")};
  Sequence& sequence = AddSequence(1, 96);
  LayerTable& table = sequence.layers[0];
  EXPECT_EQ(Driver().TokensToNextDecision(sequence, 512), 512);
  Driver().Commit(0, table, MassOf(sequence, {.1f, .3f, .05f, .25f, .2f, .1f}));
  Driver().DecideWhereDue(sequence);
  EXPECT_FALSE(table.pending);
  Driver().EndPrompt(sequence);
  ASSERT_TRUE(table.pending);
  // What comes later does not count.
  Driver().Commit(0, table, MassOf(sequence, {0, 0, 1, 0, 0, 0}));
  Driver().ApplyDecisions(SequenceId{1}, sequence);
  EXPECT_EQ(PagesOf(table), "0 16 48 80 ");
}

double WorthWithoutMemory(const PageView& page) {
  if (page.layer == 0) throw std::bad_alloc();
  return page.frozen;
}

TEST_F(RetentionDriverTest, AtThePromptsEndAllScoresAreFixedBeforeADecisionTakesMemory) {
  RetentionPolicy policy = *FindPolicy("snapkv");
  policy.worth = WorthWithoutMemory;
  plans_ = {PlanOf("snapkv"), PlanOf("snapkv")};
  plans_[0].retention->policy = &policy;
  Sequence& sequence = AddSequence(1, 96);
  EXPECT_THROW(Driver().EndPrompt(sequence), std::bad_alloc);
  EXPECT_TRUE(sequence.prompt_ended);
  for (const LayerTable& table : sequence.layers) {
    EXPECT_FALSE(table.pending);
    for (const TableEntry& entry : table.entries()) EXPECT_TRUE(entry.score.is_frozen());
  }
}

TEST_F(RetentionDriverTest, ASharedPageIsDemotedWhenAllItsHoldersHaveDecidedSo) {
  plans_ = {DemotingPlan()};
  Sequence& first = AddSequence(1, 96);
  Sequence& second = *(sequences_[2] = std::make_unique<Sequence>(first));
  Driver().Decide(first, 0);
  Driver().ApplyDecisions(SequenceId{1}, first);
  EXPECT_EQ(first.layers[0].entries()[2].wish, 1);
  EXPECT_EQ(first.layers[0].entries()[2].stage, -1);
  EXPECT_EQ(Driver().Stats({}).pages_demoted, 0u);
  Driver().Decide(second, 0);
  Driver().ApplyDecisions(SequenceId{2}, second);
  EXPECT_TRUE(second.layers[0].entries()[2].page->HasRungs(&q8_, &q8_));
  // The first follows at its next decision, and encodes nothing again.
  const size_t encoded = backend_.batches.size();
  Driver().Decide(first, 0);
  Driver().ApplyDecisions(SequenceId{1}, first);
  EXPECT_EQ(first.layers[0].entries()[2].page, second.layers[0].entries()[2].page);
  EXPECT_EQ(backend_.batches.size(), encoded);
  EXPECT_EQ(ageing_.counters().adopted, 4u);
}

TEST_F(RetentionDriverTest, ABudgetIsLessWhatTheOtherLayersTake) {
  plans_[0].retention.reset();
  plans_.push_back(PlanOf("h2o"));
  plans_[1].retention->budget_bytes = 40000;
  Sequence& sequence = AddSequence(1, 96);
  Driver().Decide(sequence, 1);
  Driver().ApplyDecisions(SequenceId{1}, sequence);
  ASSERT_EQ(log_.events.size(), 1u);
  // Layer 0 has 6 pages and begins one more before the next decision.
  EXPECT_EQ(log_.events[0].target_bytes, 40000 - 7 * kPageBytes);
}

}  // namespace retention_driver_test
}  // namespace varve
