// Attention of a batch of ragged requests over one layer's page tables.
//
// Order of work, which is what makes results independent of the thread count, bit for bit:
//   prepare   each request and KV head: scale the queries, bring them into every key space in use
//   split     each run of 16 pages by index: scores, running softmax, weighted values (parallel)
//   merge     each request and KV head: splits in ascending order, value spaces brought together
// With many query rows (prefill) one task walks all splits of a KV head and merges as it goes: the
// same arithmetic in the same order, without keeping every split's accumulators.
//
// All query heads of a KV head, of all queries of a request, are rows of one problem: a page is
// read once for all of them. Row = query * group_size + head in group.

#ifndef VARVE_CACHE_ATTENTION_H_
#define VARVE_CACHE_ATTENTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/page.h"
#include "varve/cache.h"

namespace varve {

inline constexpr int kSplitPages = 16;

// One rung for every key space and value space that pages of a layer may be in; null if unused.
struct LayerSpaces {
  std::array<const Rung*, kNumKeySpaces> key = {};
  std::array<const Rung*, kNumValueSpaces> value = {};
};

struct AttentionRequest {
  const AttendRequest* request = nullptr;
  const LayerTable* table = nullptr;
  int64_t first_query_position = 0;  // of query 0; the others follow
};

// A byte buffer that only grows; aligned to 64.
class ScratchBuffer {
 public:
  std::byte* Reserve(size_t bytes);
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

// Keeps the work buffers between calls. Not thread-safe; parallel inside.
class Attention {
 public:
  Attention(const CacheShape& shape, Executor* executor);

  // Requests have been checked by the cache. Reports to `observer` unless null.
  void Run(int layer, const LayerSpaces& spaces, std::span<const AttentionRequest> requests,
           const AttendOptions& options, AttentionObserver* observer);

  size_t scratch_bytes() const;

 private:
  struct Job;      // one request
  struct Partial;  // running softmax and accumulators of the rows of one KV head

  size_t AccumulatorBytes(const LayerSpaces& spaces, int rows) const;
  void Prepare(Job& job, int head) const;
  void RunSplit(const Job& job, int head, int split, int worker, Partial& partial);
  void AddPageValues(const Job& job, const TableEntry& entry, int head, bool all_visible, float* weights,
                     const float* weight_max, float* accumulators, Prefetch next) const;
  void MergePartial(const Job& job, Partial& total, const Partial& part) const;
  void Finish(const Job& job, int head, const Partial& total, int worker);
  void RunHeadAtOnce(const Job& job, int head, int worker);
  void Observe(const Job& job, AttentionObserver* observer);
  bool PageVisible(const Job& job, const TableEntry& entry) const;
  bool PageFullyVisible(const Job& job, const TableEntry& entry) const;
  bool RowVisible(const Job& job, const TableEntry& entry, int query, int row) const;
  Partial PartialAt(const Job& job, std::byte* base) const;
  void Reset(const Job& job, Partial& partial) const;

  CacheShape shape_;
  Executor* executor_;
  ScratchBuffer shared_;
  std::vector<ScratchBuffer> workers_;
  std::vector<float> mass_;
};

}  // namespace varve

#endif  // VARVE_CACHE_ATTENTION_H_
