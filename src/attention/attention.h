// Attention of a batch of ragged requests over one layer's pages on the CPU: who computes what,
// when.
//
// Order of work, which is what makes results independent of the thread count, bit for bit:
//   prepare   each request and KV head: scale the queries, bring them into every key space in use
//   split     each run of 16 pages by index (parallel; see split_attention.h)
//   merge     each request and KV head: splits in ascending order, value spaces brought together
// With many query rows (prefill) the rows are cut into chunks, and one task walks all splits of a
// chunk and merges as it goes: the same arithmetic in the same order, without keeping every split's
// accumulators. A row's result does not depend on the rows beside it.

#ifndef VARVE_ATTENTION_ATTENTION_H_
#define VARVE_ATTENTION_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "attention/split_attention.h"
#include "varve/cache.h"

namespace varve {

// A byte buffer that only grows; aligned to 64.
class ScratchBuffer {
 public:
  // At least `bytes`; the content does not survive growth.
  std::byte* Reserve(size_t bytes);
  std::byte* data() const { return data_.get(); }
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
  // `stages` belongs to the workers of the executor. All outlive this.
  Attention(const CacheShape& shape, const Kernels& kernels, Executor* executor,
            StageTotals* stages);

  // Requests have been checked by the cache. Reports to `observer` unless null. Fails, with the
  // outputs undefined and nothing reported, if a packed page cannot be restored.
  Status Run(int layer, const LayerSpaces& spaces, std::span<const AttentionRequest> requests,
             const AttendOptions& options, AttentionObserver* observer);

  size_t scratch_bytes() const;

  const UnpackedStrips& unpacked() const { return unpacked_; }

 private:
  struct Job;   // one request
  struct Task;  // some rows of some KV heads of a job, over one split or all

  // The jobs of a call with their buffers, which `shared_` and the workers hold.
  std::vector<Job> MakeJobs(int layer, const LayerSpaces& spaces,
                            std::span<const AttentionRequest> requests,
                            const AttendOptions& options, bool observed);
  std::vector<Task> MakeTasks(std::span<const Job> jobs) const;
  Job MakeJob(int layer, const LayerSpaces& spaces, const AttentionRequest& request,
              const AttendOptions& options) const;
  void Prepare(const Job& job, int head) const;
  PreparedQueries PreparedFor(const Job& job, int head, const QueryRows& chunk) const;
  void RunSplitTask(const Job& job, const Task& task, int worker);
  void RunChunkTask(const Job& job, const Task& task, int worker);
  void MergeHead(const Job& job, int head, int worker);
  void Finish(const Job& job, int head, const QueryRows& chunk, const Partial& total);
  float* PageSumsFor(const Job& job, const QueryRows& chunk, int worker) const;
  void KeepPageSums(const Job& job, int head, const QueryRows& chunk, int split,
                    const Partial& part, const float* page_sums) const;
  void Observe(const Job& job, AttentionObserver* observer);

  CacheShape shape_;
  const Kernels& kernels_;
  Executor* executor_;
  StageTotals* stages_;
  ScratchBuffer shared_;
  struct Worker {
    explicit Worker(const CacheShape& shape) : reader(shape) {}
    ScratchBuffer scratch;
    ReadAhead ahead;
    StripReader reader;
  };
  // The first error of the workers; their counts are added up.
  Status CollectReaders();

  std::vector<Worker> workers_;
  std::vector<float> mass_;
  UnpackedStrips unpacked_;
};

}  // namespace varve

#endif  // VARVE_ATTENTION_ATTENTION_H_
