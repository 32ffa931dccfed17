// The attention kernel. A block works on one split of the pages of one (sequence, KV head), for up
// to 8 * NT query heads. Its warps take pages in turn and work by themselves: scores of 64 tokens,
// softmax with a running reference, weighted values. Nothing passes through shared memory but the
// queries; a page's bytes go from global memory to registers once, in the order in which the
// products want them (key_scores.cuh, value_sums.cuh), while the strip that comes next is fetched
// into the second-level cache. Then the warps' sums are joined, and the last block of a head joins
// the splits.
//
// Pages of all rungs may be mixed. Values of different spaces (plain, turned, pq) are summed in
// passes of their own over the same records; few layers have more than two.
//
// Weights are 2^(score - reference) with a reference 6 below the maximum: weights of f16 up to 64
// keep their precision far below the largest.

#ifndef VARVE_CUDA_ATTEND_KERNEL_CUH_
#define VARVE_CUDA_ATTEND_KERNEL_CUH_

#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/key_scores.cuh"
#include "cuda/query_setup.cuh"
#include "cuda/value_sums.cuh"

namespace varve::cuda {

inline constexpr float kLeast = -1e30f;  // a reference below every score, and finite
inline constexpr float kHeadroom = 6.0f;
inline constexpr float kLn2 = 0.693147181f;

__device__ __forceinline__ int SpaceOf(DeviceRung value_rung) {
  switch (value_rung) {
    case DeviceRung::kF16:
    case DeviceRung::kBF16:
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ4_0:
      return kSpacePlain;
    case DeviceRung::kPq:
      return kSpacePq;
    default:
      return kSpaceTurned;
  }
}

// The state of a warp between pages.
template <int D, int NT>
struct WarpState {
  Sums<D, NT> o;
  float reference[NT][2];  // of heads 8 * nt + 2i and the next
  float sum[NT][2];        // of this lane's tokens
};

template <int D, int NT>
__device__ __forceinline__ void Reset(WarpState<D, NT>& state) {
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
#pragma unroll
    for (int k = 0; k < 2 * NT * 4; ++k) state.o[block][k / (NT * 4)][k / 4 % NT][k % 4] = 0.0f;
  }
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    state.reference[nt][0] = state.reference[nt][1] = kLeast;
    state.sum[nt][0] = state.sum[nt][1] = 0.0f;
  }
}

// The scores of a chunk become weights; the state is brought to the new reference. page_sum follows
// it.
template <int D, int NT>
__device__ __forceinline__ void Softmax(const AttendParams& params, const float* factors,
                                        uint64_t live, const LanePlace& at, Scores<NT>& s,
                                        WarpState<D, NT>& state, float (&page_sum)[NT][2]) {
  float factor[NT][2];
  float alpha[NT][2];
  bool moved = false;
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    factor[nt][0] = factors[8 * nt];
    factor[nt][1] = factors[8 * nt + 1];
  }
  const float cap = params.call.soft_cap;
  if (cap > 0.0f) {
    const float to_cap = 0.693147181f / cap;
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        float& x = s[k / 4][nt][k % 4];
        x = cap * 1.44269504f * tanhf(x * factor[nt][k % 2] * to_cap);
      }
      factor[nt][0] = factor[nt][1] = 1.0f;
    }
  }
  if (live != ~uint64_t{0}) {
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      const uint32_t rows = static_cast<uint32_t>(live >> (16 * tile + 2 * at.g));
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if ((rows >> (c / 2) & 1) == 0) s[tile][nt][c] = -INFINITY;
        }
      }
    }
  }
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = -INFINITY;
#pragma unroll
      for (int k = 0; k < 8; ++k) most = fmaxf(most, s[k / 2][nt][k % 2 * 2 + h]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
      }
      const float before = state.reference[nt][h];
      const float after = fmaxf(before, fmaf(most, factor[nt][h], -kHeadroom));
      alpha[nt][h] = Exp2(before - after);
      moved = moved || after != before;
      state.reference[nt][h] = after;
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        float& x = s[k / 2][nt][k % 2 * 2 + h];
        x = Exp2(fmaf(x, factor[nt][h], -after));
        sum += x;
      }
      state.sum[nt][h] = fmaf(state.sum[nt][h], alpha[nt][h], sum);
      page_sum[nt][h] = fmaf(page_sum[nt][h], alpha[nt][h], sum);
    }
  }
  if (!__any_sync(0xFFFFFFFFu, moved)) return;
#pragma unroll
  for (int block = 0; block < D / 32; ++block) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
        for (int c = 0; c < 4; ++c) state.o[block][m][nt][c] *= alpha[nt][c % 2];
      }
    }
  }
}

// This lane's view of an order of the queries.
template <int D, int NT, class Shared>
__device__ __forceinline__ QuerySet<D, NT> SetOf(Shared& shared, int order, int offsets,
                                                 const LanePlace& at) {
  return {shared.Set(order) + at.lane, &shared.offsets[offsets][0][2 * at.i]};
}

template <int D, int NT, class Shared>
__device__ __forceinline__ void ScoreKeys(DeviceRung rung, const std::byte* strip, int page_tokens,
                                          int chunk, const LanePlace& at, Shared& shared,
                                          Scores<NT>& s) {
  const auto set = [&](int order, int offsets = 0) {
    return SetOf<D, NT>(shared, order, offsets, at);
  };
  switch (rung) {
    case DeviceRung::kF16:
      return FloatKeyScores<D, NT, false>(strip, chunk, at, set(kOrderF16), set(kOrderF16), s);
    case DeviceRung::kBF16:
      return FloatKeyScores<D, NT, true>(strip, chunk, at, set(kOrderBF16High), set(kOrderBF16Low),
                                         s);
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ8_0r: {
      const bool turned = rung == DeviceRung::kQ8_0r;
      return BlockKeyScores<D, NT, 2>(
          strip, page_tokens, chunk, at,
          set(turned ? kOrderBlockTurned : kOrderBlock, turned ? kOffsetsQ8r : kOffsetsQ8), s);
    }
    case DeviceRung::kQ4_0:
    case DeviceRung::kQ4_0r: {
      const bool turned = rung == DeviceRung::kQ4_0r;
      return BlockKeyScores<D, NT, 1>(
          strip, page_tokens, chunk, at,
          set(turned ? kOrderBlockTurned : kOrderBlock, turned ? kOffsetsQ4r : kOffsetsQ4), s);
    }
    case DeviceRung::kT4:
      Turned4KeyScores<D, NT>(strip, page_tokens, chunk, at, set(kOrderT4, kOffsetsTurned), s);
      break;
    case DeviceRung::kT3:
      CellKeyScores<D, NT, 3>(strip, page_tokens, chunk, at, set(kOrderCells, kOffsetsTurned), s);
      break;
    case DeviceRung::kT2:
      CellKeyScores<D, NT, 2>(strip, page_tokens, chunk, at, set(kOrderCells, kOffsetsTurned), s);
      break;
    default:
#pragma unroll
      for (int k = 0; k < 16 * NT; ++k) s[k / 4 % 4][k / 16][k % 4] = NAN;
      return;
  }
  FinishTurnedScores<D, NT>(strip, chunk, at, set(kOrderMeanHigh), set(kOrderMeanLow), s);
}

template <int D, int NT>
__device__ __forceinline__ void SumValues(DeviceRung rung, const std::byte* strip, int page_tokens,
                                          int chunk, const LanePlace& at, uint64_t live,
                                          const Scores<NT>& p, Sums<D, NT>& o) {
  switch (rung) {
    case DeviceRung::kF16:
      return FloatValueSums<D, NT, false>(strip, page_tokens, chunk, at, live, p, o);
    case DeviceRung::kBF16:
      return FloatValueSums<D, NT, true>(strip, page_tokens, chunk, at, live, p, o);
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ8_0r:
      return BlockValueSums<D, NT, 2>(strip, page_tokens, chunk, at, p, o);
    case DeviceRung::kQ4_0:
    case DeviceRung::kQ4_0r:
      return BlockValueSums<D, NT, 1>(strip, page_tokens, chunk, at, p, o);
    case DeviceRung::kT4:
      return Turned4ValueSums<D, NT>(strip, page_tokens, chunk, at, p, o);
    case DeviceRung::kT3:
      return CellValueSums<D, NT, 3>(strip, page_tokens, chunk, at, p, o);
    case DeviceRung::kT2:
      return CellValueSums<D, NT, 2>(strip, page_tokens, chunk, at, p, o);
    default:
      return;
  }
}

__device__ __forceinline__ DevicePage LoadPage(const DevicePage* page) {
  DevicePage copy;
  const uint4* from = reinterpret_cast<const uint4*>(page);
  uint4* to = reinterpret_cast<uint4*>(&copy);
  to[0] = __ldg(from);
  to[1] = __ldg(from + 1);
  return copy;
}

// Sums over the eight lanes that hold the same heads.
__device__ __forceinline__ float SumOverTokens(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

template <int NT>
__device__ __forceinline__ void WritePageLse(const AttendParams& params, int64_t page,
                                             int first_head, int num_heads, const LanePlace& at,
                                             const float (&reference)[NT][2],
                                             const float (&page_sum)[NT][2]) {
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = SumOverTokens(page_sum[nt][h]);
      const int head = 8 * nt + 2 * at.i + h;
      if (at.g == 0 && head < num_heads) {
        params.call.page_lse[page * params.call.query_heads + first_head + head] =
            (reference[nt][h] + log2f(sum)) * kLn2;
      }
    }
  }
}

// One warp's pages of one space.
template <int D, int NT, int kWarps, class Shared>
__device__ __forceinline__ void WalkPages(const AttendParams& params, int space, int begin, int end,
                                          int kv_head, int first_head, int num_heads, int warp,
                                          const LanePlace& at, Shared& shared,
                                          WarpState<D, NT>& state) {
  const int page_tokens = params.call.shape.page_tokens;
  const float* factors = &shared.factor[2 * at.i];
  const auto strip_of = [&](const DevicePage& page) {
    const uint32_t bytes = params.key_bytes[static_cast<int>(page.key_rung)] +
                           params.value_bytes[static_cast<int>(page.value_rung)];
    return page.bytes + static_cast<size_t>(kv_head) * bytes;
  };
  DevicePage next;
  if (begin + warp < end) next = LoadPage(params.call.pages + begin + warp);
  for (int index = begin + warp; index < end; index += kWarps) {
    const DevicePage page = next;
    const bool has_next = index + kWarps < end;
    if (has_next) next = LoadPage(params.call.pages + index + kWarps);
    if (SpaceOf(page.value_rung) != space) continue;
    const std::byte* keys = strip_of(page);
    const std::byte* values = keys + params.key_bytes[static_cast<int>(page.key_rung)];
    if (params.prefetch) {
      FetchAhead(values, params.value_bytes[static_cast<int>(page.value_rung)], at.lane);
    }
    float page_sum[NT][2] = {};
    for (int chunk = 0; chunk < page_tokens / 64; ++chunk) {
      const uint64_t live = chunk == 0 ? page.live[0] : page.live[1];
      if (live == 0) continue;
      Scores<NT> s;
      ScoreKeys<D, NT>(page.key_rung, keys, page_tokens, chunk, at, shared, s);
      if (params.prefetch && has_next && chunk == 0) {
        FetchAhead(strip_of(next), params.key_bytes[static_cast<int>(next.key_rung)], at.lane);
      }
      Softmax<D, NT>(params, factors, live, at, s, state, page_sum);
      SumValues<D, NT>(page.value_rung, values, page_tokens, chunk, at, live, s, state.o);
    }
    if (params.call.page_lse != nullptr) {
      WritePageLse<NT>(params, index, first_head, num_heads, at, state.reference, page_sum);
    }
  }
}

// The warps' states of one space into the block's total, which is in the plain space.
template <int D, int NT, int kWarps, class Shared>
__device__ __forceinline__ void JoinWarps(int space, int warp, const LanePlace& at, Shared& shared,
                                          const WarpState<D, NT>& state) {
  __syncthreads();  // queries have been used, and an earlier space's sums
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = SumOverTokens(state.sum[nt][h]);
      if (at.g == 0) {
        shared.warp_max[warp][8 * nt + 2 * at.i + h] = {state.reference[nt][h], sum};
      }
    }
#pragma unroll
    for (int block = 0; block < D / 32; ++block) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int m = k / 4, c = k % 4;
        shared.merge[warp][8 * nt + 2 * at.i + c % 2][32 * block + 2 * at.g + m + 16 * (c / 2)] =
            state.o[block][m][nt][c];
      }
    }
  }
  __syncthreads();
  for (int head = warp; head < Shared::kHeads; head += kWarps) {
    float reference = kLeast;
    for (int w = 0; w < kWarps; ++w) reference = fmaxf(reference, shared.warp_max[w][head].x);
    float v[D / 32] = {};
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = Exp2(shared.warp_max[w][head].x - reference);
      sum = fmaf(shared.warp_max[w][head].y, weight, sum);
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        v[k] = fmaf(shared.merge[w][head][32 * k + at.lane], weight, v[k]);
      }
    }
    if (space == kSpaceTurned) {
      Hadamard<D>(v, at.lane);
      ApplySigns<D>(v, at.lane);
    }
    const float2 before = shared.total_max[head];
    const float after = fmaxf(before.x, reference);
    const float keep = Exp2(before.x - after), add = Exp2(reference - after);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      float& total = shared.total[head][32 * k + at.lane];
      total = fmaf(total, keep, v[k] * add);
    }
    __syncwarp();
    if (at.lane == 0) shared.total_max[head] = {after, fmaf(before.y, keep, sum * add)};
  }
}

// One head's result, from sums v relative to a reference.
template <int D>
__device__ __forceinline__ void WriteOutput(const AttendParams& params, int64_t row, int lane,
                                            float reference, float sum, const float (&v)[D / 32]) {
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // NaN stays
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    StoreTensor(params.call.output_type, params.call.output, row * D + 32 * k + lane,
                v[k] * inverse);
  }
  if (lane == 0 && params.call.lse != nullptr) {
    params.call.lse[row] = sum == 0.0f ? -INFINITY : (reference + log2f(sum)) * kLn2;
  }
}

// The splits of one head, by one warp.
template <int D>
__device__ __forceinline__ void JoinSplits(const AttendParams& params, int64_t row, int lane) {
  const float2* parts = params.part_max + row * params.splits;
  float2 mine[kMaxSplits / 32];
  float reference = kLeast;
#pragma unroll
  for (int k = 0; k < kMaxSplits / 32; ++k) {
    const int split = 32 * k + lane;
    mine[k] = split < params.splits ? __ldcg(parts + split) : make_float2(kLeast, 0.0f);
    reference = fmaxf(reference, mine[k].x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    reference = fmaxf(reference, __shfl_xor_sync(0xFFFFFFFFu, reference, step));
  }
  float sum = 0.0f;
  float weight[kMaxSplits / 32];
#pragma unroll
  for (int k = 0; k < kMaxSplits / 32; ++k) {
    weight[k] = Exp2(mine[k].x - reference);
    sum = fmaf(mine[k].y, weight[k], sum);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  float v[D / 32] = {};
  const float* sums = params.part_sums + row * params.splits * D + lane;
#pragma unroll
  for (int k = 0; k < kMaxSplits / 32; ++k) {
    for (int split = 32 * k; split < min(params.splits, 32 * k + 32); ++split) {
      const float factor = __shfl_sync(0xFFFFFFFFu, weight[k], split % 32);
#pragma unroll
      for (int d = 0; d < D / 32; ++d) {
        v[d] = fmaf(__ldcg(sums + static_cast<int64_t>(split) * D + 32 * d), factor, v[d]);
      }
    }
  }
  WriteOutput<D>(params, row, lane, reference, sum, v);
}

// The block's total goes to the output or, with other splits, to the work space; the block that
// comes last joins them.
template <int D, int kWarps, class Shared>
__device__ __forceinline__ void Finish(const AttendParams& params, int sequence, int first_head,
                                       int num_heads, int warp, int lane, Shared& shared) {
  const int64_t first_row = static_cast<int64_t>(sequence) * params.call.query_heads + first_head;
  for (int head = warp; head < num_heads; head += kWarps) {
    float v[D / 32];
#pragma unroll
    for (int k = 0; k < D / 32; ++k) v[k] = shared.total[head][32 * k + lane];
    const float2 most = shared.total_max[head];
    if (params.splits == 1) {
      WriteOutput<D>(params, first_row + head, lane, most.x, most.y, v);
      continue;
    }
    const int64_t part = (first_row + head) * params.splits + blockIdx.x;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) __stcg(params.part_sums + part * D + 32 * k + lane, v[k]);
    if (lane == 0) __stcg(params.part_max + part, most);
  }
  if (params.splits == 1) return;
  __threadfence();
  __syncthreads();
  __shared__ bool is_last;
  uint32_t* arrived = params.arrived + static_cast<size_t>(sequence) * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) {
    is_last = atomicAdd(arrived, 1u) + 1 == static_cast<uint32_t>(params.splits);
    if (is_last) *arrived = 0;  // for the next call
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int head = warp; head < num_heads; head += kWarps) {
    JoinSplits<D>(params, first_row + head, lane);
  }
}

// Grid: splits, KV heads times head_chunks, sequences.
template <int D, int NT, int kWarps, int kBlocksPerSm>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerSm)
    AttendPages(VARVE_KERNEL_PARAMETER(AttendParams) params) {
  using Shared = BlockShared<D, NT, kWarps>;
  VARVE_DYNAMIC_SHARED(shared_bytes);
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const LanePlace at = {lane, lane / 4, lane % 4};
  const int sequence = blockIdx.z;
  const int kv_head = blockIdx.y / params.head_chunks;
  const int head_in_group = blockIdx.y % params.head_chunks * Shared::kHeads;
  const int first_head = kv_head * params.group + head_in_group;
  const int num_heads = min(params.group - head_in_group, Shared::kHeads);

  const int table = params.call.page_begin[sequence];
  const int64_t num_pages = params.call.page_begin[sequence + 1] - table;
  const int begin = table + static_cast<int>(num_pages * blockIdx.x / params.splits);
  const int end = table + static_cast<int>(num_pages * (blockIdx.x + 1) / params.splits);

  for (int at_total = threadIdx.x; at_total < Shared::kHeads * D; at_total += kWarps * 32) {
    shared.total[at_total / D][at_total % D] = 0.0f;
  }
  if (threadIdx.x < Shared::kHeads) shared.total_max[threadIdx.x] = {kLeast, 0.0f};
  if (begin < end) {
    LoadQueries<D>(params, sequence, first_head, num_heads, warp, kWarps, lane, shared);
    __syncthreads();
    MakeFragments<D, NT>(params.orders, threadIdx.x, kWarps * 32, shared);
    MakeOffsets<D>(threadIdx.x, kWarps * 32, shared);
    __syncthreads();
    for (int space = 0; space < kNumSpaces; ++space) {
      if ((params.spaces >> space & 1) == 0) continue;
      WarpState<D, NT> state;
      Reset<D, NT>(state);
      WalkPages<D, NT, kWarps>(params, space, begin, end, kv_head, first_head, num_heads, warp, at,
                               shared, state);
      JoinWarps<D, NT, kWarps>(space, warp, at, shared, state);
    }
  }
  __syncthreads();
  Finish<D, kWarps>(params, sequence, first_head, num_heads, warp, lane, shared);
}

template <int D, int NT, int kWarps>
size_t AttendSharedBytes(const AttendParams& params) {
  using Shared = BlockShared<D, NT, kWarps>;
  int orders = 0;
  for (uint32_t rest = params.orders; rest != 0; rest &= rest - 1) ++orders;
  return sizeof(Shared) + static_cast<size_t>(orders) * Shared::kSetSize * sizeof(uint2);
}

template <int D, int NT, int kWarps, int kBlocksPerSm>
AttendKernel MakeAttendKernel() {
  return {reinterpret_cast<const void*>(&AttendPages<D, NT, kWarps, kBlocksPerSm>), kWarps,
          kBlocksPerSm, 8 * NT, &AttendSharedBytes<D, NT, kWarps>};
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_ATTEND_KERNEL_CUH_
