#include "cuda/backend/device_memory.h"

#include <iterator>
#include <string>

#include "base/align.h"
#include "cuda/memory/device_buffers.h"
#include "pages/page_pool.h"

namespace varve::cuda {
namespace {

// For slabs that are not full: one of 32 MiB at most per size of page, of which a plan has few.
constexpr size_t kSlack = size_t{64} << 20;

// Left to others where the cache may take most: a tenth, and a little for scratch.
size_t MostOf(size_t free_bytes) {
  const size_t kept = free_bytes / 10 + (size_t{256} << 20);
  return free_bytes > kept ? free_bytes - kept : 0;
}

}  // namespace

DeviceMemory::DeviceMemory(int device, std::byte* base, size_t bytes, uint64_t pool_bytes,
                           cudaStream_t stream)
    : device_(device), base_(base), bytes_(bytes), pool_bytes_(pool_bytes), stream_(stream) {
  free_.emplace(0, bytes_);
}

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::Create(int device, uint64_t pool_bytes,
                                                           cudaStream_t stream) {
  const DeviceGuard guard(device);
  if (pool_bytes == 0) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    VARVE_RETURN_IF_ERROR(
        CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
    pool_bytes = AlignDown(MostOf(free_bytes), kSlabGranule);
    if (pool_bytes == 0) {
      return OutOfMemory("CUDA: device " + std::to_string(device) + " has " +
                         std::to_string(free_bytes) + " bytes free: too few for pages");
    }
  }
  const size_t bytes = AlignUp(pool_bytes, kSlabGranule) + kSlack;
  void* base = nullptr;
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&base, bytes), "memory for pages", bytes));
  return std::unique_ptr<DeviceMemory>(
      new DeviceMemory(device, static_cast<std::byte*>(base), bytes, pool_bytes, stream));
}

DeviceMemory::~DeviceMemory() {
  const DeviceGuard guard(device_);
  (void)cudaFree(base_);
}

std::byte* DeviceMemory::Map(size_t bytes) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, room] = *range;
    if (room < bytes) continue;
    free_.erase(range);
    if (room > bytes) free_.emplace(offset + bytes, room - bytes);
    return base_ + offset;
  }
  return nullptr;
}

void DeviceMemory::Unmap(std::byte* address, size_t bytes) {
  auto range = free_.emplace(static_cast<size_t>(address - base_), bytes).first;
  const auto next = std::next(range);
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto before = std::prev(range);
  if (before->first + before->second != range->first) return;
  before->second += range->second;
  free_.erase(range);
}

Status DeviceMemory::ToHost(const std::byte* from, size_t bytes, std::byte* to) {
  const DeviceGuard guard(device_);
  constexpr const char* kWhat = "copying from a page";
  VARVE_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), kWhat, bytes));
  return CudaStatus(cudaStreamSynchronize(stream_), kWhat, bytes);
}

Status DeviceMemory::FromHost(const std::byte* from, size_t bytes, std::byte* to) {
  const DeviceGuard guard(device_);
  constexpr const char* kWhat = "copying to a page";
  VARVE_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), kWhat, bytes));
  return CudaStatus(cudaStreamSynchronize(stream_), kWhat, bytes);
}

Status DeviceMemory::Copy(const std::byte* from, size_t bytes, std::byte* to) {
  const DeviceGuard guard(device_);
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
                    "copying a page", bytes);
}

}  // namespace varve::cuda
