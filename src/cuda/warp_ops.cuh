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

// d = a x b + c, in f16 or bf16 with f32 sums. With c in registers of its own, a sum that many
// products start from is not copied.
template <bool kBrain = false>
__device__ __forceinline__ void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint2 b,
                                            const float (&c)[4]) {
  if constexpr (kBrain) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  }
}
// c += a x b.
template <bool kBrain = false>
__device__ __forceinline__ void Multiply(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  MultiplyAdd<kBrain>(c, a, b, c);
}

// m16n8k32 of bytes, both signed or both unsigned: as above, with four columns 4i … 4i + 3 and 16
// above in place of two.
template <bool kSigned>
__device__ __forceinline__ void MultiplyAddBytes(int (&d)[4], const uint32_t (&a)[4], uint2 b,
                                                 const int (&c)[4]) {
  if constexpr (kSigned) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]));
  }
}

// The 8 x 8 matrix of 16-bit values whose row g, columns 2i and 2i + 1 each lane holds, transposed.
__device__ __forceinline__ uint32_t Transpose(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// Four such matrices from shared memory: lane 8m + r names row r (16 bytes) of matrix m. r[m] is
// this lane's part of it, as it lies or transposed.
using SharedPlace = uint32_t;  // an address in shared memory
__device__ __forceinline__ SharedPlace SharedPlaceOf(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void LoadMatrices(SharedPlace row, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}
__device__ __forceinline__ void LoadMatricesTransposed(SharedPlace row, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}
// One word there, of what does not change while the kernel reads it: loads may move across stores.
__device__ __forceinline__ uint32_t LoadShared(SharedPlace at) {
  uint32_t x;
  asm("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at));
  return x;
}
__device__ __forceinline__ void StoreShared(SharedPlace at, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
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

// The same number, of which the compiler knows nothing: a constant kept in a register.
__device__ __forceinline__ uint32_t InRegister(uint32_t x) {
  uint32_t y;
  asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float Log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Barrier `id` (1 … 15) of some warps of a block.
__device__ __forceinline__ void SyncSome(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Launches may overlap (device_attention.cc). Before the first read or write of device memory: all
// kernels before this one have ended. And: the kernel behind it may start.
__device__ __forceinline__ void WaitForEarlierKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void LetNextKernelStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Counts a block in and gives the count before. What its threads have written, if a barrier of the
// block lies between, is seen by those that come later.
__device__ __forceinline__ uint32_t Arrive(uint32_t* count) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(count)
               : "memory");
  return before;
}

// A pointer into shared memory, known as such: the compiler then has the shorter loads.
template <class T>
__device__ __forceinline__ const T* InShared(const T* pointer) {
  __builtin_assume(__isShared(pointer));
  return pointer;
}

// Copies of strips into shared memory that run ahead of their use. A barrier is 8 bytes of shared
// memory; a copy completes one phase of it. One warp starts copies; any warp may wait.
__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
// A phase is complete when that many warps have started a copy, which is done, or arrived.
__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int warps) {
#if __CUDA_ARCH__ >= 900
  const int arrivals = warps;  // one lane of each
#else
  const int arrivals = 32 * warps;
#endif
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
// By all threads, after barriers have been made.
__device__ __forceinline__ void FenceCopies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// All lanes of a warp call; `from` and `bytes`, a multiple of 16, are those of lane `owner`.
__device__ __forceinline__ void StartCopy(uint64_t* barrier, std::byte* to, const std::byte* from,
                                          uint32_t bytes, int lane, int owner) {
  const uint32_t at = SharedAddress(barrier);
#if __CUDA_ARCH__ >= 900
  if (lane != owner) return;
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(at)
      : "memory");
#else
  from = reinterpret_cast<const std::byte*>(
      __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(from), owner));
  bytes = __shfl_sync(0xFFFFFFFFu, bytes, owner);
  for (uint32_t offset = 16 * lane; offset < bytes; offset += 16 * 32) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(to + offset)),
                 "l"(from + offset)
                 : "memory");
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
#endif
}
// 16 bytes into shared memory, for this thread's WaitOwnCopies.
__device__ __forceinline__ void StartOwnCopy(std::byte* to, const std::byte* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(to)), "l"(from)
               : "memory");
}
__device__ __forceinline__ void WaitOwnCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// What will be read where it lies, into the second-level cache. A multiple of 16 bytes.
__device__ __forceinline__ void Prefetch([[maybe_unused]] const std::byte* from,
                                         [[maybe_unused]] uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
// A warp's part of a phase without a copy. What lane `owner` has written before is seen by those
// that wait; what others have, if a barrier of the warp lies between.
__device__ __forceinline__ void ArriveBarrier(uint64_t* barrier, int lane, int owner = 0) {
#if __CUDA_ARCH__ >= 900
  if (lane != owner) return;
#endif
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(SharedAddress(barrier))
      : "memory");
}
// Waits for the phase of that parity: phases count from 0.
__device__ __forceinline__ void WaitCopy(uint64_t* barrier, uint32_t parity) {
  const uint32_t at = SharedAddress(barrier);
  uint32_t done = 0;
  while (done == 0) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(at), "r"(parity)
        : "memory");
#else
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(at), "r"(parity)
        : "memory");
#endif
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_EMULATED

namespace varve::cuda {

// Words of strips, in shared memory or in global memory.
__device__ __forceinline__ uint2 Load2(const std::byte* at) {
  return *reinterpret_cast<const uint2*>(at);
}
__device__ __forceinline__ uint32_t Load1(const std::byte* at) {
  return *reinterpret_cast<const uint32_t*>(at);
}

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

// Words of byte permutations, in constant memory: an instruction reads its operand there. As
// constants of the code they would be loaded into a register again for every use, which costs as
// much as the permutation.
struct PermuteWords {
  uint32_t magic;         // bytes to f16
  uint32_t levels[3][4];  // of turned codes, by bits - 2
};

// Two bytes of x, as the f16 numbers 1024 + byte. `magic` is PermuteWords::magic.
template <int kFirst, int kSecond>
__device__ __forceinline__ uint32_t BytesToHalf2(uint32_t x, uint32_t magic) {
  return PermuteBytes(x, magic, 0x4040 | kFirst | kSecond << 8);
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_WARP_OPS_CUH_
