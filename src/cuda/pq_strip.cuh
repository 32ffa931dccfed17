// Strips of product quantization: reading and writing codes, and the nearest centroid.

#ifndef VARVE_CUDA_PQ_STRIP_CUH_
#define VARVE_CUDA_PQ_STRIP_CUH_

#include "base/half.h"
#include "cuda/device_attention.h"
#include "cuda/pq_rows.h"
#include "cuda/query_orders.cuh"
#include "cuda/strip_layout.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

// The codebook of one part and KV head, and the shape of its strips.
struct PqTables {
  const uint8_t* centroids = nullptr;  // [dim][codes]
  const float* scales = nullptr;       // [subspaces]
  const uint16_t* rotation = nullptr;  // [dim][dim] f16, or null
  int subspaces = 0;
  int bits = 0;
};

__device__ __forceinline__ PqTables TablesOf(const DeviceCodebook& codebook, const PageShape& shape,
                                             int kv_head) {
  PqTables tables;
  tables.centroids = codebook.centroids + kv_head * codebook.centroid_stride;
  tables.scales = codebook.scales + kv_head * codebook.scale_stride;
  if (codebook.rotation != nullptr) {
    tables.rotation = codebook.rotation + kv_head * codebook.rotation_stride;
  }
  tables.subspaces = shape.pq_subspaces;
  tables.bits = shape.pq_bits;
  return tables;
}

// Offsets behind the gains; codes below 8 bits share bytes in pairs (docs/format/pages.md).
struct PqLayout {
  int page_tokens;
  int subspaces;
  int bits;

  __device__ __forceinline__ int base_bits() const { return bits < 8 ? 4 : 8; }
  __device__ __forceinline__ int planes() const { return bits - base_bits(); }
  __device__ __forceinline__ int base_rows() const {
    return bits < 8 ? (subspaces + 1) / 2 : subspaces;
  }
  __device__ __forceinline__ int plane_offset() const {
    return 2 * page_tokens + base_rows() * page_tokens;
  }
  __device__ __forceinline__ int strip_bytes() const {
    return (plane_offset() + subspaces * planes() * (page_tokens / 8) + 63) / 64 * 64;
  }
  __device__ __forceinline__ int Code(const std::byte* strip, int subspace, int token) const {
    const bool halves = bits < 8;
    const int row = halves ? subspace / 2 : subspace;
    int code = static_cast<int>(strip[2 * page_tokens + row * page_tokens + token]);
    if (halves) code = code >> (4 * (subspace % 2)) & 15;
    for (int plane = 0; plane < planes(); ++plane) {
      const int at = plane_offset() + (subspace * planes() + plane) * (page_tokens / 8) + token / 8;
      code |= (static_cast<int>(strip[at]) >> (token % 8) & 1) << (base_bits() + plane);
    }
    return code;
  }
};

// Strips that pq_pairs.cuh reads.
struct PqPairs {
  static constexpr int kDim = kPairDim;
  static constexpr int kPageTokens = 64;
  static constexpr int kCodes = 2 * kPageTokens;  // where codes begin, behind the gains

  // Where a channel of a query goes: the bytes of a lane in a step are the first pairs of channels
  // of two steps of 16, then the second pairs. Lanes of odd i have their second pair first: the
  // codes of the first pairs of all lanes then lie in different banks.
  __device__ __forceinline__ static ChannelPlace QueryPlace(int channel) {
    const int step = channel / 16, i = channel % 16 / 4, pair = channel % 4 / 2;
    return {step / 2, i, 4 * (pair ^ i % 2) + 2 * (step % 2) + channel % 2};
  }
  // Queries come with their largest channel at 256 … 512.
  static constexpr float kQuerySteps = 63.0f, kQueryStep = 1.0f / kQuerySteps;
  // The high byte of a query's 16 bits, or the low one.
  __device__ __forceinline__ static uint32_t QueryByte(float x, bool low) {
    const int steps = static_cast<int>(rintf(x * kQuerySteps));
    const int high = (steps + 128) >> 8;
    return static_cast<uint32_t>(low ? steps - 256 * high : high) & 255u;
  }
};

template <int D>
__device__ __forceinline__ void DecodePqRow(const std::byte* strip, const StripPlace& at,
                                            const PqTables& pq, int token, int lane,
                                            float (&v)[D / 32]) {
  const PqLayout layout = {at.page_tokens, pq.subspaces, pq.bits};
  const float gain = F16ToF32(reinterpret_cast<const uint16_t*>(strip)[token]);
  const int sub_dim = D / pq.subspaces;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const int d = 32 * k + lane;
    const int code = layout.Code(strip, d / sub_dim, token);
    const int centroid = static_cast<int>(pq.centroids[(d << pq.bits) + code]) - 128;
    v[k] = __fmul_rn(__fmul_rn(pq.scales[d / sub_dim], static_cast<float>(centroid)), gain);
  }
  if (pq.rotation == nullptr) return;
  float turned[D / 32];
#pragma unroll
  for (int k = 0; k < D / 32; ++k) turned[k] = v[k], v[k] = 0.0f;
  for (int i = 0; i < D; ++i) {
    float y = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      if (i / 32 == k) y = turned[k];
    }
    y = __shfl_sync(0xFFFFFFFFu, y, i % 32);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      v[k] = __fadd_rn(v[k], __fmul_rn(y, F16ToF32(pq.rotation[i * D + 32 * k + lane])));
    }
  }
}

// The code of the nearest centroid, the lowest of equals. `point` is in units of the scale.
__device__ __forceinline__ int NearestCentroid(const uint8_t* bytes, int sub_dim, int num_codes,
                                               const float* point) {
  float best = INFINITY;
  int code = 0;
  for (int c = 0; c < num_codes; ++c) {
    float distance = 0.0f;
    for (int j = 0; j < sub_dim; ++j) {
      const float difference =
          __fsub_rn(point[j], static_cast<float>(static_cast<int>(bytes[j * num_codes + c]) - 128));
      distance = __fadd_rn(distance, __fmul_rn(difference, difference));
    }
    if (distance < best) {
      best = distance;
      code = c;
    }
  }
  return code;
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PQ_STRIP_CUH_
