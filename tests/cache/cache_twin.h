// CacheTwin: a Cache and its ReferenceCache, driven together with the same random rows and compared
// after every call. Shared by the tests of the cache and by its fuzzer; knows nothing of gtest.
//
// Calls return the status of the cache. If the two differ, they return kInternal, a code that the
// cache itself never uses, with the first place where they differ.

#ifndef VARVE_TESTS_CACHE_CACHE_TWIN_H_
#define VARVE_TESTS_CACHE_CACHE_TWIN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "tests/cache/reference_cache.h"
#include "varve/cache.h"

namespace varve {

class RowRandom {
 public:
  explicit RowRandom(uint64_t seed) : bits_(seed) {}
  uint64_t Bits() { return bits_.Next(); }
  int Below(int limit) { return static_cast<int>(Bits() % static_cast<uint64_t>(limit)); }
  float Gaussian();
  std::vector<float> Gaussians(size_t count);

 private:
  SplitMix64 bits_;
};

// The largest error of an output against double precision on the decoded rows, in units of the
// largest |value|, at the usual scale. It comes from f32 sums and from the rounding of queries (K)
// and weights (V) in block rungs.
double AttentionTolerance(std::string_view key_rung, std::string_view value_rung);

class CacheTwin {
 public:
  // Shape and plan must be valid; options.plan is replaced.
  CacheTwin(const CacheShape& shape, std::string_view plan, const CacheOptions& options = {},
            uint64_t seed = 1);

  Cache& cache() { return *cache_; }
  const ReferenceCache& reference() const { return reference_; }
  const CacheShape& shape() const { return cache_->shape(); }
  RowRandom& random() { return random_; }
  // One row in `rows` gets a NaN somewhere; 0: none does.
  void PutNaNEvery(int rows) { rows_per_nan_ = rows; }

  SequenceId Create();
  Result<SequenceId> Fork(SequenceId source);
  Status Free(SequenceId id);
  Status Truncate(SequenceId id, int64_t position);
  Status RemoveRange(SequenceId id, int64_t begin, int64_t end);
  Status KeepOnly(SequenceId id, int64_t begin, int64_t end);
  Status SlideWindow(SequenceId id, int64_t num_tokens, int64_t sink_tokens);
  Status Rest(SequenceId id, int64_t begin, int64_t end);
  Status BeginPrompt(SequenceId id);
  Status EndPrompt(SequenceId id, bool fold = true);

  // A whole step with random rows; in every layer all of its tokens attend and are compared.
  Status Step(std::span<const StepEntry> entries, const AttendOptions& options = {});
  // Appends to the first `num_layers` layers as Step does, then aborts.
  Status AbortedStep(std::span<const StepEntry> entries, int num_layers);
  // Steps of random sizes up to three pages, until the sequence has `tokens` more.
  Status Grow(SequenceId id, int64_t tokens, const AttendOptions& options = {});
  // The last positions of one sequence attend, outside a step.
  Status Attend(int layer, SequenceId id, int num_queries, const AttendOptions& options = {});

  // Compares everything that can be read of every sequence.
  Status Compare() const;

 private:
  struct Rows {
    std::vector<float> keys;    // [num_tokens, kv_heads, key_dim]
    std::vector<float> values;  // [num_tokens, kv_heads, value_dim]
  };
  struct Request {
    SequenceId id;
    int num_queries = 0;
    int64_t first_position = 0;
  };

  Rows MakeRows(int num_tokens);
  Status AppendRows(int layer, const StepEntry& entry);
  Status AttendAll(int layer, std::span<const Request> requests, const AttendOptions& options);
  Status CompareAttention(int layer, const Request& request, const AttendOptions& options,
                          const float* queries, const float* output,
                          const float* log_sum_exp) const;
  Status CompareSequence(SequenceId id) const;
  Status CompareRows(SequenceId id, int layer) const;

  std::unique_ptr<Cache> cache_;
  ReferenceCache reference_;
  RowRandom random_;
  int rows_per_nan_ = 0;
  std::vector<SequenceId> sequences_;
};

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_CACHE_TWIN_H_
