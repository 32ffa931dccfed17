// DeviceMemory: the memory of pages on a GPU: one range, taken when the cache is made and given
// back with it. The page pool maps its slabs from it; nothing is allocated on the device later.
// Also how the host reaches the bytes.

#ifndef VARVE_CUDA_BACKEND_DEVICE_MEMORY_H_
#define VARVE_CUDA_BACKEND_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <memory>

#include "cuda/device_pages.h"
#include "pages/device_bytes.h"
#include "varve/page_memory.h"
#include "varve/status.h"

namespace varve::cuda {

class DeviceMemory final : public PageMemory, public DeviceBytes {
 public:
  // pool_bytes 0: most of what is free. Copies go to `stream`, which outlives this.
  static Result<std::unique_ptr<DeviceMemory>> Create(int device, uint64_t pool_bytes,
                                                      cudaStream_t stream);
  ~DeviceMemory() override;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // What pages may take. The range has a little more: slabs of different page sizes have room left
  // over.
  uint64_t pool_bytes() const { return pool_bytes_; }
  DevicePool pool() const { return {base_, bytes_}; }

  std::byte* Map(size_t bytes) override;
  void Discard(std::byte*, size_t) override {}
  void Unmap(std::byte* address, size_t bytes) override;

  Status ToHost(const std::byte* from, size_t bytes, std::byte* to) override;
  Status FromHost(const std::byte* from, size_t bytes, std::byte* to) override;
  Status Copy(const std::byte* from, size_t bytes, std::byte* to) override;

 private:
  DeviceMemory(int device, std::byte* base, size_t bytes, uint64_t pool_bytes, cudaStream_t stream);

  int device_;
  std::byte* base_;
  size_t bytes_;
  uint64_t pool_bytes_;
  cudaStream_t stream_;
  std::map<size_t, size_t> free_;  // offset, bytes; no two touch
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_DEVICE_MEMORY_H_
