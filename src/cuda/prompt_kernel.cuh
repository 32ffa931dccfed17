// Attention of many queries: rows of pages to tiles of f16, and flash attention over the tiles.
//
// A block has 128 queries of one head (64 where heads are wide), 32 (16) per warp. Tiles of 64
// tokens come into shared memory by bulk copies, two of K and two of V: while one is worked on, the
// next is on its way. The query tiles that see most rows start first.
//
// Tiles have rows of units of 16 bytes; unit u of row r lies at place u ^ (r % 8), so that neither
// eight rows of a matrix load nor the units of a row meet in a bank.

#ifndef VARVE_CUDA_PROMPT_KERNEL_CUH_
#define VARVE_CUDA_PROMPT_KERNEL_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/prompt_params.h"
#include "cuda/strip_decode.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

// Byte of a unit in a tile.
template <int D>
__device__ __forceinline__ int UnitOffset(int row, int unit) {
  return row * (PromptPitch(D) * 2) + (unit ^ (row & 7)) * 16;
}

__device__ __forceinline__ bool IsLiveRow(const DevicePage& page, int row) {
  return (page.live[row / 64] >> (row % 64) & 1) != 0;
}

// In the range of f16. Comparisons, not fminf: those would make a number of NaN.
__device__ __forceinline__ float InHalfRange(float x) {
  constexpr float kMostHalf = 65504.0f;
  return x > kMostHalf ? kMostHalf : x < -kMostHalf ? -kMostHalf : x;
}

// Grid: tiles, KV heads, K and V. Rows that are not live become zero.
template <int D>
__global__ void __launch_bounds__(kExpandThreads)
    ExpandTiles(VARVE_KERNEL_PARAMETER(PromptParams) params) {
  const DevicePrompt& call = params.call;
  const int tile = blockIdx.x, kv_head = blockIdx.y;
  const bool key = blockIdx.z == 0;
  const int tiles_of_page = call.shape.page_tokens / kPromptTile;
  const DevicePage& page = call.pages[tile / tiles_of_page];
  const uint32_t keys = params.key_bytes[static_cast<int>(page.key_rung)];
  const uint32_t values = params.value_bytes[static_cast<int>(page.value_rung)];
  const std::byte* strip =
      page.bytes + static_cast<size_t>(kv_head) * (keys + values) + (key ? 0 : keys);
  const DeviceRung rung = key ? page.key_rung : page.value_rung;
  PqTables pq;
  if (rung == DeviceRung::kPq) {
    pq = TablesOf(key ? call.key_codebook : call.value_codebook, call.shape, kv_head);
  }
  std::byte* to = params.tiles +
                  ((static_cast<size_t>(kv_head) * params.num_tiles + tile) * 2 + (key ? 0 : 1)) *
                      PromptTileBytes(D);
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < kPromptTile; row += kExpandThreads / 32) {
    const int token = tile % tiles_of_page * kPromptTile + row;
    float v[D / 32] = {};
    if (IsLiveRow(page, token)) {
      DecodeRow<D>(rung, strip, {key, D, call.shape.page_tokens}, pq, token, lane, v);
    }
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      const int d = 32 * k + lane;
      *reinterpret_cast<__half*>(to + UnitOffset<D>(row, d / 8) + d % 8 * 2) =
          __float2half_rn(InHalfRange(v[k]));
    }
  }
}

// Two values of a query tensor.
__device__ __forceinline__ uint32_t LoadPair(TensorType type, const void* data, int64_t at) {
  float2 pair;
  if (type == TensorType::kF16)
    return *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(data) + at);
  if (type == TensorType::kF32) {
    pair = *reinterpret_cast<const float2*>(static_cast<const float*>(data) + at);
  } else {
    const uint32_t bits =
        *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(data) + at);
    pair = {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u)};
  }
  return AsBits(__floats2half2_rn(InHalfRange(pair.x), InHalfRange(pair.y)));
}

// The state of a warp: kM times 16 queries.
template <int D>
struct PromptState {
  static constexpr int kM = PromptRows(D) / (16 * kPromptWarps);
  float o[kM][D / 8][4];
  float most[kM][2];  // of rows g and g + 8, in units of log2
  float sum[kM][2];   // of this lane's columns
};

template <int D>
struct PromptBlock {
  const PromptParams& params;
  int first_query;
  int num_queries;  // that are there
  int head;
  int warp;
  int lane;
  SharedPlace queries;

  __device__ __forceinline__ int RowOf(int m, int half) const {
    return 16 * (PromptState<D>::kM * warp + m) + lane / 4 + 8 * half;
  }
  // A row that a matrix load names: rows r … r + 15 of 16 columns.
  __device__ __forceinline__ SharedPlace Matrix(SharedPlace tile, int row, int unit) const {
    return tile + UnitOffset<D>(row + lane % 16, unit + lane / 16);
  }
};

template <int D>
__device__ __forceinline__ void LoadPromptQueries(const PromptBlock<D>& block, unsigned char* to) {
  const DevicePrompt& call = block.params.call;
  for (int at = threadIdx.x; at < PromptRows(D) * (D / 2); at += kPromptWarps * 32) {
    const int row = at / (D / 2), pair = at % (D / 2);
    uint32_t bits = 0;
    if (row < block.num_queries) {
      const int64_t query = block.first_query + row;
      bits = LoadPair(call.query_type, call.queries,
                      (query * call.query_heads + block.head) * D + 2 * pair);
    }
    *reinterpret_cast<uint32_t*>(to + UnitOffset<D>(row, pair / 4) + pair % 4 * 4) = bits;
  }
}

template <int kM>
using PromptScores = float[kM][kPromptTile / 8][4];

template <int D, int kM>
__device__ __forceinline__ void ScoreTile(const PromptBlock<D>& block, SharedPlace keys,
                                          PromptScores<kM>& s) {
#pragma unroll
  for (int k = 0; k < kM * kPromptTile / 2; ++k) {
    s[k / (kPromptTile / 2)][k / 4 % (kPromptTile / 8)][k % 4] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t q[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      LoadMatrices(block.Matrix(block.queries, 16 * (kM * block.warp + m), 2 * step), q[m]);
    }
#pragma unroll
    for (int n = 0; n < kPromptTile / 16; ++n) {
      uint32_t r[4];  // 16 tokens: channels 0 … 7 of eight and eight, then 8 … 15
      LoadMatrices(block.Matrix(keys, 16 * n, 2 * step), r);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        Multiply(s[m][2 * n], q[m], uint2{r[0], r[2]});
        Multiply(s[m][2 * n + 1], q[m], uint2{r[1], r[3]});
      }
    }
  }
}

// Scores of rows that a query does not see.
template <int D, int kM>
__device__ __forceinline__ void MaskTile(const PromptBlock<D>& block, int tile, uint64_t live,
                                         PromptScores<kM>& s) {
  const VisibleRows* visible = block.params.call.visible + block.first_query;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = block.RowOf(m, half);
      VisibleRows seen = {0, 0};
      if (row < block.num_queries) seen = visible[row];
#pragma unroll
      for (int k = 0; k < kPromptTile / 4; ++k) {
        const int column = k / 2 * 8 + block.lane % 4 * 2 + k % 2;
        const int slot = tile * kPromptTile + column;
        const bool sees = slot >= seen.begin && slot < seen.end && (live >> column & 1) != 0;
        if (!sees) s[m][k / 2][2 * half + k % 2] = -INFINITY;
      }
    }
  }
}

// Scores become weights as operands p[m][step]; the state moves to the new maximum.
template <int D, int kM>
__device__ __forceinline__ void SoftmaxTile(float factor, PromptScores<kM>& s,
                                            PromptState<D>& state,
                                            uint32_t (&p)[kM][kPromptTile / 16][4]) {
  bool moved = false;
  float alpha[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = s[m][0][2 * half];
#pragma unroll
      for (int k = 1; k < kPromptTile / 4; ++k) most = fmaxf(most, s[m][k / 2][2 * half + k % 2]);
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
      const float before = state.most[m][half];
      const float after = fmaxf(before, most * factor);
      alpha[m][half] = Exp2(before - after);
      moved = moved || after != before;
      state.most[m][half] = after;
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < kPromptTile / 4; ++k) {
        float& x = s[m][k / 2][2 * half + k % 2];
        x = Exp2(fmaf(x, factor, -after));
        sum += x;
      }
      state.sum[m][half] = fmaf(state.sum[m][half], alpha[m][half], sum);
    }
#pragma unroll
    for (int step = 0; step < kPromptTile / 16; ++step) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* pair = &s[m][2 * step + k / 2][k % 2 * 2];
        p[m][step][k] = AsBits(__floats2half2_rn(pair[0], pair[1]));
      }
    }
  }
  if (!__any_sync(0xFFFFFFFFu, moved)) return;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int k = 0; k < D / 2; ++k) state.o[m][k / 4][k % 4] *= alpha[m][k % 4 / 2];
  }
}

template <int D, int kM>
__device__ __forceinline__ void AddValues(const PromptBlock<D>& block, SharedPlace values,
                                          const uint32_t (&p)[kM][kPromptTile / 16][4],
                                          PromptState<D>& state) {
#pragma unroll
  for (int step = 0; step < kPromptTile / 16; ++step) {
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t r[4];  // 16 tokens of eight channels, then of the next eight
      LoadMatricesTransposed(block.Matrix(values, 16 * step, 2 * n), r);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        Multiply(state.o[m][2 * n], p[m][step], uint2{r[0], r[1]});
        Multiply(state.o[m][2 * n + 1], p[m][step], uint2{r[2], r[3]});
      }
    }
  }
}

template <int D>
__device__ __forceinline__ void WritePrompt(const PromptBlock<D>& block,
                                            const PromptState<D>& state) {
  constexpr int kM = PromptState<D>::kM;
  const DevicePrompt& call = block.params.call;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state.sum[m][half];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      const int row = block.RowOf(m, half);
      if (row >= block.num_queries) continue;
      const int64_t at =
          (static_cast<int64_t>(block.first_query) + row) * call.query_heads + block.head;
      const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // NaN stays
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        const float x = state.o[m][n][2 * half] * inverse;
        const float y = state.o[m][n][2 * half + 1] * inverse;
        const int64_t place = at * D + 8 * n + block.lane % 4 * 2;
        if (call.output_type == TensorType::kF32) {
          *reinterpret_cast<float2*>(static_cast<float*>(call.output) + place) = {x, y};
        } else if (call.output_type == TensorType::kF16) {
          *reinterpret_cast<__half2*>(static_cast<__half*>(call.output) + place) =
              __floats2half2_rn(x, y);
        } else {
          *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(call.output) + place) =
              __floats2bfloat162_rn(x, y);
        }
      }
      if (call.lse != nullptr && block.lane % 4 == 0) {
        call.lse[at] = sum == 0.0f ? -INFINITY : (state.most[m][half] + Log2(sum)) * 0.693147181f;
      }
    }
  }
}

inline constexpr int kBarrierBytes = 128;  // of shared memory, so that tiles begin at a multiple

// Tiles on their way: two of K and two of V.
template <int D>
struct TileCopies {
  uint64_t* barriers;      // [4]
  std::byte* slots;        // [4][PromptTileBytes]
  const std::byte* tiles;  // of the KV head

  __device__ __forceinline__ void Send(int tile, int turn, int lane) const {
#pragma unroll
    for (int value = 0; value < 2; ++value) {
      const int slot = 2 * value + turn % 2;
      StartCopy(barriers + slot, slots + slot * PromptTileBytes(D),
                tiles + (static_cast<size_t>(tile) * 2 + value) * PromptTileBytes(D),
                PromptTileBytes(D), lane, 0);
    }
  }
  __device__ __forceinline__ SharedPlace Wait(bool value, int turn) const {
    const int slot = 2 * value + turn % 2;
    WaitCopy(barriers + slot, turn / 2 % 2);
    return SharedPlaceOf(slots + slot * PromptTileBytes(D));
  }
};

template <int D>
__device__ __forceinline__ void WalkTiles(const PromptBlock<D>& block, const TileCopies<D>& copies,
                                          PromptState<D>& state) {
  constexpr int kM = PromptState<D>::kM;
  const DevicePrompt& call = block.params.call;
  const VisibleRows first = call.visible[block.first_query];
  const VisibleRows last = call.visible[block.first_query + block.num_queries - 1];
  const int begin = first.begin / kPromptTile;
  const int end = min((last.end + kPromptTile - 1) / kPromptTile, block.params.num_tiles);
  const int tiles_of_page = call.shape.page_tokens / kPromptTile;
  const float factor = call.scale * 1.44269504f;
  if (block.warp == 0) {
    for (int turn = 0; turn < 2 && begin + turn < end; ++turn) {
      copies.Send(begin + turn, turn, block.lane);
    }
  }
  for (int turn = 0; begin + turn < end; ++turn) {
    const int tile = begin + turn;
    const uint64_t live = call.pages[tile / tiles_of_page].live[tile % tiles_of_page];
    PromptScores<kM> s;
    ScoreTile<D, kM>(block, copies.Wait(false, turn), s);
    float unit = factor;
    if (call.soft_cap > 0.0f) {
      unit = 1.0f;
#pragma unroll
      for (int k = 0; k < kM * kPromptTile / 2; ++k) {
        float& x = s[k / (kPromptTile / 2)][k / 4 % (kPromptTile / 8)][k % 4];
        x = call.soft_cap * 1.44269504f * tanhf(x * call.scale / call.soft_cap);
      }
    }
    const bool whole = live == ~uint64_t{0} && tile * kPromptTile >= last.begin &&
                       (tile + 1) * kPromptTile <= first.end;
    if (!whole) MaskTile<D, kM>(block, tile, live, s);
    uint32_t p[kM][kPromptTile / 16][4];
    SoftmaxTile<D, kM>(unit, s, state, p);
    AddValues<D, kM>(block, copies.Wait(true, turn), p, state);
    __syncthreads();  // all have read both tiles
    if (block.warp == 0 && tile + 2 < end) copies.Send(tile + 2, turn, block.lane);
  }
}

// Grid: query tiles, query heads.
template <int D>
__global__ void __launch_bounds__(kPromptWarps * 32, 2)
    AttendTiles(VARVE_KERNEL_PARAMETER(PromptParams) params) {
  VARVE_DYNAMIC_SHARED(shared_bytes);
  constexpr int kRows = PromptRows(D);
  const DevicePrompt& call = params.call;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int head = blockIdx.y;
  // Barriers, tiles, queries.
  auto* barriers = reinterpret_cast<uint64_t*>(shared_bytes);
  unsigned char* tiles = shared_bytes + kBarrierBytes;
  unsigned char* queries = tiles + 4 * PromptTileBytes(D);
  const PromptBlock<D> block = {params,
                                first,
                                min(kRows, call.num_queries - first),
                                head,
                                static_cast<int>(threadIdx.x / 32),
                                static_cast<int>(threadIdx.x % 32),
                                SharedPlaceOf(queries)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) InitBarrier(barriers + i, 1);
  }
  LoadPromptQueries<D>(block, queries);
  FenceCopies();
  __syncthreads();
  PromptState<D> state;
#pragma unroll
  for (int m = 0; m < PromptState<D>::kM; ++m) {
#pragma unroll
    for (int k = 0; k < D / 2; ++k) state.o[m][k / 4][k % 4] = 0.0f;
    state.most[m][0] = state.most[m][1] = -1e30f;
    state.sum[m][0] = state.sum[m][1] = 0.0f;
  }
  const TileCopies<D> copies = {barriers, reinterpret_cast<std::byte*>(tiles),
                                params.tiles + static_cast<size_t>(head / params.group) *
                                                   params.num_tiles * 2 * PromptTileBytes(D)};
  WalkTiles<D>(block, copies, state);
  WritePrompt<D>(block, state);
}

template <int D>
PromptKernels MakePromptKernels() {
  PromptKernels kernels;
  kernels.expand = reinterpret_cast<const void*>(&ExpandTiles<D>);
  kernels.attend = reinterpret_cast<const void*>(&AttendTiles<D>);
  kernels.shared_bytes = 4 * static_cast<size_t>(PromptTileBytes(D)) +
                         PromptRows(D) * PromptPitch(D) * 2 + kBarrierBytes;
  return kernels;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PROMPT_KERNEL_CUH_
