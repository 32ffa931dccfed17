// A cache of one layer and head whose rows say at which position they stand, and conversations that
// keep their pages in a PrefixCache, for tests.

#ifndef VARVE_SERVE_PREFIX_PREFIX_CACHE_TESTING_H_
#define VARVE_SERVE_PREFIX_PREFIX_CACHE_TESTING_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serve/prefix/prefix_cache.h"
#include "varve/step.h"

namespace varve::serve {

class PrefixTestBase : public testing::Test {
 protected:
  static constexpr int kPage = 16;
  static constexpr int kDim = 32;

  explicit PrefixTestBase(const std::string& plan) : keys_(1, plan, kPage) {
    CacheOptions options;
    options.plan = *ParsePlan(plan);
    options.num_threads = 1;
    auto cache = Cache::Create({.num_layers = 1,
                                .num_kv_heads = 1,
                                .group_size = 1,
                                .key_dim = kDim,
                                .value_dim = kDim,
                                .page_tokens = kPage},
                               std::move(options));
    EXPECT_TRUE(cache.ok());
    cache_ = std::move(*cache);
  }

  // What a conversation computes: begins with what `prefixes` has, appends the rest, keeps it. The
  // pin is the caller's.
  struct Begun {
    size_t pages_there = 0;
    PrefixNode* pin = nullptr;
  };
  Begun Begin(PrefixCache& prefixes, const std::vector<int32_t>& tokens, double now_s) {
    const std::vector<PageKey> keys = keys_.Of("", tokens);
    auto hit = prefixes.Take(keys, now_s);
    EXPECT_TRUE(hit.ok());
    const size_t there = *hit ? (*hit)->num_pages : 0;
    const SequenceId sequence = *hit ? (*hit)->sequence : *cache_->CreateSequence();
    for (size_t i = there * kPage; i < tokens.size(); ++i) Append(sequence);
    auto pin = prefixes.Keep(sequence, keys, 100, now_s, *hit ? (*hit)->pin : nullptr);
    EXPECT_TRUE(pin.ok());
    EXPECT_TRUE(cache_->Free(sequence).ok());
    return {there, *pin};
  }
  // The same, and ends; how many pages were there.
  size_t Talk(PrefixCache& prefixes, const std::vector<int32_t>& tokens, double now_s) {
    const Begun begun = Begin(prefixes, tokens, now_s);
    if (begun.pin != nullptr) prefixes.Unpin(begun.pin);
    return begun.pages_there;
  }

  static std::vector<int32_t> Tokens(int32_t first, size_t pages) {
    std::vector<int32_t> tokens(pages * kPage);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<int32_t>(i);
    return tokens;
  }
  static std::vector<int32_t> Join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  PageKeys keys_;
  std::unique_ptr<Cache> cache_;

 private:
  void Append(SequenceId sequence) {
    const auto position = static_cast<float>(*cache_->NextPosition(sequence));
    const std::vector<float> row(kDim, position);
    auto step = Step::Begin(*cache_, sequence, 1);
    ASSERT_TRUE(step.ok());
    const RowsView rows{.data = row.data(), .num_tokens = 1};
    ASSERT_TRUE(step->Append(0, sequence, rows, rows).ok());
    ASSERT_TRUE(step->Commit().ok());
  }
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_PREFIX_PREFIX_CACHE_TESTING_H_
