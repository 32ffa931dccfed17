// PageScore: how much attention a page has had lately, as one sequence sees it.
//
// Attention gives the exact mass of every page for every query and head. The mean over heads goes
// into buckets of `every` queries by position; a finished bucket is one step of an exponential
// mean. A page is charged only for queries that could see it. Buckets are cut by position and
// filled in the order of queries, so that a decision does not depend on how the input was cut into
// steps. A value; forks of a sequence copy it.

#ifndef VARVE_RETENTION_PAGE_SCORE_H_
#define VARVE_RETENTION_PAGE_SCORE_H_

#include <algorithm>
#include <array>
#include <span>

namespace varve {

class PageScore {
 public:
  // Buckets that a prompt's observation window spans (SnapKV-like policies).
  static constexpr int kObservedBuckets = 4;

  // All of it, for files.
  struct State {
    double bucket_sum = 0;
    double smooth = 0;
    float last = 0;
    float frozen = -1;
    std::array<float, kObservedBuckets> buckets = {};
    int bucket_queries = 0;
    int num_buckets = 0;
  };
  PageScore() = default;
  explicit PageScore(const State& state) : state_(state) {}
  const State& state() const { return state_; }

  // Of a page that takes over tokens of others: the mass of a page, spread evenly over its tokens,
  // goes with them. An unfinished bucket is lost where there are finished ones.
  struct Share {
    const PageScore* score;
    double part;  // of its tokens
  };
  static PageScore Blend(std::span<const Share> shares) {
    State blend;
    double smooth = 0;
    float observed = 0;
    for (const Share& share : shares) {
      smooth += share.part * share.score->smooth();
      observed += static_cast<float>(share.part * share.score->observed());
      blend.last += static_cast<float>(share.part * share.score->last());
      blend.num_buckets = std::max(blend.num_buckets, share.score->state_.num_buckets);
    }
    if (blend.num_buckets > 0) {
      blend.smooth = smooth;
      blend.buckets.fill(observed);
      blend.num_buckets = std::max(blend.num_buckets, kObservedBuckets);
    } else if (smooth > 0) {
      blend.bucket_sum = smooth;
      blend.bucket_queries = 1;
    }
    return PageScore(blend);
  }

  // The mean over heads of one query's mass; the query could see the page.
  void Add(double mass) {
    state_.bucket_sum += mass;
    ++state_.bucket_queries;
    state_.last = static_cast<float>(mass);
  }

  // Ends the bucket: s = alpha * s + (1 - alpha) * mean; the first one is taken as it is. A bucket
  // without a query that could see the page changes nothing.
  void FinishBucket(double alpha) {
    if (state_.bucket_queries == 0) return;
    const double mean = state_.bucket_sum / state_.bucket_queries;
    state_.smooth = state_.num_buckets == 0 ? mean : alpha * state_.smooth + (1 - alpha) * mean;
    state_.buckets[static_cast<size_t>(state_.num_buckets % kObservedBuckets)] =
        static_cast<float>(mean);
    ++state_.num_buckets;
    state_.bucket_sum = 0;
    state_.bucket_queries = 0;
  }

  // The exponential mean of finished buckets; before the first one, the mean so far.
  double smooth() const {
    if (state_.num_buckets > 0) return state_.smooth;
    return state_.bucket_queries == 0 ? 0 : state_.bucket_sum / state_.bucket_queries;
  }
  double last() const { return state_.last; }
  // The mean of the last finished buckets, kObservedBuckets at most.
  double observed() const {
    const int count = std::min(state_.num_buckets, kObservedBuckets);
    if (count == 0) return smooth();
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += state_.buckets[static_cast<size_t>(i)];
    return sum / count;
  }

  // Keeps what a prompt's end has seen of the page, for policies that look no further.
  void Freeze() { state_.frozen = static_cast<float>(observed()); }
  bool is_frozen() const { return state_.frozen >= 0; }
  double frozen() const { return state_.frozen; }

 private:
  State state_;
};

}  // namespace varve

#endif  // VARVE_RETENTION_PAGE_SCORE_H_
