#include "cache/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace varve {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// Above this many query rows per KV head a task takes a whole KV head instead of one split.
constexpr int kMaxSplitRows = 64;
// Below this much work the caller prepares and merges alone: waking threads would cost more.
constexpr size_t kInlineRows = 64;

constexpr size_t Align64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Start of a worker's buffer: scores and three row arrays of the page in work, or one output row.
size_t PageBufferBytes(const CacheShape& shape, int rows) {
  return Align64(std::max<size_t>(static_cast<size_t>(rows) * (shape.page_tokens + 3), shape.value_dim) *
                 sizeof(float));
}

}  // namespace

std::byte* ScratchBuffer::Reserve(size_t bytes) {
  if (bytes > bytes_) {
    data_.reset();
    bytes_ = Align64(bytes);
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes_)));
    if (data_ == nullptr) std::abort();  // as operator new would end the process: no page is at stake
  }
  return data_.get();
}

void ScratchBuffer::Free::operator()(std::byte* data) const { std::free(data); }

struct Attention::Job {
  const AttendRequest* request;
  const LayerTable* table;
  int layer;
  int64_t first_position;  // of query 0
  int64_t last_position;   // of the last query
  int rows;                // num_queries * group_size
  int splits;
  const LayerSpaces* spaces;
  const AttendOptions* options;
  float scale;

  // [kv_heads] blocks of prepared queries; offsets of the key spaces inside a block.
  std::byte* prepared;
  size_t prepared_stride;
  std::array<size_t, kNumKeySpaces> prepared_offset;
  // Split mode: [kv_heads, splits] partials.
  std::byte* partials;
  size_t partial_bytes;
  // With an observer: [kv_heads, rows, pages] running maximum and sum of every page, and the
  // log-sum-exp [kv_heads, rows].
  float* page_max;
  float* page_sum;
  float* log_sum_exp;
};

struct Attention::Partial {
  float* max;  // [rows]
  float* sum;  // [rows]
  uint32_t* touched;  // bit per value space that has an accumulator
  std::array<float*, kNumValueSpaces> accumulators;  // [rows, AccumulatorFloats]
};

Attention::Attention(const CacheShape& shape, Executor* executor)
    : shape_(shape), executor_(executor), workers_(executor->num_threads()) {}

size_t Attention::scratch_bytes() const {
  size_t bytes = shared_.bytes() + mass_.capacity() * sizeof(float);
  for (const ScratchBuffer& worker : workers_) bytes += worker.bytes();
  return bytes;
}

size_t Attention::AccumulatorBytes(const LayerSpaces& spaces, int rows) const {
  const StripShape shape = {0, 0, shape_.value_dim, shape_.page_tokens};
  size_t bytes = 2 * Align64(rows * sizeof(float)) + 64;
  for (const Rung* rung : spaces.value) {
    if (rung != nullptr) bytes += Align64(rows * rung->AccumulatorFloats(shape) * sizeof(float));
  }
  return bytes;
}

Attention::Partial Attention::PartialAt(const Job& job, std::byte* base) const {
  const StripShape shape = {job.layer, 0, shape_.value_dim, shape_.page_tokens};
  Partial partial;
  const size_t row_bytes = Align64(job.rows * sizeof(float));
  partial.max = reinterpret_cast<float*>(base);
  partial.sum = reinterpret_cast<float*>(base + row_bytes);
  partial.touched = reinterpret_cast<uint32_t*>(base + 2 * row_bytes);
  base += 2 * row_bytes + 64;
  for (int space = 0; space < kNumValueSpaces; ++space) {
    const Rung* rung = job.spaces->value[space];
    partial.accumulators[space] = reinterpret_cast<float*>(base);
    if (rung != nullptr) base += Align64(job.rows * rung->AccumulatorFloats(shape) * sizeof(float));
  }
  return partial;
}

void Attention::Reset(const Job& job, Partial& partial) const {
  std::fill_n(partial.max, job.rows, kMinusInf);
  std::fill_n(partial.sum, job.rows, 0.0f);
  *partial.touched = 0;
}

// --- visibility ---

bool Attention::PageVisible(const Job& job, const TableEntry& entry) const {
  if (job.options->causal && entry.page->RowPosition(0) > job.last_position) return false;
  const int64_t window = job.options->window;
  return window <= 0 || entry.page->RowPosition(entry.rows - 1) > job.first_position - window;
}

bool Attention::PageFullyVisible(const Job& job, const TableEntry& entry) const {
  if (!entry.live.IsPrefix(entry.rows)) return false;
  if (job.options->causal && entry.page->RowPosition(entry.rows - 1) > job.first_position) return false;
  const int64_t window = job.options->window;
  return window <= 0 || entry.page->RowPosition(0) > job.last_position - window;
}

bool Attention::RowVisible(const Job& job, const TableEntry& entry, int query, int row) const {
  if (!entry.live.Get(row)) return false;
  const int64_t position = entry.page->RowPosition(row);
  const int64_t query_position = job.first_position + query;
  if (job.options->causal && position > query_position) return false;
  return job.options->window <= 0 || position > query_position - job.options->window;
}

// --- stages ---

void Attention::Prepare(Job& job, int head) const {
  const AttendRequest& request = *job.request;
  const int group = shape_.group_size;
  const int dim = shape_.key_dim;
  const ptrdiff_t head_stride = request.query_head_stride != 0 ? request.query_head_stride : dim;
  const ptrdiff_t token_stride = request.query_token_stride != 0
                                     ? request.query_token_stride
                                     : head_stride * shape_.num_kv_heads * group;
  std::byte* block = job.prepared + head * job.prepared_stride;
  // The scaled rows come first; every space is made from them.
  float* scaled = reinterpret_cast<float*>(block);
  for (int query = 0; query < request.num_queries; ++query) {
    for (int g = 0; g < group; ++g) {
      const float* from = request.queries + query * token_stride + (head * group + g) * head_stride;
      float* to = scaled + static_cast<size_t>(query * group + g) * dim;
      for (int d = 0; d < dim; ++d) to[d] = from[d] * job.scale;
    }
  }
  const StripShape shape = {job.layer, head, dim, shape_.page_tokens};
  for (int space = 0; space < kNumKeySpaces; ++space) {
    const Rung* rung = job.spaces->key[space];
    if (rung != nullptr) rung->PrepareQuery(shape, scaled, job.rows, block + job.prepared_offset[space]);
  }
}

void Attention::AddPageValues(const Job& job, const TableEntry& entry, int head, bool all_visible,
                              float* weights, const float* weight_max, float* accumulators,
                              Prefetch next) const {
  const Page& page = *entry.page;
  const Rung& rung = *page.value_rung;
  const StripShape shape = {job.layer, head, shape_.value_dim, shape_.page_tokens};
  const std::byte* strip = page.ValueStrip(head);
  if (all_visible || rung.values_always_finite()) {
    rung.AddValues(shape, strip, 0, entry.rows, weights, weight_max, job.rows, accumulators, next);
    return;
  }
  // A hidden row may hold NaN: each query sums over the runs of rows that it sees.
  const int group = shape_.group_size;
  const size_t floats = rung.AccumulatorFloats(shape);
  for (int query = 0; query < job.request->num_queries; ++query) {
    const size_t first_row = static_cast<size_t>(query) * group;
    for (int row = 0; row < entry.rows;) {
      if (!RowVisible(job, entry, query, row)) {
        ++row;
        continue;
      }
      int end = row + 1;
      while (end < entry.rows && RowVisible(job, entry, query, end)) ++end;
      rung.AddValues(shape, strip, row, end - row, weights + first_row * shape_.page_tokens,
                     weight_max + first_row, group, accumulators + first_row * floats, {});
      row = end;
    }
  }
}

void Attention::RunSplit(const Job& job, int head, int split, int worker, Partial& partial) {
  const Kernels& kernels = ActiveKernels();
  const size_t page_tokens = static_cast<size_t>(shape_.page_tokens);
  const size_t rows = static_cast<size_t>(job.rows);
  const StripShape key_shape = {job.layer, head, shape_.key_dim, shape_.page_tokens};
  const StripShape value_shape = {job.layer, head, shape_.value_dim, shape_.page_tokens};
  float* scores = reinterpret_cast<float*>(workers_[worker].Reserve(0));
  float* page_sum = scores + rows * page_tokens;
  float* rescale = page_sum + rows;
  float* weight_max = rescale + rows;
  const std::byte* prepared = job.prepared + head * job.prepared_stride;
  const std::vector<TableEntry>& entries = job.table->entries;
  const size_t begin = static_cast<size_t>(split) * kSplitPages;
  const size_t end = std::min(entries.size(), begin + kSplitPages);

  Reset(job, partial);
  for (size_t p = begin; p < end; ++p) {
    const TableEntry& entry = entries[p];
    const Page& page = *entry.page;
    float* observed = job.page_max == nullptr ? nullptr : job.page_max + head * rows * entries.size();
    if (!PageVisible(job, entry)) {
      for (size_t row = 0; observed != nullptr && row < rows; ++row) {
        observed[row * entries.size() + p] = 0.0f;
        job.page_sum[(head * rows + row) * entries.size() + p] = 0.0f;
      }
      continue;
    }
    page.key_rung->Scores(key_shape, page.KeyStrip(head),
                          prepared + job.prepared_offset[static_cast<int>(page.key_rung->key_space())],
                          job.rows, entry.rows, scores,
                          {page.ValueStrip(head), page.value_strip_bytes});
    if (job.options->soft_cap > 0.0f) {
      const float cap = job.options->soft_cap;
      for (size_t row = 0; row < rows; ++row) {
        for (int t = 0; t < entry.rows; ++t) {
          float& score = scores[row * page_tokens + t];
          score = cap * std::tanh(score / cap);
        }
      }
    }
    const bool all_visible = PageFullyVisible(job, entry);
    for (size_t row = 0; !all_visible && row < rows; ++row) {
      for (int t = 0; t < entry.rows; ++t) {
        if (!RowVisible(job, entry, static_cast<int>(row) / shape_.group_size, t)) {
          scores[row * page_tokens + t] = kMinusInf;
        }
      }
    }
    kernels.softmax({scores, job.rows, shape_.page_tokens, entry.rows, partial.max, page_sum, rescale,
                     weight_max});
    for (size_t row = 0; observed != nullptr && row < rows; ++row) {
      observed[row * entries.size() + p] = partial.max[row];
      job.page_sum[(head * rows + row) * entries.size() + p] = page_sum[row];
    }
    for (size_t row = 0; row < rows; ++row) {
      partial.sum[row] = partial.sum[row] * rescale[row] + page_sum[row];
      if (rescale[row] == 1.0f) continue;
      for (int space = 0; space < kNumValueSpaces; ++space) {
        if (!(*partial.touched >> space & 1)) continue;
        const size_t floats = job.spaces->value[space]->AccumulatorFloats(value_shape);
        kernels.scale(partial.accumulators[space] + row * floats, floats, rescale[row]);
      }
    }
    const int space = static_cast<int>(page.value_rung->value_space());
    if (!(*partial.touched >> space & 1)) {
      *partial.touched |= 1u << space;
      std::fill_n(partial.accumulators[space], rows * page.value_rung->AccumulatorFloats(value_shape), 0.0f);
    }
    Prefetch next;
    if (p + 1 < end) next = {entries[p + 1].page->KeyStrip(head), entries[p + 1].page->key_strip_bytes};
    AddPageValues(job, entry, head, all_visible, scores, weight_max, partial.accumulators[space], next);
  }
}

void Attention::MergePartial(const Job& job, Partial& total, const Partial& part) const {
  const Kernels& kernels = ActiveKernels();
  const StripShape shape = {job.layer, 0, shape_.value_dim, shape_.page_tokens};
  for (int space = 0; space < kNumValueSpaces; ++space) {
    if (!(*part.touched >> space & 1) || (*total.touched >> space & 1)) continue;
    *total.touched |= 1u << space;
    std::fill_n(total.accumulators[space],
                job.rows * job.spaces->value[space]->AccumulatorFloats(shape), 0.0f);
  }
  for (int row = 0; row < job.rows; ++row) {
    const float new_max = std::max(total.max[row], part.max[row]);
    if (new_max == kMinusInf) {
      total.sum[row] += part.sum[row];  // 0: no row seen so far; or NaN, from nothing but NaN scores
      continue;
    }
    const float keep = total.max[row] == new_max ? 1.0f : std::exp(total.max[row] - new_max);
    const float add = part.max[row] == new_max ? 1.0f : std::exp(part.max[row] - new_max);
    total.max[row] = new_max;
    total.sum[row] = total.sum[row] * keep + part.sum[row] * add;
    for (int space = 0; space < kNumValueSpaces; ++space) {
      if (!(*total.touched >> space & 1)) continue;
      const size_t floats = job.spaces->value[space]->AccumulatorFloats(shape);
      float* into = total.accumulators[space] + row * floats;
      if (keep != 1.0f) kernels.scale(into, floats, keep);
      if (*part.touched >> space & 1) {
        kernels.add_scaled(into, part.accumulators[space] + row * floats, floats, add);
      }
    }
  }
}

void Attention::Finish(const Job& job, int head, const Partial& total, int worker) {
  const AttendRequest& request = *job.request;
  const int group = shape_.group_size;
  const int dim = shape_.value_dim;
  const StripShape shape = {job.layer, head, dim, shape_.page_tokens};
  const ptrdiff_t head_stride = request.output_head_stride != 0 ? request.output_head_stride : dim;
  const ptrdiff_t token_stride = request.output_token_stride != 0
                                     ? request.output_token_stride
                                     : head_stride * shape_.num_kv_heads * group;
  float* row_out = reinterpret_cast<float*>(workers_[worker].Reserve(0));
  for (int row = 0; row < job.rows; ++row) {
    std::fill_n(row_out, dim, 0.0f);
    for (int space = 0; space < kNumValueSpaces; ++space) {
      if (!(*total.touched >> space & 1)) continue;
      const Rung* rung = job.spaces->value[space];
      rung->FinishValues(shape, total.accumulators[space] + row * rung->AccumulatorFloats(shape), 1, row_out);
    }
    const float sum = total.sum[row];
    const float norm = sum == 0.0f ? 0.0f : 1.0f / sum;  // NaN stays NaN
    const int query = row / group;
    const int query_head = head * group + row % group;
    float* out = request.output + query * token_stride + query_head * head_stride;
    for (int d = 0; d < dim; ++d) out[d] = row_out[d] * norm;
    const float log_sum_exp = sum == 0.0f ? kMinusInf : total.max[row] + std::log(sum);
    if (request.log_sum_exp != nullptr) {
      request.log_sum_exp[query * shape_.num_kv_heads * group + query_head] = log_sum_exp;
    }
    if (job.log_sum_exp != nullptr) job.log_sum_exp[head * job.rows + row] = log_sum_exp;
  }
}

void Attention::RunHeadAtOnce(const Job& job, int head, int worker) {
  // Behind the page buffers of the worker: the total and the split in work.
  std::byte* base = workers_[worker].Reserve(0) + PageBufferBytes(shape_, job.rows);
  Partial total = PartialAt(job, base);
  Partial part = PartialAt(job, base + job.partial_bytes);
  Reset(job, total);
  for (int split = 0; split < job.splits; ++split) {
    RunSplit(job, head, split, worker, part);
    MergePartial(job, total, part);
  }
  Finish(job, head, total, worker);
}

void Attention::Observe(const Job& job, AttentionObserver* observer) {
  const Kernels& kernels = ActiveKernels();
  const std::vector<TableEntry>& entries = job.table->entries;
  const int heads = shape_.num_kv_heads * shape_.group_size;
  const size_t pages = entries.size();
  std::vector<PageSpan> spans;
  spans.reserve(pages);
  for (const TableEntry& entry : entries) {
    spans.push_back({entry.page->first_position, entry.EndPosition() - entry.page->first_position,
                     entry.rows, entry.live.Count()});
  }
  mass_.resize(static_cast<size_t>(job.request->num_queries) * heads * pages);
  for (int head = 0; head < shape_.num_kv_heads; ++head) {
    for (int row = 0; row < job.rows; ++row) {
      const size_t from = (static_cast<size_t>(head) * job.rows + row) * pages;
      const int query = row / shape_.group_size;
      const int query_head = head * shape_.group_size + row % shape_.group_size;
      kernels.page_mass(job.page_max + from, job.page_sum + from, pages,
                        job.log_sum_exp[head * job.rows + row],
                        mass_.data() + (static_cast<size_t>(query) * heads + query_head) * pages);
    }
  }
  observer->OnAttention({job.layer, job.request->sequence, job.request->num_queries, heads, spans, mass_.data()});
}

void Attention::Run(int layer, const LayerSpaces& spaces, std::span<const AttentionRequest> requests,
                    const AttendOptions& options, AttentionObserver* observer) {
  const size_t kv_heads = static_cast<size_t>(shape_.num_kv_heads);
  const StripShape key_shape = {layer, 0, shape_.key_dim, shape_.page_tokens};

  // Lay out the shared buffer.
  std::vector<Job> jobs(requests.size());
  size_t shared_bytes = 0;
  size_t worker_bytes = 0;
  size_t total_rows = 0;
  const auto take = [&shared_bytes](size_t bytes) {
    const size_t at = shared_bytes;
    shared_bytes += Align64(bytes);
    return at;
  };
  struct Offsets {
    size_t prepared, partials, page_max, page_sum, log_sum_exp;
  };
  std::vector<Offsets> offsets(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    job.request = requests[i].request;
    job.table = requests[i].table;
    job.layer = layer;
    job.first_position = requests[i].first_query_position;
    job.last_position = job.first_position + job.request->num_queries - 1;
    job.rows = job.request->num_queries * shape_.group_size;
    job.splits = static_cast<int>((job.table->entries.size() + kSplitPages - 1) / kSplitPages);
    job.spaces = &spaces;
    job.options = &options;
    job.scale = options.scale != 0.0f ? options.scale : 1.0f / std::sqrt(static_cast<float>(shape_.key_dim));
    job.prepared_stride = Align64(static_cast<size_t>(job.rows) * shape_.key_dim * sizeof(float));
    for (int space = 0; space < kNumKeySpaces; ++space) {
      job.prepared_offset[space] = job.prepared_stride;
      if (spaces.key[space] == nullptr) continue;
      job.prepared_stride += Align64(spaces.key[space]->PreparedQueryBytes(key_shape, job.rows));
    }
    job.partial_bytes = AccumulatorBytes(spaces, job.rows);
    const bool split_tasks = job.rows <= kMaxSplitRows;
    const size_t per_page = kv_heads * job.rows * job.table->entries.size() * sizeof(float);
    offsets[i].prepared = take(kv_heads * job.prepared_stride);
    offsets[i].partials = take(split_tasks ? kv_heads * job.splits * job.partial_bytes : 0);
    offsets[i].page_max = take(observer != nullptr ? per_page : 0);
    offsets[i].page_sum = take(observer != nullptr ? per_page : 0);
    offsets[i].log_sum_exp = take(observer != nullptr ? kv_heads * job.rows * sizeof(float) : 0);
    worker_bytes = std::max(worker_bytes, PageBufferBytes(shape_, job.rows) + 2 * job.partial_bytes);
    total_rows += kv_heads * job.rows;
  }
  std::byte* shared = shared_.Reserve(shared_bytes);
  for (ScratchBuffer& worker : workers_) worker.Reserve(worker_bytes);

  struct Task {
    uint32_t job, head;
    int split;  // -1: the whole head
  };
  std::vector<Task> heads;
  std::vector<Task> tasks;
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    job.prepared = shared + offsets[i].prepared;
    job.partials = shared + offsets[i].partials;
    const bool observed = observer != nullptr;
    job.page_max = observed ? reinterpret_cast<float*>(shared + offsets[i].page_max) : nullptr;
    job.page_sum = observed ? reinterpret_cast<float*>(shared + offsets[i].page_sum) : nullptr;
    job.log_sum_exp = observed ? reinterpret_cast<float*>(shared + offsets[i].log_sum_exp) : nullptr;
    for (uint32_t head = 0; head < kv_heads; ++head) heads.push_back({static_cast<uint32_t>(i), head, -1});
    if (job.rows > kMaxSplitRows) {
      for (uint32_t head = 0; head < kv_heads; ++head) tasks.push_back({static_cast<uint32_t>(i), head, -1});
    } else {
      for (int split = 0; split < job.splits; ++split) {
        for (uint32_t head = 0; head < kv_heads; ++head) {
          tasks.push_back({static_cast<uint32_t>(i), head, split});
        }
      }
    }
  }

  const auto for_heads = [&](const std::function<void(size_t, int)>& run) {
    if (total_rows > kInlineRows) return executor_->ParallelFor(heads.size(), run);
    for (size_t t = 0; t < heads.size(); ++t) run(t, 0);
  };
  for_heads([&](size_t t, int) { Prepare(jobs[heads[t].job], static_cast<int>(heads[t].head)); });
  executor_->ParallelFor(tasks.size(), [&](size_t t, int worker) {
    const Task& task = tasks[t];
    const Job& job = jobs[task.job];
    const int head = static_cast<int>(task.head);
    if (task.split < 0) return RunHeadAtOnce(job, head, worker);
    Partial partial = PartialAt(job, job.partials + (head * static_cast<size_t>(job.splits) + task.split) * job.partial_bytes);
    RunSplit(job, head, task.split, worker, partial);
  });
  for_heads([&](size_t t, int worker) {
    const Job& job = jobs[heads[t].job];
    if (job.rows > kMaxSplitRows) return;
    const int head = static_cast<int>(heads[t].head);
    Partial total = PartialAt(job, workers_[worker].Reserve(0) + PageBufferBytes(shape_, job.rows));
    Reset(job, total);
    for (int split = 0; split < job.splits; ++split) {
      const Partial part = PartialAt(job, job.partials + (head * static_cast<size_t>(job.splits) + split) * job.partial_bytes);
      MergePartial(job, total, part);
    }
    Finish(job, head, total, worker);
  });
  if (observer != nullptr) {
    for (const Job& job : jobs) Observe(job, observer);
  }
}

}  // namespace varve
