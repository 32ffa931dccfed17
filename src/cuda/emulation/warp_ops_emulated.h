// What warp_ops.cuh declares, on the CPU.

#ifndef VARVE_CUDA_EMULATION_WARP_OPS_EMULATED_H_
#define VARVE_CUDA_EMULATION_WARP_OPS_EMULATED_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "cuda/emulation/device_words.h"

#define VARVE_KERNEL_PARAMETER(type) const type&
#define VARVE_DYNAMIC_SHARED(name) unsigned char* name = ::varve::cuda::emulation::DynamicShared()

namespace varve::cuda {

namespace emulation {
// Value `which` (0, 1) of a pair.
template <bool kBrain>
float Half(uint64_t pair, int which) {
  const auto bits = static_cast<uint16_t>(pair >> (16 * which));
  return kBrain ? BF16ToF32(bits) : F16ToF32(bits);
}
}  // namespace emulation

template <bool kBrain = false>
void Multiply(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  using emulation::Exchange;
  using emulation::Half;
  uint64_t all_a[4][32], all_b[2][32];
  for (int k = 0; k < 4; ++k) std::memcpy(all_a[k], Exchange(a[k]), sizeof(all_a[k]));
  std::memcpy(all_b[0], Exchange(b.x), sizeof(all_b[0]));
  std::memcpy(all_b[1], Exchange(b.y), sizeof(all_b[1]));
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, i = lane % 4;
  for (int out = 0; out < 4; ++out) {
    const int row_part = out / 2, column = 2 * i + out % 2;
    double sum = c[out];
    for (int k = 0; k < 16; ++k) {
      const int from = k % 8 / 2, part = k / 8;
      sum += static_cast<double>(Half<kBrain>(all_a[row_part + 2 * part][4 * g + from], k % 2)) *
             Half<kBrain>(all_b[part][4 * column + from], k % 2);
    }
    c[out] = static_cast<float>(sum);
  }
}

template <bool kBrain = false>
void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint2 b, const float (&c)[4]) {
  for (int k = 0; k < 4; ++k) d[k] = c[k];
  Multiply<kBrain>(d, a, b);
}

template <bool kSigned>
void MultiplyAddBytes(int (&d)[4], const uint32_t (&a)[4], uint2 b, const int (&c)[4]) {
  using emulation::Exchange;
  uint64_t all_a[4][32], all_b[2][32];
  for (int k = 0; k < 4; ++k) std::memcpy(all_a[k], Exchange(a[k]), sizeof(all_a[k]));
  std::memcpy(all_b[0], Exchange(b.x), sizeof(all_b[0]));
  std::memcpy(all_b[1], Exchange(b.y), sizeof(all_b[1]));
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, i = lane % 4;
  const auto byte = [](uint64_t word, int which) {
    const auto bits = static_cast<uint8_t>(word >> (8 * which));
    return kSigned ? static_cast<int>(static_cast<int8_t>(bits)) : static_cast<int>(bits);
  };
  for (int out = 0; out < 4; ++out) {
    const int row_part = out / 2, column = 2 * i + out % 2;
    d[out] = c[out];
    for (int k = 0; k < 32; ++k) {
      const int from = k % 16 / 4, part = k / 16;
      d[out] += byte(all_a[row_part + 2 * part][4 * g + from], k % 4) *
                byte(all_b[part][4 * column + from], k % 4);
    }
  }
}

inline uint32_t Transpose(uint32_t x) {
  const uint64_t* all = emulation::Exchange(x);
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, i = lane % 4;
  uint32_t y = 0;
  for (int which = 0; which < 2; ++which) {  // row 2i + which, column g
    const uint64_t pair = all[4 * (2 * i + which) + g / 2];
    y |= static_cast<uint32_t>(pair >> (16 * (g % 2)) & 0xFFFF) << (16 * which);
  }
  return y;
}

using SharedPlace = uint64_t;
inline SharedPlace SharedPlaceOf(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

namespace emulation {
inline void CopyRows(SharedPlace row, uint16_t (&rows)[4][8][8]) {
  uint64_t from[32];
  std::memcpy(from, Exchange(row), sizeof(from));
  for (int lane = 0; lane < 32; ++lane) {
    std::memcpy(rows[lane / 8][lane % 8], reinterpret_cast<const void*>(from[lane]), 16);
  }
}
}  // namespace emulation

inline void LoadMatrices(SharedPlace row, uint32_t (&r)[4]) {
  uint16_t rows[4][8][8];
  emulation::CopyRows(row, rows);
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, i = lane % 4;
  for (int m = 0; m < 4; ++m) {
    r[m] = rows[m][g][2 * i] | static_cast<uint32_t>(rows[m][g][2 * i + 1]) << 16;
  }
}
inline void LoadMatricesTransposed(SharedPlace row, uint32_t (&r)[4]) {
  uint16_t rows[4][8][8];
  emulation::CopyRows(row, rows);
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, i = lane % 4;
  for (int m = 0; m < 4; ++m) {
    r[m] = rows[m][2 * i][g] | static_cast<uint32_t>(rows[m][2 * i + 1][g]) << 16;
  }
}
inline uint32_t LoadShared(SharedPlace at) { return *reinterpret_cast<const uint32_t*>(at); }
inline void StoreShared(SharedPlace at, uint32_t x) { *reinterpret_cast<uint32_t*>(at) = x; }

inline uint32_t MaskOr(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }

inline uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t pool = static_cast<uint64_t>(b) << 32 | a;
  uint32_t d = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t nibble = selector >> (4 * k) & 15;
    const auto byte = static_cast<uint8_t>(pool >> (8 * (nibble & 7)));
    const uint32_t value = (nibble & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xFF : 0;
    d |= value << (8 * k);
  }
  return d;
}

inline uint32_t InRegister(uint32_t x) { return x; }
inline float Exp2(float x) { return std::exp2(x); }
inline void WaitForEarlierKernels() {}
inline void LetNextKernelStart() {}
inline uint32_t Arrive(uint32_t* count) { return (*count)++; }
inline float Log2(float x) { return std::log2(x); }
inline float Reciprocal(float x) { return 1.0f / x; }
template <class T>
const T* InShared(const T* pointer) {
  return pointer;
}

inline void SyncSome(int id, int threads) { emulation::SyncSome(id, threads); }

// A copy is done when its barrier is waited for, as late as it can be: a slot that is still read,
// or is read without waiting, shows as NaN. A phase is over once its copies are under way. A
// barrier has its phase, what is missing in it, and what a phase has.
namespace emulation {
struct BarrierBits {
  uint32_t phase;
  uint16_t missing;
  uint16_t arrivals;
};
inline void CountIn(uint64_t* barrier) {
  auto bits = std::bit_cast<BarrierBits>(*barrier);
  if (--bits.missing == 0) {
    ++bits.phase;
    bits.missing = bits.arrivals;
  }
  *barrier = std::bit_cast<uint64_t>(bits);
}
}  // namespace emulation

inline void InitBarrier(uint64_t* barrier, int warps) {
  const auto arrivals = static_cast<uint16_t>(warps);
  *barrier = std::bit_cast<uint64_t>(emulation::BarrierBits{0, arrivals, arrivals});
}
inline void FenceCopies() {}
inline void StartOwnCopy(std::byte* to, const std::byte* from) { std::memcpy(to, from, 16); }
inline void WaitOwnCopies() {}
inline void StartCopy(uint64_t* barrier, std::byte* to, const std::byte* from, uint32_t bytes,
                      int lane, int owner) {
  if (lane != owner) return;
  emulation::CopyLater(barrier, to, from, bytes);
  emulation::CountIn(barrier);
}
inline void Prefetch(const std::byte*, uint32_t) {}
inline void ArriveBarrier(uint64_t* barrier, int lane, int owner = 0) {
  if (lane == owner) emulation::CountIn(barrier);
}
inline void WaitCopy(uint64_t* barrier, uint32_t parity) {
  while (std::bit_cast<emulation::BarrierBits>(*barrier).phase % 2 == parity) emulation::Yield();
  emulation::FinishCopies(barrier);
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_EMULATION_WARP_OPS_EMULATED_H_
