// The few instructions that attention is made of: matrix products of a warp, transposition of small
// matrices, byte permutation, loads. Written for the device here and for the CPU, where tests
// emulate the kernels, in emulation/warp_ops_emulated.h.
//
// Fragments of m16n8k16, lane = 4 * g + i: A has rows g (a[0], a[2]) and g + 8 (a[1], a[3]),
// columns 2i, 2i + 1 (a[0], a[1]) and 2i + 8, 2i + 9 (a[2], a[3]). B has column g, rows 2i, 2i + 1
// (x) and 2i + 8, 2i + 9 (y). C has columns 2i, 2i + 1 of rows g (c[0], c[1]) and g + 8 (c[2],
// c[3]).

#ifndef VARVE_CUDA_WARP_OPS_CUH_
#define VARVE_CUDA_WARP_OPS_CUH_

#ifdef VARVE_CUDA_EMULATED
#include "cuda/emulation/warp_ops_emulated.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

// A kernel has one parameter, a structure.
#define VARVE_KERNEL_PARAMETER(type) const __grid_constant__ type
#define VARVE_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

namespace varve::cuda {

// c += a x b, in f16 or bf16 with f32 sums.
template <bool kBrain = false>
__device__ __forceinline__ void Multiply(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  if constexpr (kBrain) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
  }
}

// The 8 x 8 matrix of 16-bit values whose row g, columns 2i and 2i + 1 each lane holds, transposed.
__device__ __forceinline__ uint32_t Transpose(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// (a & mask) | bits in one instruction.
__device__ __forceinline__ uint32_t MaskOr(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(mask), "r"(bits));
  return d;
}

// Four bytes of a (0 … 3) and b (4 … 7), by the nibbles of a selector's lower half. With its top
// bit set, a nibble gives eight copies of the byte's top bit.
__device__ __forceinline__ uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Words of pages, which no kernel writes while it reads them.
__device__ __forceinline__ uint2 Load2(const std::byte* at) {
  uint2 v;
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
  return v;
}
__device__ __forceinline__ uint32_t Load1(const std::byte* at) {
  uint32_t v;
  asm("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(at));
  return v;
}

// Asks for bytes to be brought into the second-level cache. A multiple of 16, at one.
__device__ __forceinline__ void FetchAhead(const std::byte* from, uint32_t bytes, int lane) {
#if __CUDA_ARCH__ >= 900
  if (lane == 0) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes & ~15u));
  }
#else
  for (uint32_t at = lane * 128; at < bytes; at += 32 * 128) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
  }
#endif
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_EMULATED

namespace varve::cuda {

__device__ __forceinline__ uint32_t AsBits(half2 x) { return *reinterpret_cast<uint32_t*>(&x); }
__device__ __forceinline__ half2 AsHalf2(uint32_t x) { return *reinterpret_cast<half2*>(&x); }

__device__ __forceinline__ uint32_t AddHalf2(uint32_t a, uint32_t b) {
  return AsBits(__hadd2(AsHalf2(a), AsHalf2(b)));
}

// 16-bit values {low of a, low of b} and {high of a, high of b}.
__device__ __forceinline__ uint32_t Lows(uint32_t a, uint32_t b) {
  return PermuteBytes(a, b, 0x5410);
}
__device__ __forceinline__ uint32_t Highs(uint32_t a, uint32_t b) {
  return PermuteBytes(a, b, 0x7632);
}

// Two bytes of x, as the f16 numbers 1024 + byte.
template <int kFirst, int kSecond>
__device__ __forceinline__ uint32_t BytesToHalf2(uint32_t x) {
  return PermuteBytes(x, 0x64646464u, 0x4040 | kFirst | kSecond << 8);
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_WARP_OPS_CUH_
