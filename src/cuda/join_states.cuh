// Joining by log-sum-exp: the warps of a block, then the blocks that share a head.

#ifndef VARVE_CUDA_JOIN_STATES_CUH_
#define VARVE_CUDA_JOIN_STATES_CUH_

#include "cuda/attend_params.h"
#include "cuda/block_share.cuh"
#include "cuda/hadamard.cuh"
#include "cuda/query_setup.cuh"
#include "cuda/softmax_state.cuh"

namespace varve::cuda {

// A warp's state to shared memory, where the others find it.
template <int D, int NT, class Shared>
__device__ __forceinline__ void ShareState(const AttendParams& params, int num_heads, int warp,
                                           const LanePlace& at, const WarpState<D, NT>& state,
                                           Shared& shared) {
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
      for (int c = 0; c < 4; ++c) {
        const int head = 8 * nt + 2 * at.i + c % 2;
        if (head >= num_heads) continue;
        float* to = shared.WarpSums(params, warp, head) + 32 * block + 2 * at.g + 16 * (c / 2);
        *reinterpret_cast<float2*>(to) = {state.o[block][0][nt][c], state.o[block][1][nt][c]};
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
__device__ __forceinline__ void JoinWarps(const AttendParams& params, int kv_head, int num_heads,
                                          int space, int warp, const LanePlace& at, Shared& shared,
                                          const WarpState<D, NT>& state) {
  shared.Sync();  // what scratch has held before has been read
  ShareState<D, NT>(params, num_heads, warp, at, state, shared);
  shared.Sync();
  for (int head = warp; head < num_heads; head += kWarps) {
    float reference = kLeast;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) reference = fmaxf(reference, shared.warp_max[0][w][head].x);
    float v[D / 32] = {};
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float weight = Exp2(shared.warp_max[0][w][head].x - reference);
      sum = fmaf(shared.warp_max[0][w][head].y, weight, sum);
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        v[k] = fmaf(shared.WarpSums(params, w, head)[32 * k + at.lane], weight, v[k]);
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
  const float inverse = sum == 0.0f ? 0.0f : Reciprocal(sum);  // NaN stays
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    StoreTensor(params.call.output_type, params.call.output, row * D + 32 * k + lane,
                v[k] * inverse);
  }
  if (lane == 0 && params.call.lse != nullptr) {
    params.call.lse[row] = sum == 0.0f ? -INFINITY : (reference + Log2(sum)) * kLn2;
  }
}

// The parts of one head, by one warp. `head` is that of the block.
template <int D>
__device__ __forceinline__ void JoinParts(const AttendParams& params, const Segment& segment,
                                          int head, int64_t row, int lane) {
  const int count = segment.num_blocks;
  const auto place = [&](int which) { return segment.PartOf(which) * params.block_heads + head; };
  const auto load = [&](int which) {
    return which < count ? __ldcg(params.part_max + place(which)) : make_float2(kLeast, 0.0f);
  };
  // Many loads at once: one part after the other would wait for memory as often, which took a
  // quarter of a microsecond per part.
  constexpr int kBatch = 512 / D * 4 < 16 ? 512 / D * 4 : 16;  // 8 … 16, divides 32
  float part[kBatch][D / 32];
  const auto load_sums = [&](int begin) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int which = begin + i;
      const float* sums = params.part_sums + place(which) * D + lane;
#pragma unroll
      for (int d = 0; d < D / 32; ++d) part[i][d] = which < count ? __ldcg(sums + 32 * d) : 0.0f;
    }
  };
  const float2 firsts = load(lane);
  load_sums(0);
  float reference = firsts.x;
  for (int which = 32 + lane; which < count; which += 32) {
    reference = fmaxf(reference, load(which).x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    reference = fmaxf(reference, __shfl_xor_sync(0xFFFFFFFFu, reference, step));
  }
  float sum = 0.0f;
  float v[D / 32] = {};
  for (int first = 0; first < count; first += 32) {
    const float2 mine = first == 0 ? firsts : load(first + lane);
    const float weight = Exp2(mine.x - reference);
    sum = fmaf(mine.y, weight, sum);
    for (int begin = 0; begin < 32 && first + begin < count; begin += kBatch) {
      if (first + begin > 0) load_sums(first + begin);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float factor = __shfl_sync(0xFFFFFFFFu, weight, begin + i);
#pragma unroll
        for (int d = 0; d < D / 32; ++d) v[d] = fmaf(part[i][d], factor, v[d]);
      }
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  WriteOutput<D>(params, row, lane, reference, sum, v);
}

// The block's total goes to the output or, where other blocks share the head, to the work space;
// the block that comes last joins them.
template <int D, int kWarps, class Shared>
__device__ __forceinline__ void Finish(const AttendParams& params, int first_head, int num_heads,
                                       int warp, int lane, Shared& shared) {
  const Segment segment = shared.segment;
  const int64_t first_row =
      static_cast<int64_t>(segment.sequence) * params.call.query_heads + first_head;
  const int64_t part =
      (2 * static_cast<int64_t>(blockIdx.x) + (segment.starts_block ? 0 : 1)) * params.block_heads;
  for (int head = warp; head < num_heads; head += kWarps) {
    float v[D / 32];
    const float2 most = shared.total_max[head];
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      v[k] = most.x == kLeast ? 0.0f : shared.total[head][32 * k + lane];
    }
    if (segment.num_blocks == 1) {
      WriteOutput<D>(params, first_row + head, lane, most.x, most.y, v);
      continue;
    }
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      __stcg(params.part_sums + (part + head) * D + 32 * k + lane, v[k]);
    }
    if (lane == 0) __stcg(params.part_max + part + head, most);
  }
  if (segment.num_blocks == 1) return;
  shared.Sync();
  if (warp == 0 && lane == 0) {
    uint32_t* arrived =
        params.arrived + segment.head +
        static_cast<size_t>(segment.sequence) * params.call.shape.kv_heads * params.head_chunks;
    shared.is_last = Arrive(arrived) + 1 == static_cast<uint32_t>(segment.num_blocks) ? 1 : 0;
    if (shared.is_last != 0) *arrived = 0;  // for the next call
  }
  shared.Sync();
  if (shared.is_last == 0) return;
  for (int head = warp; head < num_heads; head += kWarps) {
    JoinParts<D>(params, segment, head, first_row + head, lane);
  }
}

// Zeros for sequences without pages.
template <int D, int kWarps>
__device__ __forceinline__ void WriteEmptySequences(const AttendParams& params, int warp,
                                                    int lane) {
  const DeviceAttention& call = params.call;
  for (int s = static_cast<int>(blockIdx.x); s < call.num_sequences;
       s += static_cast<int>(gridDim.x)) {
    if (call.page_begin[s] != call.page_begin[s + 1]) continue;
    for (int head = warp; head < call.query_heads; head += kWarps) {
      const float zeros[D / 32] = {};
      WriteOutput<D>(params, static_cast<int64_t>(s) * call.query_heads + head, lane, 0.0f, 0.0f,
                     zeros);
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_JOIN_STATES_CUH_
