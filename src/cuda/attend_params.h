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

inline constexpr int kMaxBarriers = 16;  // of a block: K and V of its readers

struct AttendParams {
  DeviceAttention call;
  int group = 0;        // query heads of a KV head
  int head_chunks = 0;  // blocks that share a KV head, where the group is too large for one
  int splits = 0;
  uint32_t orders = 0;  // bits of QueryOrder
  uint32_t spaces = 0;
  bool floats_apart = false;             // pages of floats are all there is in the plain space
  uint32_t slot_bytes = 0;               // a multiple of 128
  uint32_t table_bytes = 0;              // of pq, at the beginning of shared memory
  uint32_t scratch_offset = 0;           // behind them; a multiple of 128
  uint32_t rows_offset = 0;              // of queries, from there
  uint32_t key_bytes[kNumRungIds] = {};  // of strips
  uint32_t value_bytes[kNumRungIds] = {};
  // Work space: of each sequence and query head, and each split of it.
  float* part_sums = nullptr;   // [sequences, query_heads, splits, head_dim]
  float2* part_max = nullptr;   // [sequences, query_heads, splits]: reference and sum
  uint32_t* arrived = nullptr;  // [sequences, kv_heads * head_chunks]; zero between calls
};

// A kernel, for a head_dim, a number of query heads and a way to share pages out.
struct AttendKernel {
  const void* function = nullptr;
  int warps = 0;
  int blocks_per_sm = 0;  // that registers allow
  int readers = 0;        // of a block (strip_slots.cuh)
  int heads = 0;          // query heads of a block
  // Shared memory: of all calls, of each order of the queries, and what scratch must have room for:
  // queries behind the slots of K, the sums of warps at the end.
  size_t fixed_bytes = 0;
  size_t order_bytes = 0;
  size_t row_bytes = 0;
  size_t merge_bytes = 0;
  size_t buffer_bytes = 0;  // for pages of pq, behind the slots
};

// The table of kernels. `wide`: more than 8 query heads. `tiles`: the warps of a block share each
// page. Those for pq take other pages, too.
AttendKernel AttendKernel64(bool wide, bool tiles);
AttendKernel AttendKernel96(bool wide, bool tiles);
AttendKernel AttendKernel128(bool wide, bool tiles);
AttendKernel AttendKernel256(bool wide, bool tiles);
AttendKernel PqAttendKernel64();
AttendKernel PqAttendKernel96();
AttendKernel PqAttendKernel128();
AttendKernel PqAttendKernel256();

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_PARAMS_H_
