#include "cuda/backend/cuda_backend.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/align.h"
#include "cuda/backend/cuda_backend_impl.h"
#include "cuda/backend/shared_memory_check.h"
#include "cuda/backend/tensor_rows.h"
#include "cuda/device_encode.h"
#include "cuda/device_prompt.h"
#include "rungs/rung_table.h"

namespace varve::cuda {
namespace {

DeviceRung RungOf(const Page& page, Part part) {
  return static_cast<DeviceRung>(page.rung(part).descriptor().id);
}

// Of rows on the device.
DeviceAppendJob RecordOf(const AppendJob& job) {
  return {job.page->raw(), job.keys.data, job.values.data, job.first_row, job.keys.num_tokens};
}

DeviceEncodeJob RecordOf(const EncodeJob& job) {
  const Page& from = *job.from;
  const Page& to = *job.to;
  return {from.raw(),
          to.raw(),
          RungOf(from, Part::kKey),
          RungOf(from, Part::kValue),
          RungOf(to, Part::kKey),
          RungOf(to, Part::kValue),
          from.rows};
}

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

}  // namespace

// Without a stream nothing is under way; to wait for null is to wait for the default stream, which
// is others'.
CudaBackend::~CudaBackend() {
  if (stream_.get() == nullptr) return;
  const DeviceGuard guard(device_);
  (void)cudaStreamSynchronize(stream_.get());
}

// --- streams ---

Status Stream::MoveTo(cudaStream_t next) {
  if (moved_ == nullptr) {
    VARVE_RETURN_IF_ERROR(
        CudaStatus(cudaEventCreateWithFlags(&moved_, cudaEventDisableTiming), "creating an event"));
  }
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(moved_, stream_), "leaving a stream"));
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(next, moved_, 0), "entering a stream"));
  if (owned_) (void)cudaStreamDestroy(stream_);  // what is under way in it is done all the same
  owned_ = false;
  stream_ = next;
  return Status();
}

Status CudaBackend::SetStream(void* stream) {
  if (stream == nullptr) {
    return InvalidArgument("SetStream: stream is null; the default one is cudaStreamLegacy");
  }
  const DeviceGuard guard(device_);
  VARVE_RETURN_IF_ERROR(stream_.MoveTo(static_cast<cudaStream_t>(stream)));
  memory_->SetStream(stream_.get());
  return Status();
}

// --- creation ---

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
  takes_prompts_ = PromptSharedBytes(page_shape_.head_dim) <= limits_.shared_per_block;
  VARVE_RETURN_IF_ERROR(stream_.Create(setup.stream));
  VARVE_RETURN_IF_ERROR(replaced_.Reserve(sizeof(unsigned long long)));
  VARVE_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(replaced_.as<void>(), 0, replaced_.bytes(), stream_.get()),
                 "clearing a count"));
  VARVE_RETURN_IF_ERROR(codebooks_.Create(shape_, setup.rungs, stream_.get()));
  page_shape_.pq_subspaces = codebooks_.subspaces();
  page_shape_.pq_bits = codebooks_.bits();
  VARVE_RETURN_IF_ERROR(CheckPqShape(page_shape_).ToStatus());
  VARVE_RETURN_IF_ERROR(CheckSharedMemory(setup, page_shape_, limits_));
  VARVE_ASSIGN_OR_RETURN(
      memory_, DeviceMemory::Create(device_, setup.pool_bytes, setup.chunk_bytes, stream_.get()));
  return Status();
}

// --- records ---

template <typename Job>
Result<const std::byte*> CudaBackend::SendRecords(std::span<const Job> jobs) {
  using Record = decltype(RecordOf(jobs[0]));
  const size_t bytes = jobs.size() * sizeof(Record);
  VARVE_RETURN_IF_ERROR(uplink_.ReserveDevice(bytes));
  VARVE_ASSIGN_OR_RETURN(std::byte * host, uplink_.Begin(bytes));
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Record record = RecordOf(jobs[i]);
    std::memcpy(host + i * sizeof(record), &record, sizeof(record));
  }
  VARVE_RETURN_IF_ERROR(uplink_.Send(bytes, stream_.get()));
  return uplink_.device();
}

// --- append ---

Status CudaBackend::Append(int, std::span<const AppendJob> jobs) {
  if (jobs.empty()) return Status();
  const DeviceGuard guard(device_);
  return jobs[0].keys.device == Device::kCpu ? AppendHostRows(jobs) : AppendDeviceRows(jobs);
}

Status CudaBackend::LaunchAppend(std::span<const AppendJob> jobs, const std::byte* device_jobs,
                                 DType dtype, RowStrides keys, RowStrides values) {
  DeviceAppend call;
  call.shape = page_shape_;
  call.rung = RungOf(*jobs[0].page, Part::kKey);
  call.jobs = reinterpret_cast<const DeviceAppendJob*>(device_jobs);
  if (device_jobs == nullptr) call.job = RecordOf(jobs[0]);
  call.num_jobs = static_cast<int>(jobs.size());
  call.type = TypeOf(dtype);
  call.keys = keys;
  call.values = values;
  call.replaced = replaced_.as<unsigned long long>();
  return cuda::Append(call, stream_.get()).ToStatus();
}

uint64_t CudaBackend::replaced() const {
  const DeviceGuard guard(device_);
  unsigned long long count = 0;
  const Status copied = CudaStatus(cudaMemcpyAsync(&count, replaced_.as<void>(), sizeof(count),
                                                   cudaMemcpyDeviceToHost, stream_.get()),
                                   "copying a count");
  // A device that fails says so in the next step; a statistic has no other way to.
  return copied.ok() && stream_.Wait().ok() ? count : 0;
}

// Rows of f32: sent with the jobs, K and then V of each.
Status CudaBackend::AppendHostRows(std::span<const AppendJob> jobs) {
  const auto rows_of = [this](const RowsView& rows) {
    return TensorRows(rows.data, rows.num_tokens, shape_.num_kv_heads, shape_.key_dim,
                      rows.token_stride, rows.head_stride, DType::kF32);
  };
  const size_t first = AlignUp(jobs.size() * sizeof(DeviceAppendJob), kSentAlign);
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
  const RowStrides dense = {int64_t{shape_.num_kv_heads} * shape_.key_dim, shape_.key_dim};
  return LaunchAppend(jobs, device, DType::kF32, dense, dense);
}

Status CudaBackend::AppendDeviceRows(std::span<const AppendJob> jobs) {
  const RowsView& keys = jobs[0].keys;
  const RowsView& values = jobs[0].values;
  if (keys.dtype != values.dtype) {
    return Unimplemented("Append: keys and values on a GPU must have the same dtype");
  }
  // The cache has filled the strides in. A single page, as for every token of a text, goes with the
  // launch and needs no copy.
  const std::byte* sent = nullptr;
  if (jobs.size() > 1) {
    VARVE_ASSIGN_OR_RETURN(sent, SendRecords(jobs));
  }
  return LaunchAppend(jobs, sent, keys.dtype, {keys.token_stride, keys.head_stride},
                      {values.token_stride, values.head_stride});
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

// Not waited for: a prompt of 32768 tokens seals 16384 pages in 32 layers. Whatever comes later in
// the stream finds the new bytes, and what was replaced is counted on the device.
Status CudaBackend::EncodeLayer(std::span<const EncodeJob> jobs) {
  DeviceEncode call;
  call.shape = page_shape_;
  call.num_jobs = static_cast<int>(jobs.size());
  call.key_codebook = codebooks_.Of(jobs[0].from->layer, Part::kKey);
  call.value_codebook = codebooks_.Of(jobs[0].from->layer, Part::kValue);
  call.replaced = replaced_.as<unsigned long long>();
  if (jobs.size() == 1) {  // goes with the launch and needs no copy
    call.job = RecordOf(jobs[0]);
  } else {
    VARVE_ASSIGN_OR_RETURN(const std::byte* sent, SendRecords(jobs));
    call.jobs = reinterpret_cast<const DeviceEncodeJob*>(sent);
  }
  return cuda::Encode(call, stream_.get()).ToStatus();
}

Result<std::unique_ptr<Backend>> MakeCudaBackend(const DeviceSetup& setup) {
  VARVE_RETURN_IF_ERROR(CheckSetup(setup));
  auto backend = std::make_unique<CudaBackend>();
  VARVE_RETURN_IF_ERROR(backend->Create(setup));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace varve::cuda
