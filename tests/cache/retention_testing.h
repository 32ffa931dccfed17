// What the tests of retention in the cache share: rows and queries by position, so that several
// caches can get the same tokens in different ways, and a log of what the policies have done.

#ifndef VARVE_TESTS_CACHE_RETENTION_TESTING_H_
#define VARVE_TESTS_CACHE_RETENTION_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/cache_services.h"
#include "pages/page_pool.h"
#include "tests/cache_testing.h"
#include "varve/cache.h"

namespace varve {

class RetentionLog final : public RetentionObserver {
 public:
  void OnRetention(const RetentionEvent& event) override { events.push_back(event); }
  std::vector<RetentionEvent> events;
};

// "3@128 0K:0.25 16d:0.1 32q8_0r:0.2": layer, position, and each page with fate and score. Scores
// are printed so that different ones differ.
inline std::string EventText(const RetentionEvent& event) {
  std::string text = std::to_string(event.layer) + "@" + std::to_string(event.next_position);
  for (const PageDecision& page : event.pages) {
    char score[32];
    std::snprintf(score, sizeof score, "%.17g", page.score);
    text += " " + std::to_string(page.page.first_position) +
            (page.fate == PageFate::kKept      ? "K"
             : page.fate == PageFate::kDropped ? "d"
                                               : page.rung) +
            ":" + score;
  }
  return text + " held " + std::to_string(event.held_bytes) + " of " +
         std::to_string(event.target_bytes) + (event.floors_bind ? " bound" : "");
}

// Without the ids of sequences, so that logs of several caches can be compared.
inline std::vector<std::string> EventTexts(const RetentionLog& log) {
  std::vector<std::string> texts;
  for (const RetentionEvent& event : log.events) texts.push_back(EventText(event));
  return texts;
}

// Rows and queries of positions [0, tokens), dense, one vector per layer.
struct RetentionWork {
  RetentionWork(const CacheShape& shape, int64_t tokens, uint64_t seed = 5) {
    RowRandom random(seed);
    const size_t heads = shape.num_kv_heads;
    const auto count = static_cast<size_t>(tokens);
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      keys.push_back(random.Gaussians(count * heads * shape.key_dim));
      values.push_back(random.Gaussians(count * heads * shape.value_dim));
      queries.push_back(random.Gaussians(count * heads * shape.group_size * shape.key_dim));
      // Some pages must matter more than others, or there would be nothing to choose.
      for (size_t i = 0; i < keys.back().size(); ++i) {
        const size_t position = i / (heads * shape.key_dim);
        keys.back()[i] *= 0.5f + static_cast<float>((position / 16 * 7 + 3 * layer) % 5) * 0.4f;
      }
    }
  }

  std::vector<std::vector<float>> keys;     // [tokens, kv_heads, key_dim]
  std::vector<std::vector<float>> values;   // [tokens, kv_heads, value_dim]
  std::vector<std::vector<float>> queries;  // [tokens, query heads, key_dim]
};

// A cache that is fed from a workload, with the log of its policies and the outputs of attention.
struct RetentionRun {
  RetentionRun(const CacheShape& shape, std::string_view plan, const RetentionWork& w,
               CacheOptions options = {}, const CacheServices& services = {})
      : work(&w) {
    options.retention_observer = &log;
    options.plan = *ParsePlan(plan);
    Result<std::unique_ptr<Cache>> made = CreateCache(shape, std::move(options), services);
    EXPECT_OK(made.status());
    cache = std::move(*made);
  }

  void Begin(SequenceId id, int count) {
    const StepEntry entry = {id, count};
    ASSERT_OK(cache->BeginStep({&entry, 1}));
  }

  // Appends and attends in one layer of an open step of `count` tokens.
  void Layer(int layer, SequenceId id, int64_t first, int count) {
    const CacheShape& shape = cache->shape();
    const size_t heads = static_cast<size_t>(shape.num_kv_heads) * shape.group_size;
    const float* keys = work->keys[layer].data() + first * shape.num_kv_heads * shape.key_dim;
    const float* values = work->values[layer].data() + first * shape.num_kv_heads * shape.value_dim;
    ASSERT_OK(cache->Append(layer, id, {keys, count, 0, 0}, {values, count, 0, 0}));
    if (!attends) return;
    if (last_queries > 0 && count > last_queries) {
      first += count - last_queries;
      count = last_queries;
    }
    std::vector<float> out(count * heads * shape.value_dim);
    const AttendRequest request = {
        id,
        count,
        work->queries[layer].data() + first * static_cast<int64_t>(heads) * shape.key_dim,
        0,
        0,
        out.data(),
        0,
        0,
        nullptr};
    ASSERT_OK(cache->Attend(layer, {&request, 1}, {}));
    if (!records) return;
    std::vector<float>& all = outputs[{id.value, layer}];
    all.insert(all.end(), out.begin(), out.end());
  }

  // Feeds positions up to `until`, in steps of at most `step_tokens`; 0: a page.
  void Feed(SequenceId id, int64_t until, int step_tokens = 0) {
    if (step_tokens == 0) step_tokens = cache->shape().page_tokens;
    for (int64_t first = *cache->NextPosition(id); first < until;) {
      const int count = static_cast<int>(
          std::min<int64_t>({step_tokens, *cache->MaxStepTokens(id), until - first}));
      ASSERT_NO_FATAL_FAILURE(Begin(id, count));
      for (int i = 0; i < cache->shape().num_layers; ++i) {
        const int layer = backwards ? cache->shape().num_layers - 1 - i : i;
        ASSERT_NO_FATAL_FAILURE(Layer(layer, id, first, count));
      }
      ASSERT_OK(cache->EndStep());
      if (after_step) after_step();
      first += count;
    }
  }

  std::vector<int64_t> PagesOf(SequenceId id, int layer) const {
    std::vector<int64_t> firsts;
    const SequenceInfo info = *cache->Describe(id, layer);
    for (const PageSpan& page : info.pages) firsts.push_back(page.first_position);
    return firsts;
  }

  const RetentionWork* work;
  RetentionLog log;
  std::unique_ptr<Cache> cache;
  bool attends = true;
  int last_queries = 0;    // of each step that attend; 0: all
  bool records = true;     // outputs
  bool backwards = false;  // layers from last to first
  std::function<void()> after_step;
  std::map<std::pair<uint64_t, int>, std::vector<float>> outputs;  // by sequence and layer
};

// What the pool holds for all pages, and the spans of decisions.
inline uint64_t HeldBytes(const Cache& cache) {
  const CacheReport stats = cache.Report();
  uint64_t bytes = stats.retention.plan_bytes;
  for (const RungBytes& rung : stats.rungs)
    bytes += rung.pages * SlotBytes(static_cast<size_t>(rung.bytes / rung.pages));
  return bytes;
}

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_RETENTION_TESTING_H_
