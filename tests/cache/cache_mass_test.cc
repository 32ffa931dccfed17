// The observer gets the exact share of the attention that each page had.

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_mass_test {

class Recorder final : public AttentionObserver {
 public:
  struct Call {
    int layer;
    SequenceId sequence;
    int num_queries, num_heads;
    std::vector<PageSpan> pages;
    std::vector<float> mass;
  };
  void OnAttention(const AttentionMass& mass) override {
    const size_t count = static_cast<size_t>(mass.num_queries) * mass.num_heads * mass.pages.size();
    calls.push_back({mass.layer,
                     mass.sequence,
                     mass.num_queries,
                     mass.num_heads,
                     {mass.pages.begin(), mass.pages.end()},
                     {mass.mass, mass.mass + count}});
  }
  std::vector<Call> calls;
};

constexpr int kHeads = 6;

CacheShape Shape() { return ShapeOf({.layers = 2, .group = 3, .key_dim = 64, .value_dim = 32}); }

CacheOptions Watched(AttentionObserver* observer) {
  CacheOptions options;
  options.observer = observer;
  return options;
}

// The mass of every page for the last `num_queries` positions, from double precision.
struct Observed {
  Recorder::Call call;
  ReferenceAttention wanted;
};

Observed Observe(CacheTwin& twin, Recorder& recorder, SequenceId id, int num_queries,
                 const AttendOptions& options) {
  const std::vector<float> queries = twin.random().Gaussians(num_queries * kHeads * 64);
  std::vector<float> output(num_queries * kHeads * 32);
  const AttendRequest request = {id, num_queries, queries.data(), 0, 0, output.data(),
                                 0,  0,           nullptr};
  recorder.calls.clear();
  EXPECT_OK(twin.cache().Attend(1, {&request, 1}, options));
  EXPECT_EQ(recorder.calls.size(), 1u);
  const int64_t first = twin.reference().next_position(id) - num_queries;
  return {recorder.calls.back(),
          twin.reference().Attend(1, id, queries.data(), num_queries, first, options)};
}

TEST(CacheMass, SumsToOnePerQueryAndHead) {
  Recorder recorder;
  CacheTwin twin(Shape(), "age=f16:40/q8_0:90/q4_0r,exact=0", Watched(&recorder));
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 400));
  ASSERT_FALSE(recorder.calls.empty());
  for (const Recorder::Call& call : recorder.calls) {
    EXPECT_EQ(call.num_heads, kHeads);
    EXPECT_EQ(call.sequence, id);
    for (int row = 0; row < call.num_queries * kHeads; ++row) {
      double sum = 0.0;
      for (size_t p = 0; p < call.pages.size(); ++p) sum += call.mass[row * call.pages.size() + p];
      ASSERT_NEAR(sum, 1.0, 1e-5);
    }
  }
}

TEST(CacheMass, EqualsTheSoftmaxMassOfThePagesRows) {
  // A block rung rounds the query: the larger the scores, the more it shows in the mass.
  for (const char* plan : {"f16", "f32,open_rung=f32", "k=q8_0,v=q4_0,exact=0", "q8_0r"}) {
    Recorder recorder;
    CacheTwin twin(Shape(), plan, Watched(&recorder));
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 330));
    ASSERT_OK(twin.RemoveRange(id, 20, 41));
    for (const AttendOptions& options :
         {AttendOptions{}, AttendOptions{.soft_cap = 2.0f}, AttendOptions{.window = 50},
          AttendOptions{.scale = 1.0f}, AttendOptions{.causal = false}}) {
      for (int queries : {1, 40}) {
        const Observed seen = Observe(twin, recorder, id, queries, options);
        ASSERT_EQ(seen.call.mass.size(), seen.wanted.mass.size());
        const bool exact = std::string_view(plan).find("q8_0") == std::string_view::npos;
        const double within = exact ? 1e-5 : options.scale == 1.0f ? 1e-3 : 1e-4;
        for (size_t i = 0; i < seen.call.mass.size(); ++i) {
          ASSERT_NEAR(seen.call.mass[i], seen.wanted.mass[i], within) << plan << " " << i;
        }
      }
    }
  }
}

TEST(CacheMass, DescribesTheTableAsItWasRead) {
  Recorder recorder;
  CacheTwin twin(Shape(), "q8_0", Watched(&recorder));
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 50));
  ASSERT_OK(twin.RemoveRange(id, 18, 21));
  const Observed seen = Observe(twin, recorder, id, 1, {});
  ASSERT_EQ(seen.call.pages.size(), 4u);
  EXPECT_EQ(seen.call.layer, 1);
  EXPECT_EQ(seen.call.pages[1].first_position, 16);
  EXPECT_EQ(seen.call.pages[1].num_positions, 16);
  EXPECT_EQ(seen.call.pages[1].num_rows, 16);
  EXPECT_EQ(seen.call.pages[1].num_live_rows, 13);
  EXPECT_EQ(seen.call.pages[3].num_rows, 2);
}

TEST(CacheMass, AQueryThatSeesNothingHasNoMass) {
  Recorder recorder;
  CacheTwin twin(Shape(), "q8_0", Watched(&recorder));
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 50));
  ASSERT_OK(twin.RemoveRange(id, 40, 50));
  const Observed seen = Observe(twin, recorder, id, 1, {.window = 5});
  for (float mass : seen.call.mass) EXPECT_EQ(mass, 0.0f);
}

TEST(CacheMass, OneCallPerRequestInOrder) {
  Recorder recorder;
  CacheTwin twin(Shape(), "f16", Watched(&recorder));
  const SequenceId a = twin.Create(), b = twin.Create();
  const std::vector<StepEntry> entries = {{b, 3}, {a, 2}};
  ASSERT_OK(twin.Step(entries));
  ASSERT_EQ(recorder.calls.size(), 4u);
  EXPECT_EQ(recorder.calls[0].sequence, b);
  EXPECT_EQ(recorder.calls[1].sequence, a);
  EXPECT_EQ(recorder.calls[2].layer, 1);
  EXPECT_EQ(recorder.calls[3].num_queries, 2);
}

}  // namespace cache_mass_test
}  // namespace varve
