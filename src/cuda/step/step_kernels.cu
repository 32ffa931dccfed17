#include "cuda/step/step_kernels.h"

namespace varve::cuda::step {
namespace {

__global__ void FillKernel(__half* values, size_t count, float scale, uint32_t seed) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u ^ seed;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    values[i] = __float2half_rn((static_cast<float>(x >> 8) * 0x1p-23f - 1.0f) * scale);
  }
}

constexpr int kNormThreads = 512;

__global__ void __launch_bounds__(kNormThreads)
    NormKernel(const __half* x, const __half* weight, int dim, __half* out) {
  __shared__ float sums[kNormThreads / 32];
  const auto* row = reinterpret_cast<const __half2*>(x + static_cast<size_t>(blockIdx.x) * dim);
  const auto* scale = reinterpret_cast<const __half2*>(weight);
  auto* to = reinterpret_cast<__half2*>(out + static_cast<size_t>(blockIdx.x) * dim);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < dim / 2; i += kNormThreads) {
    const float2 v = __half22float2(row[i]);
    sum = fmaf(v.x, v.x, fmaf(v.y, v.y, sum));
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (const float part : sums) sum += part;
  const float factor = rsqrtf(sum / static_cast<float>(dim) + 1e-5f);
  for (int i = threadIdx.x; i < dim / 2; i += kNormThreads) {
    const float2 v = __half22float2(row[i]), w = __half22float2(scale[i]);
    to[i] = __floats2half2_rn(v.x * factor * w.x, v.y * factor * w.y);
  }
}

// Grid: rows, heads and KV heads; half a head's values as threads.
__global__ void RotateKernel(__half* qkv, int heads, int kv_heads, int position, __half* queries) {
  const int half_dim = static_cast<int>(blockDim.x), dim = 2 * half_dim;
  const int head = static_cast<int>(blockIdx.y), i = static_cast<int>(threadIdx.x);
  __half* from = qkv + (static_cast<size_t>(blockIdx.x) * (heads + 2 * kv_heads) + head) * dim;
  __half* to =
      head < heads ? queries + (static_cast<size_t>(blockIdx.x) * heads + head) * dim : from;
  float sine, cosine;
  sincosf(static_cast<float>(position) *
              powf(10000.0f, -static_cast<float>(i) / static_cast<float>(half_dim)),
          &sine, &cosine);
  const float x = __half2float(from[i]), y = __half2float(from[i + half_dim]);
  to[i] = __float2half_rn(x * cosine - y * sine);
  to[i + half_dim] = __float2half_rn(y * cosine + x * sine);
}

__global__ void GateKernel(const __half* gate_up, int dim, __half* out) {
  const __half* gate = gate_up + static_cast<size_t>(blockIdx.y) * 2 * dim;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= dim) return;
  const float x = __half2float(gate[i]);
  out[static_cast<size_t>(blockIdx.y) * dim + i] =
      __float2half_rn(x / (1.0f + __expf(-x)) * __half2float(gate[dim + i]));
}

}  // namespace

void FillRandom(__half* values, size_t count, float scale, uint32_t seed, cudaStream_t stream) {
  FillKernel<<<2048, 256, 0, stream>>>(values, count, scale, seed);
}

void RmsNorm(const __half* x, const __half* weight, int rows, int dim, __half* out,
             cudaStream_t stream) {
  NormKernel<<<static_cast<unsigned>(rows), kNormThreads, 0, stream>>>(x, weight, dim, out);
}

void RotateQueriesAndKeys(__half* qkv, int rows, int heads, int kv_heads, int head_dim,
                          int position, __half* queries, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(heads + kv_heads));
  RotateKernel<<<grid, static_cast<unsigned>(head_dim / 2), 0, stream>>>(qkv, heads, kv_heads,
                                                                         position, queries);
}

void GateUp(const __half* gate_up, int rows, int dim, __half* out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((dim + 255) / 256), static_cast<unsigned>(rows));
  GateKernel<<<grid, 256, 0, stream>>>(gate_up, dim, out);
}

}  // namespace varve::cuda::step
