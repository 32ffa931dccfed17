// The CPU back end: rungs write and encode strips, heads and pages spread over the executor.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "attention/attention.h"
#include "attention/backend.h"
#include "base/run_parallel.h"
#include "pages/strip_reader.h"

namespace varve {
namespace {

// From how many rows on Append spreads the KV heads over threads.
constexpr int kParallelAppendTokens = 8;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CacheShape& shape, const Kernels& kernels, PageMemory* memory,
             Executor* executor, StageTotals* stages)
      : shape_(shape),
        memory_(memory != nullptr ? memory : SystemPageMemory()),
        executor_(executor),
        stages_(stages),
        attention_(shape_, kernels, executor, stages) {}

  PageMemory* memory() override { return memory_; }
  Status Append(int layer, std::span<const AppendJob> jobs) override;
  void Encode(std::span<EncodeJob> jobs) override;
  Status Attend(int layer, const LayerSpaces& spaces, std::span<const AttentionRequest> requests,
                const AttendOptions& options, AttentionObserver* observer) override {
    return attention_.Run(layer, spaces, requests, options, observer);
  }
  size_t scratch_bytes() const override { return attention_.scratch_bytes(); }
  uint64_t replaced() const override { return replaced_; }
  UnpackedStrips unpacked() const override { return attention_.unpacked(); }

 private:
  StripShape ShapeOf(Part part, int layer, int head) const {
    return {layer, head, part == Part::kKey ? shape_.key_dim : shape_.value_dim,
            shape_.page_tokens};
  }
  void AppendHead(int layer, const AppendJob& job, int head);
  Status EncodeStrip(const EncodeJob& job, Part part, int head, uint64_t* replaced) const;

  const CacheShape shape_;
  PageMemory* memory_;
  Executor* executor_;
  StageTotals* stages_;
  Attention attention_;
  std::atomic<uint64_t> replaced_ = 0;
};

void CpuBackend::AppendHead(int layer, const AppendJob& job, int head) {
  for (const Part part : kParts) {
    const RowsView& rows = part == Part::kKey ? job.keys : job.values;
    const StripShape shape = ShapeOf(part, layer, head);
    const ptrdiff_t head_stride = rows.head_stride != 0 ? rows.head_stride : shape.dim;
    const ptrdiff_t token_stride =
        rows.token_stride != 0 ? rows.token_stride : head_stride * shape_.num_kv_heads;
    const uint64_t replaced = job.page->rung(part).WriteRows(
        part, shape, job.page->Strip(part, head), job.first_row, rows.num_tokens,
        rows.f32() + static_cast<ptrdiff_t>(head) * head_stride, token_stride);
    if (replaced > 0) replaced_ += replaced;
  }
}

Status CpuBackend::Append(int layer, std::span<const AppendJob> jobs) {
  const auto heads = static_cast<size_t>(shape_.num_kv_heads);
  int tokens = 0;
  for (const AppendJob& job : jobs) tokens += job.keys.num_tokens;
  const auto write = [&](size_t task, int worker) {
    StageClock clock(stages_->For(worker));
    const AppendJob& job = jobs[task / heads];
    AppendHead(layer, job, static_cast<int>(task % heads));
    clock.Lap(&StageTimes::append_us);
    clock.Count(&StageTimes::rows_appended, 2 * static_cast<uint64_t>(job.keys.num_tokens));
  };
  if (tokens >= kParallelAppendTokens) {
    RunParallel(*executor_, jobs.size() * heads, write);
  } else {
    for (size_t task = 0; task < jobs.size() * heads; ++task) write(task, 0);
  }
  return Status();
}

Status CpuBackend::EncodeStrip(const EncodeJob& job, Part part, int head,
                               uint64_t* replaced) const {
  const Page& from = *job.from;
  const Rung& old_rung = from.rung(part);
  const Rung& new_rung = job.to->rung(part);
  StripReader reader(shape_);
  const std::byte* source = reader.Get(from, part, head);
  VARVE_RETURN_IF_ERROR(reader.status());
  std::byte* target = job.to->Strip(part, head);
  if (&old_rung == &new_rung) {
    std::memcpy(target, source, from.part(part).strip_bytes);
    return Status();
  }
  const StripShape shape = ShapeOf(part, from.layer, head);
  std::vector<float> rows(static_cast<size_t>(from.rows) * shape.dim);
  old_rung.Decode(part, shape, source, 0, from.rows, rows.data());
  *replaced = new_rung.Encode(part, shape, rows.data(), from.rows, target);
  return Status();
}

void CpuBackend::Encode(std::span<EncodeJob> jobs) {
  const size_t strips = 2 * static_cast<size_t>(shape_.num_kv_heads);
  std::mutex mutex;
  RunParallel(*executor_, jobs.size() * strips, [&](size_t task, int worker) {
    StageClock clock(stages_->For(worker));
    EncodeJob& job = jobs[task / strips];
    const auto head = static_cast<int>(task % strips / 2);
    uint64_t replaced = 0;
    const Part part = kParts[task % 2];
    Status status = EncodeStrip(job, part, head, &replaced);
    if (&job.from->rung(part) != &job.to->rung(part)) {
      clock.Lap(&StageTimes::encode_us);
      clock.Count(&StageTimes::rows_encoded, static_cast<uint64_t>(job.from->rows));
    }
    if (replaced > 0) replaced_ += replaced;
    if (status.ok()) return;
    const std::lock_guard lock(mutex);
    if (job.status.ok()) job.status = std::move(status);
  });
}

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CacheShape& shape, const Kernels& kernels,
                                        PageMemory* memory, Executor* executor,
                                        StageTotals* stages) {
  return std::make_unique<CpuBackend>(shape, kernels, memory, executor, stages);
}

}  // namespace varve
