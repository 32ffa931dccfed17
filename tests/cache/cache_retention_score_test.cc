// The score that decides is the softmax mass of the page: computed a second time here, in double
// precision, from the rows and queries alone.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/cache/retention_testing.h"

namespace varve {
namespace cache_retention_score_test {

CacheShape Shape(int page) {
  return ShapeOf(
      {.layers = 2, .kv_heads = 2, .group = 2, .key_dim = 32, .value_dim = 32, .page = page});
}

// Mean over heads of the softmax mass of every live page that begins at or before `position`.
std::map<int64_t, double> MassOf(const CacheShape& shape, const RetentionWork& work, int layer,
                                 int64_t position, const std::set<int64_t>& live) {
  std::map<int64_t, double> mass;
  const int heads = shape.num_kv_heads * shape.group_size;
  for (int head = 0; head < heads; ++head) {
    const float* query = work.queries[layer].data() + (position * heads + head) * shape.key_dim;
    std::map<int64_t, double> sums;
    double total = 0;
    for (int64_t row = 0; row <= position; ++row) {
      const int64_t page = row / shape.page_tokens * shape.page_tokens;
      if (!live.contains(page)) continue;
      const float* key = work.keys[layer].data() +
                         (row * shape.num_kv_heads + head / shape.group_size) * shape.key_dim;
      double score = 0;
      for (int d = 0; d < shape.key_dim; ++d) score += static_cast<double>(query[d]) * key[d];
      const double weight = std::exp(score / std::sqrt(static_cast<double>(shape.key_dim)));
      sums[page] += weight;
      total += weight;
    }
    for (const auto& [page, sum] : sums) mass[page] += sum / total / heads;
  }
  return mass;
}

struct Settings {
  int page = 16;
  int every = 16;
  double ema = 0;
  const char* policy = "h2o";
};

// Follows one layer through all events of a run; returns how many scores were compared.
int CompareLayer(const CacheShape& shape, const RetentionWork& work, const RetentionLog& log,
                 int layer, const Settings& settings) {
  struct Score {
    double sum = 0, smooth = 0, last = 0;
    int queries = 0, buckets = 0;
  };
  std::map<int64_t, Score> scores;
  std::set<int64_t> live;
  int64_t position = 0;
  int compared = 0;
  for (const RetentionEvent& event : log.events) {
    if (event.layer != layer) continue;
    for (; position < event.next_position; ++position) {
      if (position % shape.page_tokens == 0) live.insert(position);
      for (const auto& [page, mass] : MassOf(shape, work, layer, position, live)) {
        scores[page].sum += mass;
        scores[page].last = mass;
        ++scores[page].queries;
      }
      if ((position + 1) % settings.every != 0) continue;
      for (auto& [page, score] : scores) {
        if (score.queries == 0) continue;
        const double mean = score.sum / score.queries;
        score.smooth =
            score.buckets == 0 ? mean : settings.ema * score.smooth + (1 - settings.ema) * mean;
        ++score.buckets;
        score.sum = score.queries = 0;
      }
    }
    EXPECT_EQ(event.pages.size(), live.size());
    for (const PageDecision& page : event.pages) {
      const int64_t first = page.page.first_position;
      const Score& score = scores[first];
      const double wanted = std::string_view(settings.policy) == "tova" ? score.last : score.smooth;
      EXPECT_NEAR(page.score, wanted, 1e-5)
          << "layer " << layer << " at " << event.next_position << " page " << first;
      ++compared;
      if (page.fate != PageFate::kDropped) continue;
      live.erase(first);
      scores.erase(first);
    }
  }
  return compared;
}

TEST(CacheRetentionScore, EqualsTheBruteForceSoftmaxMass) {
  // Buckets shorter than a page, longer, and not in step with it; with and without memory.
  for (const Settings& settings :
       {Settings{16, 16, 0.0}, Settings{16, 8, 0.0}, Settings{16, 24, 0.0}, Settings{32, 16, 0.0},
        Settings{16, 16, 0.9}, Settings{32, 24, 0.5}, Settings{16, 16, 0.9, "tova"}}) {
    const CacheShape shape = Shape(settings.page);
    const RetentionWork work(shape, 260);
    const std::string plan = "f32,open_rung=f32,ratio=1.1,sink=16,recent=32,trigger=96,evict=" +
                             std::string(settings.policy) +
                             ",every=" + std::to_string(settings.every) +
                             ",ema=" + std::to_string(settings.ema);
    SCOPED_TRACE(plan);
    RetentionRun run(shape, plan, work);
    const SequenceId id = *run.cache->CreateSequence();
    run.Feed(id, 260);
    EXPECT_GT(run.cache->Report().retention.pages_evicted, 0u);
    for (int layer = 0; layer < 2; ++layer)
      EXPECT_GT(CompareLayer(shape, work, run.log, layer, settings), 20);
  }
}

TEST(CacheRetentionScore, AQueryOutsideOfAStepCountsForNothing) {
  const CacheShape shape = Shape(16);
  const RetentionWork work(shape, 200);
  const char* plan = "evict=h2o,ratio=2,sink=16,recent=32,trigger=64";
  RetentionRun quiet(shape, plan, work), asked(shape, plan, work);
  const SequenceId a = *quiet.cache->CreateSequence(), b = *asked.cache->CreateSequence();
  asked.after_step = [&] {
    std::vector<float> out(4 * 4 * 32);
    const int queries = static_cast<int>(std::min<int64_t>(4, *asked.cache->NextPosition(b)));
    const AttendRequest request = {b, queries, work.queries[0].data(), 0, 0, out.data(), 0,
                                   0, nullptr};
    for (int layer = 0; layer < 2; ++layer)
      EXPECT_OK(asked.cache->Attend(layer, {&request, 1}, {}));
  };
  quiet.Feed(a, 200);
  asked.Feed(b, 200);
  EXPECT_FALSE(quiet.log.events.empty());
  EXPECT_EQ(EventTexts(quiet.log), EventTexts(asked.log));
}

TEST(CacheRetentionScore, AnAbortedStepLeavesScoresUnchanged) {
  const CacheShape shape = Shape(16);
  const RetentionWork work(shape, 280), other(shape, 280, 99);
  for (const char* policy : {"h2o", "tova", "demote"}) {
    const std::string plan = "ratio=2,sink=16,recent=32,trigger=64,evict=" + std::string(policy);
    RetentionRun quiet(shape, plan, work), shaken(shape, plan, work);
    const SequenceId a = *quiet.cache->CreateSequence(), b = *shaken.cache->CreateSequence();
    int aborted = 0;
    for (int64_t until = 1; until <= 250; until += 7) {
      shaken.Feed(b, until);
      shaken.work = &other;
      shaken.records = false;
      const int count = *shaken.cache->MaxStepTokens(b);
      shaken.Begin(b, count);
      for (int layer = 0; layer <= aborted % 2; ++layer) shaken.Layer(layer, b, until, count);
      shaken.cache->AbortStep();
      shaken.work = &work;
      shaken.records = true;
      ++aborted;
    }
    shaken.Feed(b, 260);
    quiet.Feed(a, 260);
    EXPECT_FALSE(quiet.log.events.empty());
    EXPECT_EQ(EventTexts(quiet.log), EventTexts(shaken.log)) << policy;
    EXPECT_EQ(quiet.outputs, shaken.outputs) << policy;
  }
}

TEST(CacheRetentionScore, AQueryThatIsNotANumberTellsNothing) {
  const CacheShape shape = ShapeOf({.layers = 1, .kv_heads = 1, .group = 1});
  RetentionWork work(shape, 320);
  RetentionRun plain(shape, "evict=h2o,ratio=3,sink=16,recent=32,trigger=128", work);
  RetentionWork broken = work;
  for (int d = 0; d < 64; ++d) broken.queries[0][100 * 64 + d] = std::nanf("");
  RetentionRun run(shape, "evict=h2o,ratio=3,sink=16,recent=32,trigger=128", broken);
  run.Feed(*run.cache->CreateSequence(), 320);
  plain.Feed(*plain.cache->CreateSequence(), 320);
  for (const RetentionEvent& event : run.log.events) {
    for (const PageDecision& page : event.pages)
      EXPECT_GE(page.score, 0) << page.page.first_position;
  }
  EXPECT_EQ(run.PagesOf({1}, 0).size(), plain.PagesOf({1}, 0).size());
}

}  // namespace cache_retention_score_test
}  // namespace varve
