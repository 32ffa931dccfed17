// The words of device code for an ordinary C++ compiler: kernels of src/cuda compiled with it run
// on the CPU, lane by lane, for tests on machines without a GPU. Slow, and one block at a time.
//
// A block's threads are fibers of one thread. A fiber runs until it needs the others: at a barrier
// or an exchange within its warp, which all lanes must reach. Nothing here knows attention.

#ifndef VARVE_CUDA_EMULATION_DEVICE_WORDS_H_
#define VARVE_CUDA_EMULATION_DEVICE_WORDS_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef __forceinline__
#define __forceinline__ inline
#undef __shared__
#define __shared__ static  // one block at a time
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace varve::cuda::emulation {

struct Place {
  uint3 thread;
  uint3 block;
  dim3 grid;
};
const Place& Here();                 // of the running fiber
unsigned char* DynamicShared();      // of the running block
void SyncThreads();                  // all fibers of the block
void SyncSome(int id, int threads);  // that many of them, by barrier `id` (1 … 15)
void Yield();                        // lets the others run
uint64_t* Exchange(uint64_t mine);   // the values of the 32 lanes; all of them call
// A copy into shared memory, where NaN lies until somebody waits for the barrier: then it is done.
void CopyLater(const uint64_t* barrier, void* to, const void* from, size_t bytes);
void FinishCopies(const uint64_t* barrier);

}  // namespace varve::cuda::emulation

#define threadIdx (::varve::cuda::emulation::Here().thread)
#define blockIdx (::varve::cuda::emulation::Here().block)
#define gridDim (::varve::cuda::emulation::Here().grid)

inline void __syncthreads() { ::varve::cuda::emulation::SyncThreads(); }
inline void __syncwarp() { ::varve::cuda::emulation::Exchange(0); }
inline void __threadfence() {}

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = ::varve::cuda::emulation::Exchange(bits)[lane & 31];
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ bits);
}
inline int __any_sync(unsigned, bool value) {
  const uint64_t* all = ::varve::cuda::emulation::Exchange(value ? 1 : 0);
  for (int lane = 0; lane < 32; ++lane) {
    if (all[lane] != 0) return 1;
  }
  return 0;
}
inline uint32_t __ballot_sync(unsigned, bool value) {
  const uint64_t* all = ::varve::cuda::emulation::Exchange(value ? 1 : 0);
  uint32_t bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= static_cast<uint32_t>(all[lane]) << lane;
  return bits;
}
template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class T>
void __stcg(T* at, T value) {
  *at = value;
}

inline int __ffs(uint32_t x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline int __clz(int x) { return std::countl_zero(static_cast<uint32_t>(x)); }
inline int __popc(uint32_t x) { return std::popcount(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

#endif  // VARVE_CUDA_EMULATION_DEVICE_WORDS_H_
