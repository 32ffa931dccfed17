// DeviceMemory: the memory of pages on a GPU, from which the page pool maps its slabs. It is one
// range, taken when the cache is made and given back with it; or it grows: ranges are taken when
// slabs need them, and one that has become empty is given back (one is kept, as taking and giving
// back make the device wait). Also how the host reaches the bytes.

#ifndef VARVE_CUDA_BACKEND_DEVICE_MEMORY_H_
#define VARVE_CUDA_BACKEND_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "pages/device_bytes.h"
#include "varve/page_memory.h"
#include "varve/status.h"

namespace varve::cuda {

class DeviceMemory final : public PageMemory, public DeviceBytes {
 public:
  // chunk_bytes 0: all at once, pool_bytes or, with 0, most of what is free. Otherwise ranges of so
  // many are taken as they are needed; pool_bytes is then the caller's own cap. Copies go to
  // `stream`, which outlives this.
  static Result<std::unique_ptr<DeviceMemory>> Create(int device, uint64_t pool_bytes,
                                                      uint64_t chunk_bytes, cudaStream_t stream);
  ~DeviceMemory() override;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Copies go there from now on.
  void SetStream(cudaStream_t stream) { stream_ = stream; }

  // What pages may take; 0: no bound but the device's. A range that is taken at once has a little
  // more: slabs of different page sizes have room left over.
  uint64_t pool_bytes() const { return pool_bytes_; }

  std::byte* Map(size_t bytes) override;
  void Discard(std::byte*, size_t) override {}
  void Unmap(std::byte* address, size_t bytes) override;

  Status ToHost(const std::byte* from, size_t bytes, std::byte* to) override;
  Status FromHost(const std::byte* from, size_t bytes, std::byte* to) override;
  Status Copy(const std::byte* from, size_t bytes, std::byte* to) override;

 private:
  struct Hole {
    size_t offset;
    size_t bytes;
    size_t end() const { return offset + bytes; }
  };
  struct Range {
    std::byte* base = nullptr;
    size_t bytes = 0;
    size_t num_taken = 0;
    // By offset; no two touch, so there are at most num_taken + 1. Take reserves as many: giving
    // back needs no memory and cannot fail.
    std::vector<Hole> free;

    bool is_empty() const { return num_taken == 0; }
    std::byte* Take(size_t wanted);  // null: no room
    void GiveBack(size_t offset, size_t count) noexcept;
  };

  DeviceMemory(int device, uint64_t pool_bytes, uint64_t chunk_bytes, cudaStream_t stream)
      : device_(device), pool_bytes_(pool_bytes), chunk_bytes_(chunk_bytes), stream_(stream) {}
  Status AddRange(size_t bytes);

  int device_;
  uint64_t pool_bytes_;
  uint64_t chunk_bytes_;  // 0: does not grow
  cudaStream_t stream_;
  std::vector<Range> ranges_;
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_DEVICE_MEMORY_H_
