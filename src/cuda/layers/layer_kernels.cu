#include "cuda/layers/layer_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/warp_ops.cuh"

namespace varve::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 512;  // a decode step has one row: it waits for loads
constexpr float kMostF16 = 65504.0f;

// Comparisons, not fminf: those would make a number of NaN.
__device__ __forceinline__ uint16_t ToHalf(HalfType type, float x) {
  if (type == HalfType::kBF16) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
    return *reinterpret_cast<const uint16_t*>(&rounded);
  }
  x = x > kMostF16 ? kMostF16 : x < -kMostF16 ? -kMostF16 : x;
  const __half rounded = __float2half_rn(x);
  return *reinterpret_cast<const uint16_t*>(&rounded);
}

__device__ __forceinline__ float FromHalf(HalfType type, const uint16_t* x) {
  return type == HalfType::kBF16 ? __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(x))
                                 : __half2float(*reinterpret_cast<const __half*>(x));
}

__device__ __forceinline__ float WarpSum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

// A block makes one row.
__global__ void __launch_bounds__(kThreads) EmbedKernel(VARVE_KERNEL_PARAMETER(EmbedCall) call) {
  const auto width = static_cast<size_t>(call.width);
  const auto* from = static_cast<const uint16_t*>(call.table) +
                     static_cast<size_t>(call.tokens[blockIdx.x]) * width;
  float* to = call.out + blockIdx.x * width;
  for (size_t i = threadIdx.x; i < width; i += kThreads) {
    to[i] = FromHalf(call.type, from + i) * call.scale;
  }
}

// A block makes one row.
__global__ void __launch_bounds__(kNormThreads) NormKernel(VARVE_KERNEL_PARAMETER(NormCall) call) {
  __shared__ float sums[kNormThreads / 32];
  const size_t row = static_cast<size_t>(blockIdx.x) * static_cast<size_t>(call.dim);
  const float* x = call.x + row;
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
#pragma unroll 8
  for (int i = thread; i < call.dim; i += kNormThreads) sum += x[i] * x[i];
  sum = WarpSum(sum);
  if (thread % 32 == 0) sums[thread / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (const float part : sums) sum += part;
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(call.dim) + call.epsilon);
#pragma unroll 8
  for (int i = thread; i < call.dim; i += kNormThreads) {
    const float y = x[i] * factor * call.weight[i];
    if (call.sum != nullptr) {
      call.sum[row + static_cast<size_t>(i)] += y;
    } else {
      static_cast<uint16_t*>(call.out)[row + static_cast<size_t>(i)] = ToHalf(call.type, y);
    }
  }
}

// A head's values with bias and norm, as they are read.
struct HeadReader {
  const float* values;
  const float* bias;  // or null
  const float* norm;  // or null
  float factor;

  __device__ float Raw(int i) const { return bias != nullptr ? values[i] + bias[i] : values[i]; }
  __device__ float At(int i) const { return norm != nullptr ? Raw(i) * factor * norm[i] : Raw(i); }
};

__device__ __forceinline__ void RotateHead(const RotateCall& call, const HeadReader& head,
                                           const float* cos_sin, int lane, float* out) {
  for (int i = lane; i < call.pairs; i += 32) {
    const int first = call.interleaved ? 2 * i : i;
    const int second = call.interleaved ? 2 * i + 1 : i + call.pairs;
    const float a = head.At(first), b = head.At(second);
    const float cosine = cos_sin[i], sine = cos_sin[call.pairs + i];
    out[first] = a * cosine - b * sine;
    out[second] = a * sine + b * cosine;
  }
  for (int i = 2 * call.pairs + lane; i < call.head_dim; i += 32) out[i] = head.At(i);
}

// A warp makes one head of one row.
__global__ void __launch_bounds__(32) RotateKernel(VARVE_KERNEL_PARAMETER(RotateCall) call) {
  const int lane = static_cast<int>(threadIdx.x), dim = call.head_dim;
  const int head = static_cast<int>(blockIdx.y);
  const size_t row = blockIdx.x;
  const bool query = head < call.heads, key = !query && head < call.heads + call.kv_heads;
  const auto all = static_cast<size_t>(call.heads + 2 * call.kv_heads);
  HeadReader reader = {};
  reader.values = call.qkv + (row * all + static_cast<size_t>(head)) * static_cast<size_t>(dim);
  reader.bias = call.bias != nullptr ? call.bias + head * dim : nullptr;
  reader.norm = query ? call.query_norm : key ? call.key_norm : nullptr;
  if (reader.norm != nullptr) {
    float sum = 0.0f;
    for (int i = lane; i < dim; i += 32) sum += reader.Raw(i) * reader.Raw(i);
    reader.factor = 1.0f / sqrtf(WarpSum(sum) / static_cast<float>(dim) + call.epsilon);
  }
  const int kv_head = head - call.heads - (key ? 0 : call.kv_heads);
  const auto to_row = static_cast<size_t>(dim) * row;
  if (query || key) {
    float* out = query ? call.queries + to_row * static_cast<size_t>(call.heads) + head * dim
                       : call.keys + to_row * static_cast<size_t>(call.kv_heads) + kv_head * dim;
    RotateHead(call, reader, call.cos_sin + row * 2 * static_cast<size_t>(call.pairs), lane, out);
    return;
  }
  float* out = call.values + to_row * static_cast<size_t>(call.kv_heads) + kv_head * dim;
  for (int i = lane; i < dim; i += 32) out[i] = reader.At(i);
}

// Grid: blocks of a row, rows.
__global__ void __launch_bounds__(kThreads) GateKernel(VARVE_KERNEL_PARAMETER(GateCall) call) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= call.dim) return;
  const auto dim = static_cast<size_t>(call.dim);
  const float* gate = call.gate_up + blockIdx.y * 2 * dim;
  const float x = gate[i];
  constexpr float kRootTwoOverPi = 0.7978845608f;
  const float active = call.gelu
                           ? 0.5f * x * (1.0f + tanhf(kRootTwoOverPi * (x + 0.044715f * x * x * x)))
                           : x / (1.0f + expf(-x));
  static_cast<uint16_t*>(call.out)[blockIdx.y * dim + static_cast<size_t>(i)] =
      ToHalf(call.type, active * gate[dim + static_cast<size_t>(i)]);
}

struct BiasParams {
  float* x;
  const float* bias;
  int dim;
};
__global__ void __launch_bounds__(kThreads) BiasKernel(VARVE_KERNEL_PARAMETER(BiasParams) params) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= params.dim) return;
  params.x[blockIdx.y * static_cast<size_t>(params.dim) + static_cast<size_t>(i)] += params.bias[i];
}

struct CapParams {
  float* x;
  int64_t count;
  float cap;
};
__global__ void __launch_bounds__(kThreads) CapKernel(VARVE_KERNEL_PARAMETER(CapParams) params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.count) return;
  params.x[i] = params.cap * tanhf(params.x[i] / params.cap);
}

template <class Params>
DeviceStatus Launch(const char* what, void (*kernel)(Params), const void* params, dim3 grid,
                    int threads, cudaStream_t stream) {
  if (grid.x == 0 || grid.y == 0) return {};
  void* arguments[] = {const_cast<void*>(params)};
  const cudaError_t error =
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid,
                       dim3(static_cast<unsigned>(threads)), arguments, 0, stream);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here; or the next launch would report it
  return {StatusCode::kInternal, "%s: %s", what, cudaGetErrorString(error)};
}

dim3 RowBlocks(int64_t dim, int rows) {
  return {static_cast<unsigned>((dim + kThreads - 1) / kThreads), static_cast<unsigned>(rows), 1};
}

}  // namespace

DeviceStatus Embed(const EmbedCall& call, cudaStream_t stream) {
  return Launch("embedding", EmbedKernel, &call, dim3(static_cast<unsigned>(call.num_tokens)),
                kThreads, stream);
}

DeviceStatus RmsNorm(const NormCall& call, cudaStream_t stream) {
  return Launch("norm", NormKernel, &call, dim3(static_cast<unsigned>(call.rows)), kNormThreads,
                stream);
}

DeviceStatus SplitAndRotate(const RotateCall& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.rows),
                  static_cast<unsigned>(call.heads + 2 * call.kv_heads));
  return Launch("rotary positions", RotateKernel, &call, grid, 32, stream);
}

DeviceStatus GateUp(const GateCall& call, cudaStream_t stream) {
  return Launch("activation", GateKernel, &call, RowBlocks(call.dim, call.rows), kThreads, stream);
}

DeviceStatus AddBias(float* x, const float* bias, int rows, int dim, cudaStream_t stream) {
  const BiasParams params = {x, bias, dim};
  return Launch("bias", BiasKernel, &params, RowBlocks(dim, rows), kThreads, stream);
}

DeviceStatus SoftCap(float* x, int64_t count, float cap, cudaStream_t stream) {
  const CapParams params = {x, count, cap};
  return Launch("soft cap", CapKernel, &params, RowBlocks(count, 1), kThreads, stream);
}

}  // namespace varve::cuda
