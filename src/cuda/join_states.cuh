// Joining by log-sum-exp: the warps of a block, then the splits of a head.

#ifndef VARVE_CUDA_JOIN_STATES_CUH_
#define VARVE_CUDA_JOIN_STATES_CUH_

#include "cuda/attend_params.h"
#include "cuda/hadamard.cuh"
#include "cuda/query_setup.cuh"
#include "cuda/softmax_state.cuh"

namespace varve::cuda {

// A warp's state to shared memory, where the others find it.
template <int D, int NT, class Shared>
__device__ __forceinline__ void ShareState(int warp, const LanePlace& at,
                                           const WarpState<D, NT>& state, Shared& shared,
                                           typename Shared::Merge& merge) {
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = SumOverTokens(state.sum[nt][h]);
      if (at.g == 0) {
        shared.warp_max[0][warp][8 * nt + 2 * at.i + h] = {state.reference[nt][h], sum};
      }
    }
#pragma unroll
    for (int block = 0; block < D / 32; ++block) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int m = k / 4, c = k % 4;
        merge[warp][8 * nt + 2 * at.i + c % 2][32 * block + 2 * at.g + m + 16 * (c / 2)] =
            state.o[block][m][nt][c];
      }
    }
  }
}

// A head's sums of values, from a space to the plain one.
template <int D>
__device__ __forceinline__ void ToPlainSpace(const AttendParams& params, int kv_head, int space,
                                             int lane, float (&v)[D / 32]) {
  if (space == kSpaceTurned) {
    Hadamard<D>(v, lane);
    ApplySigns<D>(v, lane);
  }
  if (space == kSpacePq) {
    const PqTables pq = TablesOf(params.call.value_codebook, params.call.shape, kv_head);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) v[k] *= pq.scales[(32 * k + lane) * pq.subspaces / D];
    if (pq.rotation != nullptr) TurnRowBack<D>(pq.rotation, lane, v);
  }
}

// The warps' states of one space into the block's total, which is in the plain space.
template <int D, int NT, int kWarps, class Shared>
__device__ __forceinline__ void JoinWarps(const AttendParams& params, int kv_head, int space,
                                          int warp, const LanePlace& at, Shared& shared,
                                          const WarpState<D, NT>& state) {
  auto& merge = *shared.template Scratch<typename Shared::Merge>(params);
  __syncthreads();  // all pages have been read
  ShareState<D, NT>(warp, at, state, shared, merge);
  __syncthreads();
  for (int head = warp; head < Shared::kHeads; head += kWarps) {
    float reference = kLeast;
    for (int w = 0; w < kWarps; ++w) reference = fmaxf(reference, shared.warp_max[0][w][head].x);
    float v[D / 32] = {};
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = Exp2(shared.warp_max[0][w][head].x - reference);
      sum = fmaf(shared.warp_max[0][w][head].y, weight, sum);
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        v[k] = fmaf(merge[w][head][32 * k + at.lane], weight, v[k]);
      }
    }
    ToPlainSpace<D>(params, kv_head, space, at.lane, v);
    const float2 before = shared.total_max[head];
    const float after = fmaxf(before.x, reference);
    const float keep = Exp2(before.x - after), add = Exp2(reference - after);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      float& total = shared.total[head][32 * k + at.lane];
      total = before.x == kLeast ? v[k] * add : fmaf(total, keep, v[k] * add);
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
    params.call.lse[row] = sum == 0.0f ? -INFINITY : (reference + Log2(sum)) * kLn2;
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
  // Many loads at once: one split after the other would wait for memory as often, which took a
  // quarter of a microsecond per split.
  constexpr int kBatch = 512 / D * 4 < 16 ? 512 / D * 4 : 16;  // 8 … 16, divides 32
  for (int first = 0; first < params.splits; first += kBatch) {
    float part[kBatch][D / 32];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int d = 0; d < D / 32; ++d) {
        part[i][d] = first + i < params.splits
                         ? __ldcg(sums + static_cast<int64_t>(first + i) * D + 32 * d)
                         : 0.0f;
      }
    }
    const float weights = first < 32 ? weight[0] : weight[1];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float factor = __shfl_sync(0xFFFFFFFFu, weights, (first + i) % 32);
#pragma unroll
      for (int d = 0; d < D / 32; ++d) v[d] = fmaf(part[i][d], factor, v[d]);
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
    const float2 most = shared.total_max[head];
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      v[k] = most.x == kLeast ? 0.0f : shared.total[head][32 * k + lane];
    }
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
  __syncthreads();
  __shared__ bool is_last;
  uint32_t* arrived = params.arrived + static_cast<size_t>(sequence) * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) {
    is_last = Arrive(arrived) + 1 == static_cast<uint32_t>(params.splits);
    if (is_last) *arrived = 0;  // for the next call
  }
  __syncthreads();
  if (!is_last) return;
  for (int head = warp; head < num_heads; head += kWarps) {
    JoinSplits<D>(params, first_row + head, lane);
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_JOIN_STATES_CUH_
