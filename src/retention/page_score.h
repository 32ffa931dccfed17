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

namespace varve {

class PageScore {
 public:
  // Buckets that a prompt's observation window spans (SnapKV-like policies).
  static constexpr int kObservedBuckets = 4;

  // The mean over heads of one query's mass; the query could see the page.
  void Add(double mass) {
    bucket_sum_ += mass;
    ++bucket_queries_;
    last_ = static_cast<float>(mass);
  }

  // Ends the bucket: s = alpha * s + (1 - alpha) * mean; the first one is taken as it is. A bucket
  // without a query that could see the page changes nothing.
  void FinishBucket(double alpha) {
    if (bucket_queries_ == 0) return;
    const double mean = bucket_sum_ / bucket_queries_;
    smooth_ = num_buckets_ == 0 ? mean : alpha * smooth_ + (1 - alpha) * mean;
    buckets_[static_cast<size_t>(num_buckets_ % kObservedBuckets)] = static_cast<float>(mean);
    ++num_buckets_;
    bucket_sum_ = 0;
    bucket_queries_ = 0;
  }

  // The exponential mean of finished buckets; before the first one, the mean so far.
  double smooth() const {
    if (num_buckets_ > 0) return smooth_;
    return bucket_queries_ == 0 ? 0 : bucket_sum_ / bucket_queries_;
  }
  double last() const { return last_; }
  // The mean of the last finished buckets, kObservedBuckets at most.
  double observed() const {
    const int count = std::min(num_buckets_, kObservedBuckets);
    if (count == 0) return smooth();
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += buckets_[static_cast<size_t>(i)];
    return sum / count;
  }

  // Keeps what a prompt's end has seen of the page, for policies that look no further.
  void Freeze() { frozen_ = static_cast<float>(observed()); }
  bool is_frozen() const { return frozen_ >= 0; }
  double frozen() const { return frozen_; }

 private:
  double bucket_sum_ = 0;
  double smooth_ = 0;
  float last_ = 0;
  float frozen_ = -1;
  std::array<float, kObservedBuckets> buckets_ = {};
  int bucket_queries_ = 0;
  int num_buckets_ = 0;
};

}  // namespace varve

#endif  // VARVE_RETENTION_PAGE_SCORE_H_
