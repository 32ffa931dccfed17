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
#include "kernels/turned_kernels.h"

namespace varve::cuda {

inline constexpr float kLeast = -1e30f;  // a reference below every score, and finite

// Orders that need turned queries, and those that need them in bytes.
inline constexpr uint32_t kTurnedByteOrders = 1u << kOrderT4 | 1u << kOrderT3 | 1u << kOrderT2;
inline constexpr uint32_t kTurnedOrders = 1u << kOrderBlockTurned | kTurnedByteOrders;

// Orders that a kernel may be asked for: one for pages of one rung and of floats (kOnly of
// AttendConfig), or for any (0).
constexpr uint32_t OrdersOfKernel(int only) {
  constexpr uint32_t kFloats = 1u << kOrderF16 | 1u << kOrderBF16High | 1u << kOrderBF16Low;
  switch (static_cast<DeviceRung>(only)) {
    case DeviceRung::kF16:
    case DeviceRung::kBF16:
      return kFloats;
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ4_0:
      return kFloats | 1u << kOrderBlock;
    case DeviceRung::kQ8_0r:
    case DeviceRung::kQ4_0r:
      return kFloats | 1u << kOrderBlockTurned;
    case DeviceRung::kT4:
      return kFloats | 1u << kOrderT4 | 1u << kOrderMean;
    case DeviceRung::kT3:
      return kFloats | 1u << kOrderT3 | 1u << kOrderMean;
    case DeviceRung::kT2:
      return kFloats | 1u << kOrderT2 | 1u << kOrderMean;
    case DeviceRung::kPq:
      return kFloats | 1u << kOrderPq;
    default:
      return ~0u;
  }
}

// Whether queries are asked for in an order; kOrders as OrdersOfKernel.
template <uint32_t kOrders>
__device__ __forceinline__ bool Has(uint32_t orders, int order) {
  return (orders & kOrders) >> order & 1;
}

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
// scratch area for the warps' sums (WarpSums). Where warps have slots of their own, scratch is in
// the place of V strips.
template <int D, int NT, int kWarps>
struct BlockShared {
  static constexpr int kHeads = 8 * NT;
  static constexpr int kStride = D + 4;  // floats from head to head, against bank conflicts
  static constexpr size_t kScratchHeadBytes = size_t{kWarps} * kStride * sizeof(float);

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
  // The same for those that write them.
  __device__ __forceinline__ uint2* NewSet(uint32_t orders, int order) {
    return fragments + __popc(orders & ((1u << order) - 1)) * kSetSize;
  }
  __device__ __forceinline__ static int FragmentAt(int head, int step, int i) {
    return (head / 8 * Steps<D>::kMost + step) * 32 + head % 8 * 4 + i;
  }
  __device__ __forceinline__ float* WarpSums(const AttendParams& params, int warp, int head) {
    auto* scratch =
        reinterpret_cast<unsigned char*>(this) + params.scratch_offset - params.table_bytes;
    return reinterpret_cast<float*>(scratch) + (warp * params.block_heads + head) * kStride;
  }
  // Of the warps that read pages; the one that sends for them goes its own way.
  __device__ __forceinline__ static void Sync() { SyncSome(1, kWarps * 32); }
};

// Values at, at + 32, at + 64 … of a tensor, on their way: nothing waits for them before Get.
template <int kCount>
struct TensorRow {
  uint32_t bits[kCount];

  __device__ __forceinline__ void Load(TensorType type, const void* data, int64_t at) {
    if (type == TensorType::kF32) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) bits[k] = static_cast<const uint32_t*>(data)[at + 32 * k];
      return;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) bits[k] = static_cast<const uint16_t*>(data)[at + 32 * k];
  }
  __device__ __forceinline__ void Get(TensorType type, float (&v)[kCount]) const {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      v[k] = type == TensorType::kF32   ? __uint_as_float(bits[k])
             : type == TensorType::kF16 ? __half2float(__ushort_as_half(bits[k]))
                                        : __uint_as_float(bits[k] << 16);
    }
  }
};
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

// A row as f16 (kBrain: bf16) in an order.
template <int D, int kOrder, bool kBrain = false, class Shared>
__device__ __forceinline__ void WriteHalves(uint32_t orders, int head, int lane,
                                            const float (&v)[D / 32], Shared& shared) {
  uint2* set = shared.NewSet(orders, kOrder);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const ChannelPlace place = PlaceOf(kOrder, 32 * k + lane);
    const uint16_t bits = kBrain ? __bfloat16_as_ushort(__float2bfloat16_rn(v[k]))
                                 : __half_as_ushort(__float2half_rn(v[k]));
    auto* to = reinterpret_cast<uint16_t*>(set + Shared::FragmentAt(head, place.step, place.i));
    to[place.j] = bits;
  }
}

// The query for keys of pq: turned, in units of the centroids' bytes, brought to the same magnitude
// as others. kPairs: in 16 bits, for pq_pairs.cuh.
template <int D, bool kPairs, class Shared>
__device__ __forceinline__ void LoadPqQuery(const AttendParams& params, uint32_t orders,
                                            int kv_head, int head, int lane, float (&v)[D / 32],
                                            Shared& shared) {
  const PqTables pq = TablesOf(params.call.key_codebook, params.call.shape, kv_head);
  if (pq.rotation != nullptr) TurnRow<D>(pq.rotation, lane, v);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) v[k] *= pq.scales[(32 * k + lane) * pq.subspaces / D];
  const int shift = ShiftOf(LargestOf(v));
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    v[k] *= PowerOfTwo(shift);
    sum += __half2float(__float2half_rn(v[k]));
  }
  if constexpr (kPairs) {
    uint2* set = shared.NewSet(orders, kOrderPq);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      const ChannelPlace place = PqPairs::QueryPlace(32 * k + lane);
      for (const int low : {0, 1}) {
        uint2* to = set + Shared::FragmentAt(head, 2 * place.step + low, place.i);
        reinterpret_cast<uint8_t*>(to)[place.j] = PqPairs::QueryByte(v[k], low != 0);
      }
    }
  } else {
    WriteHalves<D, kOrderPq>(orders, head, lane, v, shared);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (lane != 0) return;
  shared.offsets[kOffsetsPq][0][head] = -(kByteMagic + 128.0f) * sum;
  shared.pq_step[head] = PowerOfTwo(-shift);
}

// A row of bytes in an order of products of bytes.
template <int D, int kOrder, class Shared>
__device__ __forceinline__ void WriteBytes(uint32_t orders, int head, int lane,
                                           const int (&bytes)[D / 32], Shared& shared) {
  uint2* set = shared.NewSet(orders, kOrder);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const ChannelPlace place = BytePlaceOf(kOrder, 32 * k + lane);
    auto* to = reinterpret_cast<int8_t*>(set + Shared::FragmentAt(head, place.step, place.i));
    to[place.j] = static_cast<int8_t>(bytes[k]);
  }
}

// The query for turned keys: its bytes, as on the CPU but for numbers in the middle between two,
// and units of its scores.
template <int D, uint32_t kOrders, class Shared>
__device__ __forceinline__ void LoadTurnedQuery(uint32_t orders, int head, int lane, float factor,
                                                float (&v)[D / 32], Shared& shared) {
  ApplySigns<D>(v, lane);
  Hadamard<D>(v, lane);
  if (Has<kOrders>(orders, kOrderBlockTurned)) {
    WriteHalves<D, kOrderBlockTurned>(orders, head, lane, v, shared);
    WriteOffsets<D>(v, head, lane, kOffsetsQ8r, kOffsetsQ4r, shared);
  }
  if ((kOrders & kTurnedByteOrders) == 0) return;
  const float largest = LargestOf(v);
  bool finite = true;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) finite = finite && fabsf(v[k]) < INFINITY;
  finite = __any_sync(0xFFFFFFFFu, !finite) == 0;
  const float inverse = finite && largest > 0.0f ? 127.0f * Reciprocal(largest) : 0.0f;
  int bytes[D / 32], sum = 0;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    bytes[k] = static_cast<int>(rintf(v[k] * inverse));
    sum += bytes[k];
  }
  if (Has<kOrders>(orders, kOrderT4)) WriteBytes<D, kOrderT4>(orders, head, lane, bytes, shared);
  if (Has<kOrders>(orders, kOrderT3)) WriteBytes<D, kOrderT3>(orders, head, lane, bytes, shared);
  if (Has<kOrders>(orders, kOrderT2)) WriteBytes<D, kOrderT2>(orders, head, lane, bytes, shared);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (lane != 0) return;
  // Of a query of zeros 1: its scores are 0, and rows that do not count stay at -infinity.
  const float unit = !finite          ? NAN
                     : largest > 0.0f ? largest * (2.0f * kTurnedUnit / 127.0f)
                                      : 1.0f;
  shared.turned_factor[head] = factor * unit;
  shared.inverse_unit[head] = largest > 0.0f ? Reciprocal(unit) : 0.0f;
  shared.offsets[kOffsetsTurned][0][head] = -kTurnedZero * static_cast<float>(sum);
}

// A query of a sequence, by its head.
template <int D>
__device__ __forceinline__ void StartQuery(const AttendParams& params, int sequence, int head,
                                           int lane, TensorRow<D / 32>& row) {
  const int64_t first = (static_cast<int64_t>(sequence) * params.call.query_heads + head) * D;
  row.Load(params.call.query_type, params.call.queries, first + lane);
}

// The heads of a block by warps. A power of two per head brings its largest channel to 256 … 512:
// f16 then has its full precision for all that matters, and no sum overflows. `row` is the warp's
// first query. kPairs: queries for pq are those of pq_pairs.cuh.
template <int D, bool kPairs, uint32_t kOrders, class Shared>
__device__ __forceinline__ void LoadQueries(const AttendParams& params, int sequence, int kv_head,
                                            int first_head, int num_heads, int warp, int num_warps,
                                            int lane, TensorRow<D / 32>& row, Shared& shared) {
  const DeviceAttention& call = params.call;
  const uint32_t orders = params.orders;
  for (int head = warp; head < num_heads; head += num_warps) {
    if (head != warp) StartQuery<D>(params, sequence, first_head + head, lane, row);
    float v[D / 32];
    row.Get(call.query_type, v);
    const int shift = ShiftOf(LargestOf(v));
    const float factor = call.scale * 1.44269504f * PowerOfTwo(-shift);
    if (lane == 0) shared.factor[head] = factor;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) v[k] *= PowerOfTwo(shift);
    if (Has<kOrders>(orders, kOrderF16)) {
      WriteHalves<D, kOrderF16>(orders, head, lane, v, shared);
    }
    if (Has<kOrders>(orders, kOrderBF16High)) {
      WriteHalves<D, kOrderBF16High, true>(orders, head, lane, v, shared);
      float rest[D / 32];
#pragma unroll
      for (int k = 0; k < D / 32; ++k) rest[k] = v[k] - __bfloat162float(__float2bfloat16_rn(v[k]));
      WriteHalves<D, kOrderBF16Low, true>(orders, head, lane, rest, shared);
    }
    if (Has<kOrders>(orders, kOrderMean)) {
      WriteHalves<D, kOrderMean>(orders, head, lane, v, shared);
    }
    if (Has<kOrders>(orders, kOrderBlock)) {
      WriteHalves<D, kOrderBlock>(orders, head, lane, v, shared);
      WriteOffsets<D>(v, head, lane, kOffsetsQ8, kOffsetsQ4, shared);
    }
    if (Has<kOrders>(orders, kOrderPq)) {
      float turned[D / 32];
#pragma unroll
      for (int k = 0; k < D / 32; ++k) turned[k] = v[k];
      LoadPqQuery<D, kPairs>(params, orders, kv_head, head, lane, turned, shared);
    }
    if ((orders & kOrders & kTurnedOrders) != 0) {
      LoadTurnedQuery<D, kOrders>(orders, head, lane, factor, v, shared);
    }
  }
}

// What LoadQueries does not write: places of heads that pad a group, or of lanes that have no
// channels. All threads; a barrier must follow.
template <int D, uint32_t kOrders, class Shared>
__device__ __forceinline__ void ClearQueries(uint32_t orders, int num_heads, int thread,
                                             int num_threads, Shared& shared) {
  constexpr int kRows = sizeof(shared.offsets) / sizeof(float) / Shared::kHeads;
  auto* offsets = reinterpret_cast<float*>(shared.offsets);
  for (int at = thread; at < kRows * Shared::kHeads; at += num_threads) {
    if (at % Shared::kHeads >= num_heads) offsets[at] = 0.0f;
  }
  for (int at = thread; at < __popc(orders) * Shared::kSetSize; at += num_threads) {
    const int head = at % Shared::kSetSize / (32 * Steps<D>::kMost) * 8 + at % 32 / 4;
    if (head >= num_heads) shared.fragments[at] = {0, 0};
  }
  if constexpr (D % 128 != 0) {  // cells of a quad's lanes that are not there
    for (const int order : {kOrderT3, kOrderT2}) {
      if (!Has<kOrders>(orders, order)) continue;
      uint2* set = shared.NewSet(orders, order);
      for (int at = thread; at < Shared::kSetSize; at += num_threads) {
        if (at % 4 >= D / 32) set[at] = {0, 0};
      }
    }
  }
  if (thread < kNumQueryOrders) {
    shared.set_begin[thread] = static_cast<int>(shared.NewSet(orders, thread) - shared.fragments);
  }
  if (thread < Shared::kHeads) shared.total_max[thread] = {kLeast, 0.0f};
  if (thread <= kNumSpaces) shared.met[thread] = 0;
  if (thread >= num_heads && thread < Shared::kHeads) {
    shared.factor[thread] = shared.turned_factor[thread] = shared.inverse_unit[thread] = 0.0f;
    shared.pq_step[thread] = 0.0f;
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_QUERY_SETUP_CUH_
