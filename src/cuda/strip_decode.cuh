// One row of a strip as f32, by a warp: value k of lane l is channel 32k + l. For encoding a page
// again; attention never decodes rows.

#ifndef VARVE_CUDA_STRIP_DECODE_CUH_
#define VARVE_CUDA_STRIP_DECODE_CUH_

#include "base/half.h"
#include "cuda/hadamard.cuh"
#include "cuda/pq_strip.cuh"
#include "cuda/strip_layout.cuh"
#include "cuda/warp_ops.cuh"
#include "kernels/turned_kernels.h"

namespace varve::cuda {

__device__ __forceinline__ uint16_t LoadHalfBits(const std::byte* base, int index) {
  return reinterpret_cast<const uint16_t*>(base)[index];
}
__device__ __forceinline__ int LoadByte(const std::byte* base, int index) {
  return static_cast<int>(base[index]);
}

template <int D, int kCodeBytes>
__device__ __forceinline__ void DecodeBlockRow(const std::byte* strip, const StripPlace& at,
                                               int token, int lane, float (&v)[D / 32]) {
  const std::byte* codes = strip + BlockCodesOffset(at);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const float scale = F16ToF32(LoadHalfBits(strip, ScaleIndex(at, token, k)));
    int code;
    if constexpr (kCodeBytes == 32) {
      const int byte = LoadByte(codes, BlockCodeOffset<32>(at, token, k, lane));
      code = at.key ? byte - 128 : static_cast<int8_t>(byte);
    } else {
      const int byte = LoadByte(codes, BlockCodeOffset<16>(at, token, k, lane % 16));
      code = (lane < 16 ? byte & 15 : byte >> 4) - 8;
    }
    v[k] = __fmul_rn(static_cast<float>(code), scale);
  }
}

// Level of code `code`, from the bytes that lookups use.
template <int kBits>
__device__ __forceinline__ float LevelOf(int code) {
  constexpr int kHalf = 1 << (kBits - 1);
  float level = 0.0f;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    constexpr auto kLevels = TurnedLevels<kBits>::kPositive;
    const auto magnitude = static_cast<float>(kLevels[static_cast<size_t>(i)]);
    if (code == kHalf + i) level = magnitude;
    if (code == kHalf - 1 - i) level = -magnitude;
  }
  return level;
}

template <int D, int kBits>
__device__ __forceinline__ void DecodeTurnedRow(const std::byte* strip, const StripPlace& at,
                                                int token, int lane, float (&v)[D / 32]) {
  const std::byte* cells = strip + TurnedCodesAt(at);
  const float unit =
      __fmul_rn(F16ToF32(LoadHalfBits(strip + TurnedScalesOffset(at), token)), kTurnedUnit);
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    const CellPlace place = CellOf(at, token, 32 * k + lane);
    const std::byte* cell = cells + place.cell * (64 * kBits);
    const auto line = [&](int i) { return LoadByte(cell, 64 * i + place.place); };
    const int p = place.plane;
    int code;
    if constexpr (kBits == 4) {
      code = line(p / 2) >> (4 * (p % 2)) & 15;
    } else if constexpr (kBits == 2) {
      code = line(p / 4) >> (2 * (p % 4)) & 3;
    } else {
      code = p < 6 ? line(p / 2) >> (3 * (p % 2)) & 7
                   : line(p == 6 ? 0 : 2) >> 6 | (line(1) >> p & 1) << 2;
    }
    v[k] = __fmul_rn(LevelOf<kBits>(code), unit);
  }
  Hadamard<D>(v, lane);
  ApplySigns<D>(v, lane);
  if (!at.key) return;
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {
    v[k] = __fadd_rn(v[k], F16ToF32(LoadHalfBits(strip, 32 * k + lane)));
  }
}

// Of pq the row as its centroids say, which may have to be turned back (pq_strip.cuh).
template <int D>
__device__ __forceinline__ void DecodeRow(DeviceRung rung, const std::byte* strip,
                                          const StripPlace& at, const PqTables& pq, int token,
                                          int lane, float (&v)[D / 32]) {
  switch (rung) {
    case DeviceRung::kF16:
    case DeviceRung::kBF16:
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        const uint16_t bits = LoadHalfBits(strip, FloatIndex(at, token, 32 * k + lane));
        v[k] = rung == DeviceRung::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
      }
      return;
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ8_0r:
      DecodeBlockRow<D, 32>(strip, at, token, lane, v);
      break;
    case DeviceRung::kQ4_0:
    case DeviceRung::kQ4_0r:
      DecodeBlockRow<D, 16>(strip, at, token, lane, v);
      break;
    case DeviceRung::kT4:
      return DecodeTurnedRow<D, 4>(strip, at, token, lane, v);
    case DeviceRung::kT3:
      return DecodeTurnedRow<D, 3>(strip, at, token, lane, v);
    case DeviceRung::kT2:
      return DecodeTurnedRow<D, 2>(strip, at, token, lane, v);
    case DeviceRung::kPq:
      return DecodePqRow<D>(strip, at, pq, token, lane, v);
  }
  if (rung == DeviceRung::kQ8_0r || rung == DeviceRung::kQ4_0r) {
    Hadamard<D>(v, lane);
    ApplySigns<D>(v, lane);
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_DECODE_CUH_
