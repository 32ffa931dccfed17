#include "cuda/backend/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/align.h"
#include "cuda/backend/attend_batch.h"
#include "cuda/backend/device_buffers.h"
#include "cuda/backend/device_codebooks.h"
#include "cuda/backend/device_memory.h"
#include "cuda/backend/tensor_rows.h"
#include "cuda/device_attention.h"
#include "cuda/device_encode.h"
#include "rungs/rung_table.h"

namespace varve::cuda {
namespace {

constexpr size_t kAlign = 256;  // of arrays that are sent together

DeviceRung RungOf(const Page& page, Part part) {
  return static_cast<DeviceRung>(page.rung(part).descriptor().id);
}

// A stream of the caller, or one of its own.
class Stream {
 public:
  ~Stream() {
    if (owned_) (void)cudaStreamDestroy(stream_);
  }
  Status Create(void* given) {
    stream_ = static_cast<cudaStream_t>(given);
    if (given != nullptr) return Status();
    VARVE_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                     "creating a stream"));
    owned_ = true;
    return Status();
  }
  cudaStream_t get() const { return stream_; }
  Status Wait() const { return CudaStatus(cudaStreamSynchronize(stream_), "waiting"); }

 private:
  cudaStream_t stream_ = nullptr;
  bool owned_ = false;
};

class CudaBackend final : public Backend {
 public:
  ~CudaBackend() override;
  Status Create(const DeviceSetup& setup);

  PageMemory* memory() override { return memory_.get(); }
  uint64_t pool_bytes() const override { return memory_->pool_bytes(); }
  DeviceBytes* device_bytes() override { return memory_.get(); }
  Status Append(int layer, std::span<const AppendJob> jobs) override;
  void Encode(std::span<EncodeJob> jobs) override;
  Status Attend(int layer, const LayerSpaces& spaces, std::span<const AttentionRequest> requests,
                const AttendOptions& options, AttentionObserver* observer) override;
  size_t scratch_bytes() const override {
    return uplink_.bytes() + results_.bytes() + queries_.bytes() + workspace_.bytes() +
           codebooks_.bytes() + downlink_.capacity();
  }
  UnpackedStrips unpacked() const override { return {}; }

 private:
  Status AppendHostRows(std::span<const AppendJob> jobs);
  Status AppendDeviceRows(std::span<const AppendJob> jobs);
  Status LaunchAppend(std::span<const AppendJob> jobs, const std::byte* device_jobs, DType dtype,
                      ptrdiff_t token_stride, ptrdiff_t head_stride);
  Status EncodeLayer(std::span<EncodeJob> jobs);

  // Requests whose tensors are in one place and of one type.
  struct Run;
  Status SendBatch(const Run& run, DeviceAttention* call);
  Status PlaceQueries(const Run& run, const std::byte* sent, DeviceAttention* call);
  Status PlaceResults(const Run& run, DeviceAttention* call);
  Status Launch(const DeviceAttention& call);
  Status TakeResults(const Run& run, const DeviceAttention& call);
  Status AttendRun(const Run& run);

  int heads() const { return shape_.num_kv_heads * shape_.group_size; }

  CacheShape shape_;
  PageShape page_shape_;
  int device_ = 0;
  DeviceLimits limits_;
  Stream stream_;
  std::unique_ptr<DeviceMemory> memory_;
  DeviceCodebooks codebooks_;
  Uplink uplink_;
  DeviceScratch results_;    // outputs, log-sum-exps, page masses
  DeviceScratch queries_;    // those of several device tensors side by side
  DeviceScratch workspace_;  // of attention
  DeviceScratch counts_;     // of replaced values
  int workspace_queries_ = 0;
  std::vector<std::byte> downlink_;
  AttendBatch batch_;
};

CudaBackend::~CudaBackend() {
  const DeviceGuard guard(device_);
  (void)cudaStreamSynchronize(stream_.get());
}

// --- creation ---

Status CheckSetup(const DeviceSetup& setup) {
  const CacheShape& shape = setup.shape;
  if (shape.key_dim != shape.value_dim) {
    return Unimplemented("CUDA: key_dim " + std::to_string(shape.key_dim) + " != value_dim " +
                         std::to_string(shape.value_dim) + ": kernels are for equal ones");
  }
  if (shape.group_size > 16) {
    return Unimplemented("CUDA: group_size " + std::to_string(shape.group_size) +
                         ": kernels are for 1 … 16");
  }
  for (const RungUse& use : setup.rungs) {
    const auto id = static_cast<int>(use.rung->descriptor().id);
    if (id >= static_cast<int>(DeviceRung::kF16) && id <= static_cast<int>(DeviceRung::kT2)) {
      continue;
    }
    return Unimplemented("CUDA: layer " + std::to_string(use.layer) + ": rung " +
                         std::string(use.rung->name()) + " has no kernels");
  }
  return Status();
}

Status CudaBackend::Create(const DeviceSetup& setup) {
  shape_ = setup.shape;
  device_ = setup.device_index;
  page_shape_ = {shape_.key_dim, shape_.num_kv_heads, shape_.page_tokens, 0, 0};
  VARVE_RETURN_IF_ERROR(CheckShape(page_shape_).ToStatus());
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  (void)cudaGetLastError();
  if (device_ < 0 || device_ >= count) {
    return NotFound("CUDA: device " + std::to_string(device_) + " of " + std::to_string(count));
  }
  const DeviceGuard guard(device_);
  VARVE_RETURN_IF_ERROR(QueryDevice(device_, &limits_).ToStatus());
  VARVE_RETURN_IF_ERROR(stream_.Create(setup.stream));
  VARVE_RETURN_IF_ERROR(codebooks_.Create(shape_, setup.rungs, stream_.get()));
  page_shape_.pq_subspaces = codebooks_.subspaces();
  page_shape_.pq_bits = codebooks_.bits();
  VARVE_RETURN_IF_ERROR(CheckPqShape(page_shape_).ToStatus());
  VARVE_ASSIGN_OR_RETURN(memory_, DeviceMemory::Create(device_, setup.pool_bytes, stream_.get()));
  return Status();
}

// --- append ---

Status CudaBackend::Append(int, std::span<const AppendJob> jobs) {
  if (jobs.empty()) return Status();
  const DeviceGuard guard(device_);
  return jobs[0].keys.device == Device::kCpu ? AppendHostRows(jobs) : AppendDeviceRows(jobs);
}

Status CudaBackend::LaunchAppend(std::span<const AppendJob> jobs, const std::byte* device_jobs,
                                 DType dtype, ptrdiff_t token_stride, ptrdiff_t head_stride) {
  DeviceAppend call;
  call.shape = page_shape_;
  call.rung = RungOf(*jobs[0].page, Part::kKey);
  call.jobs = reinterpret_cast<const DeviceAppendJob*>(device_jobs);
  call.num_jobs = static_cast<int>(jobs.size());
  call.type = TypeOf(dtype);
  call.token_stride = token_stride;
  call.head_stride = head_stride;
  return cuda::Append(call, stream_.get()).ToStatus();
}

// Rows of f32: sent with the jobs, K and then V of each.
Status CudaBackend::AppendHostRows(std::span<const AppendJob> jobs) {
  const auto rows_of = [this](const RowsView& rows) {
    return TensorRows(rows.data, rows.num_tokens, shape_.num_kv_heads, shape_.key_dim,
                      rows.token_stride, rows.head_stride, DType::kF32);
  };
  const size_t first = AlignUp(jobs.size() * sizeof(DeviceAppendJob), kAlign);
  size_t bytes = first;
  for (const AppendJob& job : jobs) bytes += 2 * rows_of(job.keys).bytes();
  VARVE_RETURN_IF_ERROR(uplink_.ReserveDevice(bytes));
  VARVE_ASSIGN_OR_RETURN(std::byte * host, uplink_.Begin(bytes));
  size_t at = first;
  const std::byte* device = uplink_.device();
  for (size_t i = 0; i < jobs.size(); ++i) {
    const AppendJob& job = jobs[i];
    const size_t part_bytes = rows_of(job.keys).bytes();
    Gather(rows_of(job.keys), host + at);
    Gather(rows_of(job.values), host + at + part_bytes);
    const DeviceAppendJob record = {job.page->raw(), device + at, device + at + part_bytes,
                                    job.first_row, job.keys.num_tokens};
    std::memcpy(host + i * sizeof(record), &record, sizeof(record));
    at += 2 * part_bytes;
  }
  VARVE_RETURN_IF_ERROR(uplink_.Send(bytes, stream_.get()));
  return LaunchAppend(jobs, device, DType::kF32,
                      static_cast<ptrdiff_t>(shape_.num_kv_heads) * shape_.key_dim, shape_.key_dim);
}

Status CudaBackend::AppendDeviceRows(std::span<const AppendJob> jobs) {
  const RowsView& keys = jobs[0].keys;
  const RowsView& values = jobs[0].values;
  if (keys.dtype != values.dtype || keys.token_stride != values.token_stride ||
      keys.head_stride != values.head_stride) {
    return Unimplemented("Append: keys and values on a GPU must have the same dtype and strides");
  }
  const size_t bytes = jobs.size() * sizeof(DeviceAppendJob);
  VARVE_RETURN_IF_ERROR(uplink_.ReserveDevice(bytes));
  VARVE_ASSIGN_OR_RETURN(std::byte * host, uplink_.Begin(bytes));
  for (size_t i = 0; i < jobs.size(); ++i) {
    const DeviceAppendJob record = {jobs[i].page->raw(), jobs[i].keys.data, jobs[i].values.data,
                                    jobs[i].first_row, jobs[i].keys.num_tokens};
    std::memcpy(host + i * sizeof(record), &record, sizeof(record));
  }
  VARVE_RETURN_IF_ERROR(uplink_.Send(bytes, stream_.get()));
  // The cache has filled the strides in.
  return LaunchAppend(jobs, uplink_.device(), keys.dtype, keys.token_stride, keys.head_stride);
}

// --- encode ---

void CudaBackend::Encode(std::span<EncodeJob> jobs) {
  const DeviceGuard guard(device_);
  // Codebooks are a layer's.
  for (size_t begin = 0; begin < jobs.size();) {
    size_t end = begin + 1;
    while (end < jobs.size() && jobs[end].from->layer == jobs[begin].from->layer) ++end;
    const Status status = EncodeLayer(jobs.subspan(begin, end - begin));
    for (; begin < end; ++begin) jobs[begin].status = status;
  }
}

Status CudaBackend::EncodeLayer(std::span<EncodeJob> jobs) {
  const size_t bytes = jobs.size() * sizeof(DeviceEncodeJob);
  const size_t count_bytes = jobs.size() * sizeof(unsigned long long);
  VARVE_RETURN_IF_ERROR(counts_.Reserve(count_bytes));
  VARVE_RETURN_IF_ERROR(uplink_.ReserveDevice(bytes));
  VARVE_ASSIGN_OR_RETURN(std::byte * host, uplink_.Begin(bytes));
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Page& from = *jobs[i].from;
    const Page& to = *jobs[i].to;
    const DeviceEncodeJob record = {from.raw(),
                                    to.raw(),
                                    RungOf(from, Part::kKey),
                                    RungOf(from, Part::kValue),
                                    RungOf(to, Part::kKey),
                                    RungOf(to, Part::kValue),
                                    from.rows};
    std::memcpy(host + i * sizeof(record), &record, sizeof(record));
  }
  VARVE_RETURN_IF_ERROR(uplink_.Send(bytes, stream_.get()));
  auto* counts = counts_.as<unsigned long long>();
  VARVE_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(counts, 0, count_bytes, stream_.get()), "clearing counts"));
  DeviceEncode call;
  call.shape = page_shape_;
  call.jobs = reinterpret_cast<const DeviceEncodeJob*>(uplink_.device());
  call.num_jobs = static_cast<int>(jobs.size());
  call.key_codebook = codebooks_.Of(jobs[0].from->layer, Part::kKey);
  call.value_codebook = codebooks_.Of(jobs[0].from->layer, Part::kValue);
  call.replaced = counts;
  VARVE_RETURN_IF_ERROR(cuda::Encode(call, stream_.get()).ToStatus());
  std::vector<unsigned long long> replaced(jobs.size());
  VARVE_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(replaced.data(), counts, count_bytes, cudaMemcpyDeviceToHost, stream_.get()),
      "copying counts"));
  VARVE_RETURN_IF_ERROR(stream_.Wait());
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].replaced = replaced[i];
  return Status();
}

// --- attend ---

struct CudaBackend::Run {
  int layer;
  std::span<const AttentionRequest> requests;
  const AttendOptions* options;
  AttentionObserver* observer;

  const AttendRequest& first() const { return *requests[0].request; }
  bool on_host() const { return first().device == Device::kCpu; }
  DType output_type() const { return first().output_dtype; }
  bool wants_lse() const {
    return std::any_of(requests.begin(), requests.end(), [](const AttentionRequest& request) {
      return request.request->log_sum_exp != nullptr;
    });
  }
};

Status CudaBackend::Attend(int layer, const LayerSpaces&,
                           std::span<const AttentionRequest> requests, const AttendOptions& options,
                           AttentionObserver* observer) {
  const DeviceGuard guard(device_);
  const auto alike = [](const AttendRequest& a, const AttendRequest& b) {
    return a.device == b.device && a.query_dtype == b.query_dtype &&
           a.output_dtype == b.output_dtype;
  };
  for (size_t begin = 0; begin < requests.size();) {
    size_t end = begin + 1;
    while (end < requests.size() && alike(*requests[begin].request, *requests[end].request)) ++end;
    VARVE_RETURN_IF_ERROR(
        AttendRun({layer, requests.subspan(begin, end - begin), &options, observer}));
    begin = end;
  }
  return Status();
}

Status CudaBackend::AttendRun(const Run& run) {
  FillBatch(run.requests, *run.options, &batch_);
  DeviceAttention call;
  call.shape = page_shape_;
  call.num_sequences = batch_.num_queries();
  call.query_heads = heads();
  call.max_pages = batch_.max_pages;
  call.key_rungs = batch_.key_rungs;
  call.value_rungs = batch_.value_rungs;
  call.key_codebook = codebooks_.Of(run.layer, Part::kKey);
  call.value_codebook = codebooks_.Of(run.layer, Part::kValue);
  call.query_type = TypeOf(run.first().query_dtype);
  call.output_type = TypeOf(run.output_type());
  const float scale = run.options->scale;
  call.scale = scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(shape_.key_dim));
  call.soft_cap = run.options->soft_cap;
  VARVE_RETURN_IF_ERROR(SendBatch(run, &call));
  VARVE_RETURN_IF_ERROR(PlaceResults(run, &call));
  VARVE_RETURN_IF_ERROR(Launch(call));
  return TakeResults(run, call);
}

TensorRows QueriesOf(const AttendRequest& request, int heads, int dim) {
  return {request.queries,           request.num_queries, heads, dim, request.query_token_stride,
          request.query_head_stride, request.query_dtype};
}

TensorRows OutputOf(const AttendRequest& request, int heads, int dim) {
  return {request.output,
          request.num_queries,
          heads,
          dim,
          request.output_token_stride,
          request.output_head_stride,
          request.output_dtype};
}

// Records of pages, and queries of the host behind them.
Status CudaBackend::SendBatch(const Run& run, DeviceAttention* call) {
  const size_t begin_bytes = AlignUp(batch_.page_begin.size() * sizeof(int32_t), kAlign);
  const size_t page_bytes = AlignUp(batch_.pages.size() * sizeof(DevicePage), kAlign);
  size_t bytes = begin_bytes + page_bytes;
  for (const AttentionRequest& request : run.requests) {
    if (run.on_host()) bytes += QueriesOf(*request.request, heads(), shape_.key_dim).bytes();
  }
  VARVE_RETURN_IF_ERROR(uplink_.ReserveDevice(bytes));
  VARVE_ASSIGN_OR_RETURN(std::byte * host, uplink_.Begin(bytes));
  std::memcpy(host, batch_.page_begin.data(), batch_.page_begin.size() * sizeof(int32_t));
  if (!batch_.pages.empty()) {
    std::memcpy(host + begin_bytes, batch_.pages.data(), batch_.pages.size() * sizeof(DevicePage));
  }
  std::byte* queries = host + begin_bytes + page_bytes;
  for (const AttentionRequest& request : run.requests) {
    if (!run.on_host()) break;
    const TensorRows rows = QueriesOf(*request.request, heads(), shape_.key_dim);
    Gather(rows, queries);
    queries += rows.bytes();
  }
  VARVE_RETURN_IF_ERROR(uplink_.Send(bytes, stream_.get()));
  const std::byte* sent = uplink_.device();
  call->page_begin = reinterpret_cast<const int32_t*>(sent);
  call->pages = reinterpret_cast<const DevicePage*>(sent + begin_bytes);
  return PlaceQueries(run, sent + begin_bytes + page_bytes, call);
}

Status CudaBackend::PlaceQueries(const Run& run, const std::byte* sent, DeviceAttention* call) {
  call->queries = sent;
  if (run.on_host()) return Status();
  size_t bytes = 0;
  for (const AttentionRequest& request : run.requests)
    bytes += QueriesOf(*request.request, heads(), shape_.key_dim).bytes();
  const TensorRows first = QueriesOf(run.first(), heads(), shape_.key_dim);
  call->queries = first.data;
  if (run.requests.size() == 1 && first.IsDense()) return Status();
  VARVE_RETURN_IF_ERROR(queries_.Reserve(bytes));
  auto* dense = queries_.as<std::byte>();
  call->queries = dense;
  for (const AttentionRequest& request : run.requests) {
    const TensorRows rows = QueriesOf(*request.request, heads(), shape_.key_dim);
    VARVE_RETURN_IF_ERROR(GatherOnDevice(rows, dense, stream_.get()));
    dense += rows.bytes();
  }
  return Status();
}

// Log-sum-exps, page masses and outputs, in this order, where they are wanted and have no place of
// their own.
Status CudaBackend::PlaceResults(const Run& run, DeviceAttention* call) {
  const auto rows = static_cast<size_t>(call->num_sequences) * static_cast<size_t>(heads());
  const bool observed = run.observer != nullptr;
  const size_t lse_bytes = observed || run.wants_lse() ? AlignUp(rows * sizeof(float), kAlign) : 0;
  const size_t mass_bytes =
      observed ? AlignUp(batch_.pages.size() * static_cast<size_t>(heads()) * sizeof(float), kAlign)
               : 0;
  const TensorRows output = OutputOf(run.first(), heads(), shape_.value_dim);
  const bool direct = !run.on_host() && run.requests.size() == 1 && output.IsDense();
  const size_t output_bytes =
      direct ? 0 : rows * static_cast<size_t>(shape_.value_dim) * DTypeBytes(run.output_type());
  VARVE_RETURN_IF_ERROR(results_.Reserve(lse_bytes + mass_bytes + output_bytes));
  auto* base = results_.as<std::byte>();
  if (lse_bytes > 0) call->lse = reinterpret_cast<float*>(base);
  if (mass_bytes > 0) call->page_lse = reinterpret_cast<float*>(base + lse_bytes);
  call->output = direct ? output.data : base + lse_bytes + mass_bytes;
  return Status();
}

Status CudaBackend::Launch(const DeviceAttention& call) {
  const size_t bytes = AttentionWorkspaceBytes(call, limits_);
  bool grown = false;
  VARVE_RETURN_IF_ERROR(workspace_.Reserve(bytes, &grown));
  // Its counters lie elsewhere for another number of queries.
  if (grown || call.num_sequences != workspace_queries_) {
    VARVE_RETURN_IF_ERROR(
        InitAttentionWorkspace(workspace_.as<void>(), workspace_.bytes(), stream_.get())
            .ToStatus());
    workspace_queries_ = call.num_sequences;
  }
  return cuda::Attend(call, limits_, workspace_.as<void>(), workspace_.bytes(), stream_.get())
      .ToStatus();
}

Status CudaBackend::TakeResults(const Run& run, const DeviceAttention& call) {
  const auto query_heads = static_cast<size_t>(heads());
  if (!run.on_host()) {
    const float* lse = call.lse;
    const auto* output = static_cast<const std::byte*>(call.output);
    for (const AttentionRequest& request : run.requests) {
      const AttendRequest& asked = *request.request;
      const TensorRows rows = OutputOf(asked, heads(), shape_.value_dim);
      if (output != rows.data) VARVE_RETURN_IF_ERROR(ScatterOnDevice(output, rows, stream_.get()));
      const size_t lse_bytes = static_cast<size_t>(asked.num_queries) * query_heads * sizeof(float);
      if (asked.log_sum_exp != nullptr) {
        VARVE_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(asked.log_sum_exp, lse, lse_bytes,
                                                         cudaMemcpyDeviceToDevice, stream_.get()),
                                         "copying log-sum-exps", lse_bytes));
      }
      output += rows.bytes();
      if (lse != nullptr) lse += static_cast<size_t>(asked.num_queries) * query_heads;
    }
    if (run.observer == nullptr) return Status();
  }
  // What the host wants of `results_`: all, or what comes before the outputs.
  const auto* base = results_.as<std::byte>();
  const auto rows = static_cast<size_t>(call.num_sequences) * query_heads;
  const size_t mass_bytes = batch_.pages.size() * query_heads * sizeof(float);
  const auto offset_of = [base](const void* at) {
    return static_cast<size_t>(static_cast<const std::byte*>(at) - base);
  };
  const size_t bytes =
      run.on_host()
          ? offset_of(call.output) + rows * static_cast<size_t>(shape_.value_dim) * sizeof(float)
          : offset_of(call.page_lse) + mass_bytes;
  downlink_.resize(std::max(downlink_.size(), bytes));
  VARVE_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(downlink_.data(), base, bytes, cudaMemcpyDeviceToHost, stream_.get()),
      "copying results", bytes));
  VARVE_RETURN_IF_ERROR(stream_.Wait());
  const auto* lse = reinterpret_cast<const float*>(downlink_.data());
  if (run.on_host()) {
    const std::byte* output = downlink_.data() + offset_of(call.output);
    const float* next_lse = lse;
    for (const AttentionRequest& request : run.requests) {
      const AttendRequest& asked = *request.request;
      const TensorRows out = OutputOf(asked, heads(), shape_.value_dim);
      Scatter(output, out);
      output += out.bytes();
      const size_t count = static_cast<size_t>(asked.num_queries) * query_heads;
      if (asked.log_sum_exp != nullptr) std::copy_n(next_lse, count, asked.log_sum_exp);
      if (call.lse != nullptr) next_lse += count;
    }
  }
  if (run.observer != nullptr) {
    const auto* page_lse = reinterpret_cast<const float*>(
        downlink_.data() + (call.page_lse != nullptr ? offset_of(call.page_lse) : 0));
    ReportMasses(run.layer, run.requests, batch_, heads(), page_lse, lse, run.observer);
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<Backend>> MakeCudaBackend(const DeviceSetup& setup) {
  VARVE_RETURN_IF_ERROR(CheckSetup(setup));
  auto backend = std::make_unique<CudaBackend>();
  VARVE_RETURN_IF_ERROR(backend->Create(setup));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace varve::cuda
