// DeviceCodebooks: the centroids of a cache's pq rungs in device memory, sent once. The kernels
// take one size (sub-spaces and bits) for all pages of a cache.

#ifndef VARVE_CUDA_BACKEND_DEVICE_CODEBOOKS_H_
#define VARVE_CUDA_BACKEND_DEVICE_CODEBOOKS_H_

#include <span>
#include <vector>

#include "attention/backend.h"
#include "cuda/device_attention.h"
#include "cuda/memory/device_buffers.h"

namespace varve::cuda {

class DeviceCodebooks {
 public:
  // Finds the tables that `uses` name; sends them. kUnimplemented for rungs of two sizes, or a size
  // without kernels.
  Status Create(const CacheShape& shape, std::span<const RungUse> uses, cudaStream_t stream);

  // 0 where no rung is pq.
  int subspaces() const { return subspaces_; }
  int bits() const { return bits_; }
  // Nothing in it if that part of the layer has no pq rung.
  const DeviceCodebook& Of(int layer, Part part) const;
  size_t bytes() const { return memory_.bytes(); }

 private:
  DeviceScratch memory_;
  int subspaces_ = 0;
  int bits_ = 0;
  std::vector<DeviceCodebook> by_layer_;  // [layers][parts]
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_DEVICE_CODEBOOKS_H_
