#include "cuda/backend/device_memory.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/align.h"
#include "cuda/memory/device_buffers.h"
#include "pages/page_pool.h"

namespace varve::cuda {
namespace {

// For slabs that are not full: one of 32 MiB at most per size of page, of which a plan has few.
constexpr size_t kSlack = size_t{64} << 20;

// No device has so many; they may be rounded up and added to without overflow.
constexpr uint64_t kMostBytes = uint64_t{1} << 56;

// Left to others where the cache may take most: a tenth, and a little for scratch.
size_t MostOf(size_t free_bytes) {
  const size_t kept = free_bytes / 10 + (size_t{256} << 20);
  return free_bytes > kept ? free_bytes - kept : 0;
}

}  // namespace

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::Create(int device, uint64_t pool_bytes,
                                                           uint64_t chunk_bytes,
                                                           cudaStream_t stream) {
  const DeviceGuard guard(device);
  pool_bytes = std::min(pool_bytes, kMostBytes);
  chunk_bytes = std::min(chunk_bytes, kMostBytes);
  // A piece that is larger than the cap would never be filled.
  if (pool_bytes > 0) chunk_bytes = std::min(chunk_bytes, pool_bytes);
  if (pool_bytes == 0 && chunk_bytes == 0) {
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
  std::unique_ptr<DeviceMemory> memory(new DeviceMemory(device, pool_bytes, chunk_bytes, stream));
  if (chunk_bytes == 0) {
    VARVE_RETURN_IF_ERROR(memory->AddRange(AlignUp(pool_bytes, kSlabGranule) + kSlack));
  }
  return memory;
}

DeviceMemory::~DeviceMemory() {
  const DeviceGuard guard(device_);
  for (const Range& range : ranges_) (void)cudaFree(range.base);
}

Status DeviceMemory::AddRange(size_t bytes) {
  const DeviceGuard guard(device_);
  ranges_.reserve(ranges_.size() + 1);  // nothing throws once the device has given memory
  Range range;
  range.bytes = bytes;
  range.free.push_back({0, bytes});
  void* base = nullptr;
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&base, bytes), "memory for pages", bytes));
  range.base = static_cast<std::byte*>(base);
  ranges_.push_back(std::move(range));
  return Status();
}

std::byte* DeviceMemory::Range::Take(size_t wanted) {
  const auto hole =
      std::find_if(free.begin(), free.end(), [&](const Hole& h) { return h.bytes >= wanted; });
  if (hole == free.end()) return nullptr;
  const auto index = hole - free.begin();
  free.reserve(num_taken + 2);
  Hole& taken = free[index];
  std::byte* const address = base + taken.offset;
  taken.offset += wanted;
  taken.bytes -= wanted;
  if (taken.bytes == 0) free.erase(free.begin() + index);
  ++num_taken;
  return address;
}

void DeviceMemory::Range::GiveBack(size_t offset, size_t count) noexcept {
  --num_taken;
  const auto next = std::find_if(free.begin(), free.end(),
                                 [&](const Hole& hole) { return hole.offset > offset; });
  const bool joins_next = next != free.end() && next->offset == offset + count;
  const bool joins_before = next != free.begin() && std::prev(next)->end() == offset;
  if (joins_before) {
    std::prev(next)->bytes += count + (joins_next ? next->bytes : 0);
    if (joins_next) free.erase(next);
  } else if (joins_next) {
    *next = {offset, count + next->bytes};
  } else {
    free.insert(next, {offset, count});
  }
}

std::byte* DeviceMemory::Map(size_t bytes) {
  for (Range& range : ranges_) {
    if (std::byte* taken = range.Take(bytes)) return taken;
  }
  if (chunk_bytes_ == 0) return nullptr;
  // Where the device has no room for a whole chunk, the slab alone may still fit.
  const size_t chunk = AlignUp(std::max<size_t>(chunk_bytes_, bytes), kSlabGranule);
  if (!AddRange(chunk).ok() && (chunk == bytes || !AddRange(bytes).ok())) return nullptr;
  return ranges_.back().Take(bytes);
}

void DeviceMemory::Unmap(std::byte* address, size_t bytes) {
  const auto range = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& candidate) {
    return address >= candidate.base && address < candidate.base + candidate.bytes;
  });
  range->GiveBack(static_cast<size_t>(address - range->base), bytes);
  if (chunk_bytes_ == 0 || !range->is_empty()) return;
  const auto is_other_empty = [&](const Range& other) {
    return &other != &*range && other.is_empty();
  };
  if (std::none_of(ranges_.begin(), ranges_.end(), is_other_empty)) return;
  const DeviceGuard guard(device_);
  (void)cudaFree(range->base);
  ranges_.erase(range);
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
