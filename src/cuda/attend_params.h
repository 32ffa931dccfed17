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

// The ring of pages of a block (page_ring.cuh).
inline constexpr int kMaxRingPages = 32;
inline constexpr int kRingBarriers = 4;  // of a page: K and V are there, have been read
inline constexpr int kMaxBarriers = kRingBarriers * kMaxRingPages;

struct AttendParams {
  DeviceAttention call;
  int group = 0;        // query heads of a KV head
  int head_chunks = 0;  // blocks that share a KV head, where the group is too large for one
  int block_heads = 0;  // of a block, at most
  uint32_t orders = 0;  // bits of QueryOrder
  uint32_t spaces = 0;
  int short_line = 0;  // not 0: all pages times heads times blocks are below 2^32 (block_share.cuh)
  int ring_pages = 0;
  uint32_t slot_bytes = 0;               // a multiple of 128; 0: strips are read where they lie
  uint32_t table_bytes = 0;              // of pq, at the beginning of shared memory
  uint32_t scratch_offset = 0;           // a multiple of 128, as all offsets; V slots begin there
  uint32_t slots_offset = 0;             // of K's where each warp has its own, or of the ring
  uint32_t buffer_offset = 0;            // of pq
  uint32_t key_bytes[kNumRungIds] = {};  // of strips
  uint32_t value_bytes[kNumRungIds] = {};
  // Work space: parts of heads, two a block (block_share.cuh).
  float* part_sums = nullptr;   // [parts, block_heads, head_dim]
  float2* part_max = nullptr;   // [parts, block_heads]: reference and sum
  uint32_t* arrived = nullptr;  // [sequences, kv_heads * head_chunks]; zero between calls
};

// A kernel, for a head_dim, a number of query heads and a way to share pages out.
struct AttendKernel {
  const void* function = nullptr;
  int warps = 0;           // that read
  int threads = 0;         // with the warp that sends, if there is one
  int blocks_per_sm = 0;   // that registers allow
  bool own_pages = false;  // warps have slots of their own; or there is a ring
  int heads = 0;           // query heads of a block
  // Shared memory: of all calls, of each order of the queries, of each query head in scratch, and
  // for pages of pq.
  size_t fixed_bytes = 0;
  size_t order_bytes = 0;
  size_t scratch_head_bytes = 0;
  size_t buffer_bytes = 0;
};

// The table of kernels. `wide`: more than 8 query heads. `tiles`: four warps share each page. Those
// for pq take other pages, too.
AttendKernel AttendKernel64(bool wide, bool tiles);
AttendKernel AttendKernel96(bool wide, bool tiles);
AttendKernel AttendKernel128(bool wide, bool tiles);
AttendKernel AttendKernel256(bool wide, bool tiles);
AttendKernel PqAttendKernel64();
AttendKernel PqAttendKernel96();
AttendKernel PqAttendKernel128();
AttendKernel PqAttendKernel256();
// For pages of 64 tokens whose keys and values are of one rung or of floats, at most 8 query heads.
// Without a function where there is none. `few`: for few pages of all heads, where a block has few.
// One of the two may fit into shared memory where the other does not.
AttendKernel OneRungKernel64(DeviceRung rung);
AttendKernel OneRungKernel128(DeviceRung rung, bool few);
AttendKernel PqPairsKernel128(bool few);  // pq64x8

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_PARAMS_H_
