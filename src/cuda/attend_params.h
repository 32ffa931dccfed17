// What the attention kernel gets; private to src/cuda. DeviceAttention (device_attention.h) in the
// form that the device wants, with the work space laid out.

#ifndef VARVE_CUDA_ATTEND_PARAMS_H_
#define VARVE_CUDA_ATTEND_PARAMS_H_

#include <cuda_runtime_api.h>

#include "cuda/device_attention.h"

namespace varve::cuda {

// Value spaces, each with accumulators of its own until the end of a block.
inline constexpr int kSpacePlain = 0;
inline constexpr int kSpaceTurned = 1;
inline constexpr int kSpacePq = 2;
inline constexpr int kNumSpaces = 3;

struct AttendParams {
  DeviceAttention call;
  int group = 0;        // query heads of a KV head
  int head_chunks = 0;  // blocks that share a KV head, where the group is too large for one
  int splits = 0;
  uint32_t orders = 0;  // bits of QueryOrder
  uint32_t spaces = 0;
  bool prefetch = false;
  uint32_t key_bytes[kNumRungIds] = {};  // of strips
  uint32_t value_bytes[kNumRungIds] = {};
  // Work space: of each sequence and query head, and each split of it.
  float* part_sums = nullptr;   // [sequences, query_heads, splits, head_dim]
  float2* part_max = nullptr;   // [sequences, query_heads, splits]: reference and sum
  uint32_t* arrived = nullptr;  // [sequences, kv_heads * head_chunks]; zero between calls
};

// The kernel for a head_dim, and for up to 8 or 16 query heads of a KV head.
struct AttendKernel {
  const void* function = nullptr;
  int warps = 0;
  int blocks_per_sm = 0;
  int heads = 0;  // query heads of a block
  size_t (*shared_bytes)(const AttendParams& params) = nullptr;
};

// The table of kernels; function is null where there is none. One file each compiles them.
AttendKernel AttendKernel64(bool wide, bool pq);
AttendKernel AttendKernel96(bool wide, bool pq);
AttendKernel AttendKernel128(bool wide, bool pq);
AttendKernel AttendKernel256(bool wide, bool pq);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_PARAMS_H_
