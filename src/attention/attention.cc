#include "attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <new>

#include "base/align.h"
#include "base/run_parallel.h"

namespace varve {
namespace {

// Query rows of a KV head that are worked off together. Up to one chunk, splits are tasks of their
// own; above, a task takes a chunk over all splits. 64 rows of scores are 256 KiB.
constexpr int kChunkRows = 64;
// Below this many rows in all the caller prepares alone, below this many rows of splits it merges
// alone: waking threads would cost more.
constexpr int kInlineRows = 64;
constexpr int kInlineMerges = 512;

// Tasks are as large as leaves every thread so many, and smaller toward the end, so that all
// threads end at about the same time.
constexpr int kTasksPerThread = 6;
constexpr int kLastTasksPerThread = 2;

constexpr size_t Align64(size_t bytes) { return AlignUp(bytes, 64); }

}  // namespace

std::byte* ScratchBuffer::Reserve(size_t bytes) {
  if (bytes > bytes_) {
    data_.reset();
    bytes_ = Align64(bytes);
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes_)));
    if (data_ == nullptr) {
      bytes_ = 0;
      throw std::bad_alloc();
    }
  }
  return data_.get();
}

void ScratchBuffer::Free::operator()(std::byte* data) const { std::free(data); }

struct Attention::Job {
  const AttendRequest* request;
  QueryRows all;      // every query of the request
  int chunk_queries;  // queries of a chunk; the last one may have fewer
  int splits;
  float scale;

  // [kv_heads] blocks of prepared queries: the scaled rows, then every key space at its offset.
  size_t prepared_stride;
  std::array<size_t, kMaxKeySpaces> prepared_offset;
  size_t partial_bytes;  // of a chunk
  // Offsets into the shared buffer. Partials [kv_heads, splits] only while one chunk holds all
  // rows; with an observer [kv_heads, rows, pages] maximum and sum of every page, and the
  // log-sum-exp [kv_heads, rows].
  std::byte* prepared;
  std::byte* partials;
  float* page_max;
  float* page_sum;
  float* log_sum_exp;

  bool one_chunk() const { return chunk_queries >= all.num_queries; }
  QueryRows Chunk(int first_query) const {
    QueryRows chunk = all;
    chunk.first_position += first_query;
    chunk.num_queries = std::min(chunk_queries, all.num_queries - first_query);
    return chunk;
  }
  int FirstRow(const QueryRows& chunk) const {
    return static_cast<int>(chunk.first_position - all.first_position) * all.shape->group_size;
  }
};

struct Attention::Task {
  uint32_t job;
  int head;  // the first of num_heads
  int num_heads;
  int first_query;
  int split;  // -1: all of them
};

Attention::Attention(const CacheShape& shape, const Kernels& kernels, Executor* executor,
                     StageTotals* stages)
    : shape_(shape), kernels_(kernels), executor_(executor), stages_(stages) {
  for (int i = 0; i < executor->num_threads(); ++i) workers_.emplace_back(shape_);
}

size_t Attention::scratch_bytes() const {
  size_t bytes = shared_.bytes() + mass_.capacity() * sizeof(float);
  for (const Worker& worker : workers_)
    bytes += worker.scratch.bytes() + worker.reader.buffer_bytes();
  return bytes;
}

Attention::Job Attention::MakeJob(int layer, const LayerSpaces& spaces,
                                  const AttentionRequest& request,
                                  const AttendOptions& options) const {
  Job job = {};
  job.request = request.request;
  job.all = {&shape_,
             &spaces,
             &options,
             request.pages,
             &kernels_,
             layer,
             request.first_query_position,
             request.request->num_queries};
  job.chunk_queries = std::max(1, kChunkRows / shape_.group_size);
  job.splits = static_cast<int>(CeilDiv(request.pages.size(), kSplitPages));
  job.scale =
      options.scale != 0.0f ? options.scale : 1.0f / std::sqrt(static_cast<float>(shape_.key_dim));
  const StripShape key_shape = {layer, 0, shape_.key_dim, shape_.page_tokens};
  job.prepared_stride =
      Align64(static_cast<size_t>(job.all.rows()) * shape_.key_dim * sizeof(float));
  for (int space = 0; space < kMaxKeySpaces; ++space) {
    job.prepared_offset[space] = job.prepared_stride;
    if (spaces.key[space] == nullptr) continue;
    job.prepared_stride += Align64(static_cast<size_t>(job.all.rows()) *
                                   spaces.key[space]->PreparedRowBytes(key_shape, job.all.rows()));
  }
  job.partial_bytes = Partial::Bytes(job.Chunk(0));
  return job;
}

// --- stages ---

void Attention::Prepare(const Job& job, int head) const {
  const AttendRequest& request = *job.request;
  const int group = shape_.group_size;
  const int dim = shape_.key_dim;
  const ptrdiff_t head_stride = request.query_head_stride != 0 ? request.query_head_stride : dim;
  const ptrdiff_t token_stride = request.query_token_stride != 0
                                     ? request.query_token_stride
                                     : head_stride * shape_.num_kv_heads * group;
  std::byte* block = job.prepared + head * job.prepared_stride;
  float* scaled = reinterpret_cast<float*>(block);
  for (int query = 0; query < request.num_queries; ++query) {
    for (int g = 0; g < group; ++g) {
      const float* from =
          request.f32_queries() + query * token_stride + (head * group + g) * head_stride;
      float* to = scaled + static_cast<size_t>(query * group + g) * dim;
      for (int d = 0; d < dim; ++d) to[d] = from[d] * job.scale;
    }
  }
  const StripShape shape = {job.all.layer, head, dim, shape_.page_tokens};
  for (int space = 0; space < kMaxKeySpaces; ++space) {
    const Rung* rung = job.all.spaces->key[space];
    if (rung != nullptr)
      rung->PrepareQuery(shape, scaled, job.all.rows(), block + job.prepared_offset[space]);
  }
}

PreparedQueries Attention::PreparedFor(const Job& job, int head, const QueryRows& chunk) const {
  const StripShape shape = {job.all.layer, head, shape_.key_dim, shape_.page_tokens};
  PreparedQueries prepared = {};
  for (int space = 0; space < kMaxKeySpaces; ++space) {
    const Rung* rung = job.all.spaces->key[space];
    if (rung == nullptr) continue;
    prepared[space] =
        job.prepared + head * job.prepared_stride + job.prepared_offset[space] +
        static_cast<size_t>(job.FirstRow(chunk)) * rung->PreparedRowBytes(shape, job.all.rows());
  }
  return prepared;
}

// Behind the scores of the worker, where an observer wants the pages' sums.
float* Attention::PageSumsFor(const Job& job, const QueryRows& chunk, int worker) const {
  if (job.page_sum == nullptr) return nullptr;
  return reinterpret_cast<float*>(workers_[worker].scratch.data() + SplitScratchBytes(chunk));
}

void Attention::KeepPageSums(const Job& job, int head, const QueryRows& chunk, int split,
                             const Partial& part, const float* page_sums) const {
  if (page_sums == nullptr) return;
  const size_t pages = job.all.pages.size();
  const size_t begin = static_cast<size_t>(split) * kSplitPages;
  const size_t count = std::min<size_t>(pages - begin, kSplitPages);
  for (int row = 0; row < chunk.rows(); ++row) {
    const size_t at =
        (static_cast<size_t>(head) * job.all.rows() + job.FirstRow(chunk) + row) * pages + begin;
    std::copy_n(page_sums + row * count, count, job.page_sum + at);
    std::fill_n(job.page_max + at, count, part.max[row]);
  }
}

void Attention::RunSplitTask(const Job& job, const Task& task, int worker) {
  const QueryRows chunk = job.Chunk(0);
  ReadAhead& ahead = workers_[worker].ahead;
  ahead.Clear();
  for (int head = task.head; head < task.head + task.num_heads; ++head)
    AddReads(chunk, head, task.split, ahead);
  size_t strips_read = 0;
  for (int head = task.head; head < task.head + task.num_heads; ++head) {
    const size_t index = static_cast<size_t>(head) * job.splits + task.split;
    Partial partial = Partial::At(chunk, job.partials + index * job.partial_bytes);
    float* page_sums = PageSumsFor(job, chunk, worker);
    AttendSplit(chunk, head, task.split, PreparedFor(job, head, chunk),
                workers_[worker].scratch.data(), page_sums, workers_[worker].reader, ahead,
                strips_read, stages_->For(worker), partial);
    KeepPageSums(job, head, chunk, task.split, partial, page_sums);
  }
}

void Attention::RunChunkTask(const Job& job, const Task& task, int worker) {
  const QueryRows chunk = job.Chunk(task.first_query);
  const PreparedQueries prepared = PreparedFor(job, task.head, chunk);
  std::byte* partials = workers_[worker].scratch.data() + SplitScratchBytes(job.Chunk(0)) +
                        Align64(job.Chunk(0).rows() * kSplitPages * sizeof(float));
  Partial total = Partial::At(chunk, partials);
  Partial part = Partial::At(chunk, partials + job.partial_bytes);
  total.Reset(chunk.rows());
  ReadAhead& ahead = workers_[worker].ahead;
  ahead.Clear();
  for (int split = 0; split < job.splits; ++split) AddReads(chunk, task.head, split, ahead);
  size_t strips_read = 0;
  for (int split = 0; split < job.splits; ++split) {
    float* page_sums = PageSumsFor(job, chunk, worker);
    AttendSplit(chunk, task.head, split, prepared, workers_[worker].scratch.data(), page_sums,
                workers_[worker].reader, ahead, strips_read, stages_->For(worker), part);
    KeepPageSums(job, task.head, chunk, split, part, page_sums);
    StageClock clock(stages_->For(worker));
    MergePartials(chunk, total, {&part, 1});
    clock.Lap(&StageTimes::merge_us);
  }
  StageClock clock(stages_->For(worker));
  Finish(job, task.head, chunk, total);
  clock.Lap(&StageTimes::merge_us);
}

void Attention::MergeHead(const Job& job, int head, int worker) {
  StageClock clock(stages_->For(worker));
  const QueryRows chunk = job.Chunk(0);
  Partial total = Partial::At(chunk, workers_[worker].scratch.data());
  total.Reset(chunk.rows());
  std::array<Partial, kMergedPartials> parts;
  for (int split = 0; split < job.splits;) {
    size_t count = 0;
    for (; count < parts.size() && split < job.splits; ++split) {
      const size_t index = static_cast<size_t>(head) * job.splits + split;
      parts[count++] = Partial::At(chunk, job.partials + index * job.partial_bytes);
    }
    MergePartials(chunk, total, {parts.data(), count});
  }
  Finish(job, head, chunk, total);
  clock.Lap(&StageTimes::merge_us);
}

void Attention::Finish(const Job& job, int head, const QueryRows& chunk, const Partial& total) {
  const AttendRequest& request = *job.request;
  const int group = shape_.group_size;
  const ptrdiff_t head_stride =
      request.output_head_stride != 0 ? request.output_head_stride : shape_.value_dim;
  const ptrdiff_t token_stride = request.output_token_stride != 0
                                     ? request.output_token_stride
                                     : head_stride * shape_.num_kv_heads * group;
  for (int row = 0; row < chunk.rows(); ++row) {
    const int job_row = job.FirstRow(chunk) + row;
    const int query = job_row / group;
    const int query_head = head * group + job_row % group;
    const float log_sum_exp =
        FinishRow(chunk, head, total, row,
                  request.f32_output() + query * token_stride + query_head * head_stride);
    if (request.log_sum_exp != nullptr) {
      request.log_sum_exp[query * shape_.num_kv_heads * group + query_head] = log_sum_exp;
    }
    if (job.log_sum_exp != nullptr) job.log_sum_exp[head * job.all.rows() + job_row] = log_sum_exp;
  }
}

void Attention::Observe(const Job& job, AttentionObserver* observer) {
  const std::span<const TableEntry> entries = job.all.pages;
  const int heads = shape_.num_kv_heads * shape_.group_size;
  const size_t pages = entries.size();
  std::vector<PageSpan> spans;
  spans.reserve(pages);
  for (const TableEntry& entry : entries) {
    spans.push_back({entry.page->first_position, entry.EndPosition() - entry.page->first_position,
                     entry.rows, entry.live.Count()});
  }
  mass_.resize(static_cast<size_t>(job.all.num_queries) * heads * pages);
  for (int head = 0; head < shape_.num_kv_heads; ++head) {
    for (int row = 0; row < job.all.rows(); ++row) {
      const size_t job_row = static_cast<size_t>(head) * job.all.rows() + row;
      const int query = row / shape_.group_size;
      const int query_head = head * shape_.group_size + row % shape_.group_size;
      kernels_.page_mass(job.page_max + job_row * pages, job.page_sum + job_row * pages, pages,
                         job.log_sum_exp[job_row],
                         mass_.data() + (static_cast<size_t>(query) * heads + query_head) * pages);
    }
  }
  observer->OnAttention({job.all.layer, job.request->sequence, job.all.first_position,
                         job.all.num_queries, heads, spans, mass_.data()});
}

Status Attention::CollectReaders() {
  Status first;
  for (Worker& worker : workers_) {
    if (first.ok()) first = worker.reader.status();
    unpacked_.strips += worker.reader.strips_unpacked();
    unpacked_.bytes += worker.reader.bytes_unpacked();
    unpacked_.us += worker.reader.unpack_us();
  }
  return first;
}

std::vector<Attention::Job> Attention::MakeJobs(int layer, const LayerSpaces& spaces,
                                                std::span<const AttentionRequest> requests,
                                                const AttendOptions& options, bool observed) {
  const size_t kv_heads = static_cast<size_t>(shape_.num_kv_heads);
  std::vector<Job> jobs;
  size_t shared_bytes = 0;
  size_t worker_bytes = 0;
  // First the sizes, as offsets; then the buffer exists and becomes their base.
  const auto place = [&shared_bytes](size_t bytes) {
    const size_t at = shared_bytes;
    shared_bytes += Align64(bytes);
    return at;
  };
  struct Offsets {
    size_t prepared, partials, page_max, page_sum, log_sum_exp;
  };
  std::vector<Offsets> offsets;
  for (const AttentionRequest& request : requests) {
    const Job& job = jobs.emplace_back(MakeJob(layer, spaces, request, options));
    const size_t rows = static_cast<size_t>(job.all.rows());
    const size_t row_bytes = observed ? kv_heads * rows * sizeof(float) : 0;
    offsets.push_back({place(kv_heads * job.prepared_stride),
                       place(job.one_chunk() ? kv_heads * job.splits * job.partial_bytes : 0),
                       place(row_bytes * request.pages.size()),
                       place(row_bytes * request.pages.size()), place(row_bytes)});
    const QueryRows chunk = job.Chunk(0);
    worker_bytes = std::max(worker_bytes, SplitScratchBytes(chunk) +
                                              Align64(chunk.rows() * kSplitPages * sizeof(float)) +
                                              2 * job.partial_bytes);
  }
  std::byte* shared = shared_.Reserve(shared_bytes);
  for (Worker& worker : workers_) worker.scratch.Reserve(worker_bytes);
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    job.prepared = shared + offsets[i].prepared;
    job.partials = shared + offsets[i].partials;
    if (!observed) continue;
    job.page_max = reinterpret_cast<float*>(shared + offsets[i].page_max);
    job.page_sum = reinterpret_cast<float*>(shared + offsets[i].page_sum);
    job.log_sum_exp = reinterpret_cast<float*>(shared + offsets[i].log_sum_exp);
  }
  return jobs;
}

std::vector<Attention::Task> Attention::MakeTasks(std::span<const Job> jobs) const {
  const int kv_heads = shape_.num_kv_heads;
  // Neighbouring heads of a split form one task, so that reading ahead crosses from head to head.
  int left = 0;
  for (const Job& job : jobs) left += job.one_chunk() ? kv_heads * job.splits : 0;
  const int threads = executor_->num_threads();
  const int most_heads = std::clamp(left / (kTasksPerThread * threads), 1, kv_heads);
  std::vector<Task> tasks;
  for (uint32_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    for (int split = 0; job.one_chunk() && split < job.splits; ++split) {
      for (int head = 0; head < kv_heads;) {
        const int heads = std::min(
            kv_heads - head, std::clamp(left / (kLastTasksPerThread * threads), 1, most_heads));
        tasks.push_back({i, head, heads, 0, split});
        head += heads;
        left -= heads;
      }
    }
    if (job.one_chunk()) continue;
    for (int query = 0; query < job.all.num_queries; query += job.chunk_queries) {
      for (int head = 0; head < kv_heads; ++head) tasks.push_back({i, head, 1, query, -1});
    }
  }
  return tasks;
}

Status Attention::Run(int layer, const LayerSpaces& spaces,
                      std::span<const AttentionRequest> requests, const AttendOptions& options,
                      AttentionObserver* observer) {
  // After a call that threw they still have its errors.
  for (Worker& worker : workers_) worker.reader.Reset();
  const std::vector<Job> jobs = MakeJobs(layer, spaces, requests, options, observer != nullptr);
  const std::vector<Task> tasks = MakeTasks(jobs);
  std::vector<Task> heads;
  int64_t total_rows = 0;
  int64_t merges = 0;
  for (uint32_t i = 0; i < jobs.size(); ++i) {
    for (int head = 0; head < shape_.num_kv_heads; ++head) heads.push_back({i, head, 1, 0, -1});
    const int64_t rows = int64_t{shape_.num_kv_heads} * jobs[i].all.rows();
    total_rows += rows;
    merges += jobs[i].one_chunk() ? rows * jobs[i].splits : 0;
  }
  const auto for_heads = [&](bool in_parallel, const std::function<void(size_t, int)>& run) {
    if (in_parallel) return RunParallel(*executor_, heads.size(), run);
    for (size_t t = 0; t < heads.size(); ++t) run(t, 0);
  };
  StageClock(stages_->For(0)).Count(&StageTimes::attend_passes, 1);
  for_heads(total_rows > kInlineRows, [&](size_t t, int worker) {
    StageClock clock(stages_->For(worker));
    Prepare(jobs[heads[t].job], heads[t].head);
    clock.Lap(&StageTimes::prepare_us);
  });
  RunParallel(*executor_, tasks.size(), [&](size_t t, int worker) {
    const Job& job = jobs[tasks[t].job];
    job.one_chunk() ? RunSplitTask(job, tasks[t], worker) : RunChunkTask(job, tasks[t], worker);
  });
  for_heads(merges > kInlineMerges, [&](size_t t, int worker) {
    const Job& job = jobs[heads[t].job];
    if (job.one_chunk()) MergeHead(job, heads[t].head, worker);
  });
  VARVE_RETURN_IF_ERROR(CollectReaders());
  if (observer != nullptr) {
    for (const Job& job : jobs) Observe(job, observer);
  }
  return Status();
}

}  // namespace varve
