// The queries of a block: read, brought to a common magnitude, turned, rounded to f16 and laid out
// in the orders that the pages of the layer need (query_orders.cuh).

#ifndef VARVE_CUDA_QUERY_SETUP_CUH_
#define VARVE_CUDA_QUERY_SETUP_CUH_

#include "cuda/attend_params.h"
#include "cuda/block_share.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/page_ring.cuh"
#include "cuda/pq_rotation.cuh"
#include "cuda/pq_strip.cuh"
#include "cuda/query_orders.cuh"
#include "cuda/strip_slots.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

inline constexpr float kLeast = -1e30f;  // a reference below every score, and finite

// Orders that need turned queries.
inline constexpr uint32_t kTurnedOrders =
    1u << kOrderBlockTurned | 1u << kOrderT4 | 1u << kOrderT3 | 1u << kOrderT2;

// Sets of offsets (QuerySet::offsets): where a block's sum starts, so that the codes' own zero is
// taken off.
enum OffsetSet : int {
  kOffsetsQ8,
  kOffsetsQ4,
  kOffsetsQ8r,
  kOffsetsQ4r,
  kOffsetsTurned,
  kOffsetsPq,
  kNumOffsetSets
};

// Shared memory of a block: this, the fragments of the orders in use, strips on their way, and a
// scratch area for the queries (Row) and later the warps' sums (WarpSums). Where warps have slots
// of their own, scratch is in the place of V strips.
template <int D, int NT, int kWarps>
struct BlockShared {
  static constexpr int kHeads = 8 * NT;
  static constexpr int kStride = D + 4;  // floats from head to head, against bank conflicts
  static constexpr int kRowKinds = 4;    // queries: plain, turned, turned in bytes, of pq
  static constexpr size_t kScratchHeadBytes =
      static_cast<size_t>(kWarps > kRowKinds ? kWarps : kRowKinds) * kStride * sizeof(float);

  uint64_t barriers[kMaxBarriers];
  PageEntry entries[kMaxRingPages];  // of the ring
  float offsets[kNumOffsetSets][D / 32][kHeads];
  float pq_step[kHeads];  // of queries for pq
  // Of scores, to units of log2. Scores of turned keys come in units of their own, for which the
  // mean's are divided by them.
  float factor[kHeads];
  float turned_factor[kHeads];
  float inverse_unit[kHeads];
  float total[kHeads][D];    // plain space
  float2 total_max[kHeads];  // reference and sum; kLeast: there is no total
  float2 warp_max[2][kWarps][kHeads];
  Segment segment;          // that is worked on
  int is_last;              // of the blocks that share a head
  int met[kNumSpaces + 1];  // not 0: there are pages of that space, or floats (kMetFloats)
  // Where the fragments of an order begin. Read anew for every page: kept in registers, the places
  // of all orders would cost more than they do here.
  volatile int set_begin[kNumQueryOrders];
  alignas(16) uint2 fragments[1];  // [orders in use][NT][Steps::kMost][32]

  static constexpr int kSetSize = NT * Steps<D>::kMost * 32;
  __device__ __forceinline__ uint2* Set(int order) { return fragments + set_begin[order]; }
  template <class T>
  __device__ __forceinline__ T* Scratch(const AttendParams& params) {
    return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(this) + params.scratch_offset -
                                params.table_bytes);
  }
  __device__ __forceinline__ float* Row(const AttendParams& params, int kind, int head) {
    return Scratch<float>(params) + (kind * params.block_heads + head) * kStride;
  }
  __device__ __forceinline__ float* WarpSums(const AttendParams& params, int warp, int head) {
    return Scratch<float>(params) + (warp * params.block_heads + head) * kStride;
  }
  // Of the warps that read pages; the one that sends for them goes its own way.
  __device__ __forceinline__ static void Sync() { SyncSome(1, kWarps * 32); }
};

// Values at, at + 32, at + 64 …: all loads before the first use.
template <int kCount>
__device__ __forceinline__ void LoadTensor(TensorType type, const void* data, int64_t at,
                                           float (&v)[kCount]) {
  if (type == TensorType::kF32) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) v[k] = static_cast<const float*>(data)[at + 32 * k];
    return;
  }
  uint16_t bits[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) bits[k] = static_cast<const uint16_t*>(data)[at + 32 * k];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    v[k] = type == TensorType::kF16 ? __half2float(__ushort_as_half(bits[k]))
                                    : __uint_as_float(static_cast<uint32_t>(bits[k]) << 16);
  }
}
__device__ __forceinline__ void StoreTensor(TensorType type, void* data, int64_t at, float value) {
  if (type == TensorType::kF32) {
    static_cast<float*>(data)[at] = value;
  } else if (type == TensorType::kF16) {
    static_cast<half*>(data)[at] = __float2half_rn(value);
  } else {
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
  }
}

// The sums of both halves of every block of a row, rounded to f16 as they are multiplied, to the
// offsets of q8_0 and q4_0.
template <int D, class Shared>
__device__ __forceinline__ void WriteOffsets(const float (&v)[D / 32], int head, int lane, int q8,
                                             int q4, Shared& shared) {
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    float sum = __half2float(__float2half_rn(v[k]));
#pragma unroll
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    const float upper = __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
    if (lane != 0) continue;
    shared.offsets[q8][k][head] = -(kByteMagic + 128.0f) * (sum + upper);
    shared.offsets[q4][k][head] = -(kByteMagic + 8.0f) * sum - (kNibbleMagic + 8.0f) * upper;
  }
}

// The largest of a row's values, in all lanes.
template <int kCount>
__device__ __forceinline__ float LargestOf(const float (&v)[kCount]) {
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < kCount; ++k) largest = fmaxf(largest, fabsf(v[k]));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
  }
  return largest;
}

// The power of two that brings a number to 256 … 512, as its exponent.
__device__ __forceinline__ int ShiftOf(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return largest > 0.0f ? max(-100, min(100, 8 - exponent)) : 0;
}
__device__ __forceinline__ float PowerOfTwo(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
}

// The query for keys of pq: turned, in units of the centroids' bytes, brought to the same magnitude
// as others.
template <int D, class Shared>
__device__ __forceinline__ void LoadPqQuery(const AttendParams& params, int kv_head, int head,
                                            int lane, float (&v)[D / 32], Shared& shared) {
  const PqTables pq = TablesOf(params.call.key_codebook, params.call.shape, kv_head);
  if (pq.rotation != nullptr) TurnRow<D>(pq.rotation, lane, v);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) v[k] *= pq.scales[(32 * k + lane) * pq.subspaces / D];
  const int shift = ShiftOf(LargestOf(v));
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    v[k] *= PowerOfTwo(shift);
    shared.Row(params, 3, head)[32 * k + lane] = v[k];
    sum += __half2float(__float2half_rn(v[k]));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (lane != 0) return;
  shared.offsets[kOffsetsPq][0][head] = -(kByteMagic + 128.0f) * sum;
  shared.pq_step[head] = PowerOfTwo(-shift);
}

// The query for turned keys: its bytes, as on the CPU, and units of its scores.
template <int D, class Shared>
__device__ __forceinline__ void LoadTurnedQuery(const AttendParams& params, int head, int lane,
                                                float factor, float (&v)[D / 32], Shared& shared) {
  ApplySigns<D>(v, lane);
  Hadamard<D>(v, lane);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) shared.Row(params, 1, head)[32 * k + lane] = v[k];
  if ((params.orders >> kOrderBlockTurned & 1) != 0) {
    WriteOffsets<D>(v, head, lane, kOffsetsQ8r, kOffsetsQ4r, shared);
  }
  const float largest = LargestOf(v);
  bool finite = true;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) finite = finite && fabsf(v[k]) < INFINITY;
  finite = __any_sync(0xFFFFFFFFu, !finite) == 0;
  const float inverse = finite && largest > 0.0f ? 127.0f / largest : 0.0f;
  int sum = 0;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const float byte = rintf(v[k] * inverse);
    shared.Row(params, 2, head)[32 * k + lane] = byte;
    sum += static_cast<int>(byte);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (lane != 0) return;
  // Of a query of zeros 1: its scores are 0, and rows that do not count stay at -infinity.
  const float unit = !finite          ? NAN
                     : largest > 0.0f ? largest * (2.0f * kTurnedUnit / 127.0f)
                                      : 1.0f;
  shared.turned_factor[head] = factor * unit;
  shared.inverse_unit[head] = largest > 0.0f ? 1.0f / unit : 0.0f;
  shared.offsets[kOffsetsTurned][0][head] = -kTurnedZero * static_cast<float>(sum);
}

// Rows of f32 in shared memory. A power of two per head brings its largest channel to 256 … 512:
// f16 then has its full precision for all that matters, and no sum overflows.
template <int D, class Shared>
__device__ void LoadQueries(const AttendParams& params, int sequence, int kv_head, int first_head,
                            int num_heads, int warp, int num_warps, int lane, Shared& shared) {
  const DeviceAttention& call = params.call;
  for (int head = warp; head < num_heads; head += num_warps) {
    float v[D / 32];
    const int64_t row = (static_cast<int64_t>(sequence) * call.query_heads + first_head + head) * D;
    LoadTensor(call.query_type, call.queries, row + lane, v);
    const int shift = ShiftOf(LargestOf(v));
    const float factor = call.scale * 1.44269504f * PowerOfTwo(-shift);
    if (lane == 0) shared.factor[head] = factor;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      v[k] *= PowerOfTwo(shift);
      shared.Row(params, 0, head)[32 * k + lane] = v[k];
    }
    if ((params.orders >> kOrderBlock & 1) != 0) {
      WriteOffsets<D>(v, head, lane, kOffsetsQ8, kOffsetsQ4, shared);
    }
    if ((params.orders >> kOrderPq & 1) != 0) {
      float turned[D / 32];
#pragma unroll
      for (int k = 0; k < D / 32; ++k) turned[k] = v[k];
      LoadPqQuery<D>(params, kv_head, head, lane, turned, shared);
    }
    if ((params.orders & kTurnedOrders) != 0) {
      LoadTurnedQuery<D>(params, head, lane, factor, v, shared);
    }
  }
}

// All heads have what they add, the ones that pad a group nothing. All threads, before LoadQueries.
template <class Shared>
__device__ __forceinline__ void ClearQueries(int num_heads, int thread, int num_threads,
                                             Shared& shared) {
  constexpr int kRows = sizeof(shared.offsets) / sizeof(float) / Shared::kHeads;
  auto* offsets = reinterpret_cast<float*>(shared.offsets);
  for (int at = thread; at < kRows * Shared::kHeads; at += num_threads) {
    if (at % Shared::kHeads >= num_heads) offsets[at] = 0.0f;
  }
  if (thread < Shared::kHeads) shared.total_max[thread] = {kLeast, 0.0f};
  if (thread <= kNumSpaces) shared.met[thread] = 0;
  if (thread >= num_heads && thread < Shared::kHeads) {
    shared.factor[thread] = shared.turned_factor[thread] = shared.inverse_unit[thread] = 0.0f;
    shared.pq_step[thread] = 0.0f;
  }
}

// One value of a query in an order, before rounding.
template <int D, class Shared>
__device__ __forceinline__ float QueryValue(const AttendParams& params, Shared& shared, int order,
                                            int head, int channel) {
  const int kind = order == kOrderPq ? 3 : order == kOrderBlockTurned ? 1 : 0;
  const float x = shared.Row(params, kind, head)[channel];
  if (order == kOrderBF16Low) return x - __bfloat162float(__float2bfloat16_rn(x));
  return x;
}

__device__ __forceinline__ uint32_t PackQuery(int order, float x, float y) {
  if (order == kOrderBF16High || order == kOrderBF16Low) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  const half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// kPairs: queries for pq are those of pq_pairs.cuh.
template <int D, int NT, bool kPairs, class Shared>
__device__ void MakeFragments(const AttendParams& params, int num_heads, int thread,
                              int num_threads, Shared& shared) {
  const uint32_t orders = params.orders;
  for (int order = 0; order < kNumQueryOrders; ++order) {
    if ((orders >> order & 1) == 0) continue;
    uint2* set = shared.fragments + __popc(orders & ((1u << order) - 1)) * Shared::kSetSize;
    if (thread == 0) shared.set_begin[order] = static_cast<int>(set - shared.fragments);
    for (int at = thread; at < Shared::kSetSize; at += num_threads) {
      const int lane = at % 32, step = at / 32 % Steps<D>::kMost;
      const int head = at / (32 * Steps<D>::kMost) * 8 + lane / 4;
      if (head >= num_heads) {
        set[at] = {0, 0};
        continue;
      }
      if (kPairs && order == kOrderPq) {
        uint32_t bytes[2] = {0, 0};
        for (int k = 0; k < 8; ++k) {
          const int channel = PqPairs::QueryChannel(step / 2, lane % 4, k);
          const float x = shared.Row(params, 3, head)[channel];
          bytes[k / 4] |= PqPairs::QueryByte(x, step % 2 != 0) << (k % 4 * 8);
        }
        set[at] = {bytes[0], bytes[1]};
        continue;
      }
      if (IsByteOrder(order)) {
        uint32_t bytes[2] = {0, 0};
        for (int j = 0; j < 8; ++j) {
          const int channel = ByteChannelOf<D>(order, step, lane % 4, j);
          const int byte = channel < D ? static_cast<int>(shared.Row(params, 2, head)[channel]) : 0;
          bytes[j / 4] |= (static_cast<uint32_t>(byte) & 255u) << (j % 4 * 8);
        }
        set[at] = {bytes[0], bytes[1]};
        continue;
      }
      float x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        x[j] = QueryValue<D>(params, shared, order, head, ChannelOf<D>(order, step, lane % 4, j));
      }
      set[at] = {PackQuery(order, x[0], x[1]), PackQuery(order, x[2], x[3])};
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_QUERY_SETUP_CUH_
