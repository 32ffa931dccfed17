// The queries of a block: read, brought to a common magnitude, turned, rounded to f16 and laid out
// in the orders that the pages of the layer need (query_orders.cuh).

#ifndef VARVE_CUDA_QUERY_SETUP_CUH_
#define VARVE_CUDA_QUERY_SETUP_CUH_

#include "cuda/attend_params.h"
#include "cuda/hadamard.cuh"
#include "cuda/query_orders.cuh"
#include "cuda/strip_ring.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

// Sets of offsets (QuerySet::offsets): where a block's sum starts, so that the codes' own zero is
// taken off.
enum OffsetSet : int {
  kOffsetsQ8,
  kOffsetsQ4,
  kOffsetsQ8r,
  kOffsetsQ4r,
  kOffsetsTurned,
  kNumOffsetSets
};

// Shared memory of a block: this, the fragments of the orders in use, and a scratch area, which
// holds first the queries (Rows), then strips on their way (strip_ring.cuh), then the warps' sums
// (Merge).
template <int D, int NT, int kWarps>
struct BlockShared {
  static constexpr int kHeads = 8 * NT;
  static constexpr int kStride = D + 4;    // floats from head to head, against bank conflicts
  using Rows = float[3][kHeads][kStride];  // queries: plain, turned, turned by the codebook
  using Merge = float[kWarps][kHeads][kStride];

  uint64_t barriers[kMaxRingSlots];
  QueuedPage queue[kWarps][kQueuePages];
  float offsets[kNumOffsetSets][D / 32][kHeads];
  float turned_step[kHeads];  // of the bytes of turned queries
  float factor[kHeads];       // of scores, in units of log2
  float total[kHeads][D];     // plain space
  float2 total_max[kHeads];   // reference and sum
  float2 warp_max[2][kWarps][kHeads];
  uint32_t scratch_offset;  // bytes from here
  // Where the fragments of an order begin. Read anew for every page: kept in registers, the places
  // of all orders would cost more than they do here.
  volatile int set_begin[kNumQueryOrders];
  alignas(16) uint2 fragments[1];  // [orders in use][NT][Steps::kMost][32]

  static constexpr int kSetSize = NT * Steps<D>::kMost * 32;
  __device__ __forceinline__ uint2* Set(int order) { return fragments + set_begin[order]; }
  template <class T>
  __device__ __forceinline__ T* Scratch() {
    return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(this) + scratch_offset);
  }
};

__device__ __forceinline__ float LoadTensor(TensorType type, const void* data, int64_t at) {
  if (type == TensorType::kF32) return static_cast<const float*>(data)[at];
  if (type == TensorType::kF16) return __half2float(static_cast<const half*>(data)[at]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
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

// Rows of f32 in shared memory. A power of two per head brings its largest channel to 256 … 512:
// f16 then has its full precision for all that matters, and no sum overflows.
template <int D, class Shared>
__device__ void LoadQueries(const AttendParams& params, int sequence, int first_head, int num_heads,
                            int warp, int num_warps, int lane, Shared& shared) {
  const DeviceAttention& call = params.call;
  auto& rows = *shared.template Scratch<typename Shared::Rows>();
  for (int head = warp; head < Shared::kHeads; head += num_warps) {
    float v[D / 32] = {};
    float largest = 0.0f;
    if (head < num_heads) {
      const int64_t row =
          (static_cast<int64_t>(sequence) * call.query_heads + first_head + head) * D;
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        v[k] = LoadTensor(call.query_type, call.queries, row + 32 * k + lane);
        largest = fmaxf(largest, fabsf(v[k]));
      }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    }
    const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
    const int shift = largest > 0.0f ? max(-100, min(100, 8 - exponent)) : 0;
    const float up = __uint_as_float(static_cast<uint32_t>(127 + shift) << 23);
    if (lane == 0) {
      const float down = __uint_as_float(static_cast<uint32_t>(127 - shift) << 23);
      shared.factor[head] = call.scale * 1.44269504f * down;
    }
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      v[k] *= up;
      rows[0][head][32 * k + lane] = v[k];
    }
    ApplySigns<D>(v, lane);
    Hadamard<D>(v, lane);
    largest = 0.0f;
    bool finite = true;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      finite = finite && fabsf(v[k]) < INFINITY;
      largest = fmaxf(largest, fabsf(v[k]));
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    }
    finite = __any_sync(0xFFFFFFFFu, !finite) == 0;
    // Bytes of turned queries, as on the CPU.
    if (lane == 0) shared.turned_step[head] = finite ? largest / 127.0f : NAN;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) rows[1][head][32 * k + lane] = v[k];
  }
}

// One value of a query in an order, before rounding.
template <int D, class Shared>
__device__ __forceinline__ float QueryValue(Shared& shared, int order, int head, int channel) {
  if (channel >= D) return 0.0f;
  auto& rows = *shared.template Scratch<typename Shared::Rows>();
  const int space = order == kOrderPq ? 2 : order >= kOrderBlockTurned && order <= kOrderT2 ? 1 : 0;
  const float x = rows[space][head][channel];
  if (order == kOrderMeanLow) return x - __half2float(__float2half_rn(x));
  if (order == kOrderBF16Low) return x - __bfloat162float(__float2bfloat16_rn(x));
  return x;
}

// A turned query in steps of 1 / 127 of its largest channel.
template <int D, class Shared>
__device__ __forceinline__ int QueryByte(Shared& shared, int head, int channel) {
  const float step = shared.turned_step[head];
  if (channel >= D || !(step > 0.0f)) return 0;
  auto& rows = *shared.template Scratch<typename Shared::Rows>();
  return static_cast<int>(rintf(fminf(fmaxf(rows[1][head][channel] / step, -127.0f), 127.0f)));
}

__device__ __forceinline__ uint32_t PackQuery(int order, float x, float y) {
  if (order == kOrderBF16High || order == kOrderBF16Low) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  const half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <int D, int NT, class Shared>
__device__ void MakeFragments(uint32_t orders, int thread, int num_threads, Shared& shared) {
  for (int order = 0; order < kNumQueryOrders; ++order) {
    if ((orders >> order & 1) == 0) continue;
    uint2* set = shared.fragments + __popc(orders & ((1u << order) - 1)) * Shared::kSetSize;
    if (thread == 0) shared.set_begin[order] = static_cast<int>(set - shared.fragments);
    for (int at = thread; at < Shared::kSetSize; at += num_threads) {
      const int lane = at % 32, step = at / 32 % Steps<D>::kMost;
      const int head = at / (32 * Steps<D>::kMost) * 8 + lane / 4;
      if (IsByteOrder(order)) {
        uint32_t bytes[2] = {0, 0};
        for (int j = 0; j < 8; ++j) {
          const int channel = ByteChannelOf<D>(order, step, lane % 4, j);
          bytes[j / 4] |= (QueryByte<D>(shared, head, channel) & 255u) << (j % 4 * 8);
        }
        set[at] = {bytes[0], bytes[1]};
        continue;
      }
      float x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        x[j] = QueryValue<D>(shared, order, head, ChannelOf<D>(order, step, lane % 4, j));
      }
      set[at] = {PackQuery(order, x[0], x[1]), PackQuery(order, x[2], x[3])};
    }
  }
}

template <int D, class Shared>
__device__ void MakeOffsets(int thread, int num_threads, Shared& shared) {
  constexpr int kBlocks = D / 32;
  auto& rows = *shared.template Scratch<typename Shared::Rows>();
  for (int at = thread; at < kBlocks * Shared::kHeads * 2; at += num_threads) {
    const int head = at % Shared::kHeads, block = at / Shared::kHeads % kBlocks;
    const int space = at / (Shared::kHeads * kBlocks);
    float sum[2] = {0.0f, 0.0f};  // as they are multiplied: rounded
    for (int i = 0; i < 32; ++i) {
      sum[i / 16] += __half2float(__float2half_rn(rows[space][head][32 * block + i]));
    }
    shared.offsets[space == 0 ? kOffsetsQ8 : kOffsetsQ8r][block][head] =
        -(kByteMagic + 128.0f) * (sum[0] + sum[1]);
    shared.offsets[space == 0 ? kOffsetsQ4 : kOffsetsQ4r][block][head] =
        -(kByteMagic + 8.0f) * sum[0] - (kNibbleMagic + 8.0f) * sum[1];
  }
  for (int head = thread; head < Shared::kHeads; head += num_threads) {
    int sum = 0;
    for (int d = 0; d < D; ++d) sum += QueryByte<D>(shared, head, d);
    shared.offsets[kOffsetsTurned][0][head] = static_cast<float>(-kTurnedOffset * sum);
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_QUERY_SETUP_CUH_
