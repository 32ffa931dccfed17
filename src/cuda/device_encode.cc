#include "cuda/device_encode.h"

#include "cuda/encode_params.h"
#include "cuda/shared_memory.h"

namespace varve::cuda {
namespace {

DeviceStatus Launch(const char* what, const void* kernel, int num_jobs, int kv_heads, int threads,
                    void* params, size_t shared_bytes, cudaStream_t stream) {
  if (shared_bytes > 48 * 1024) {
    VARVE_CUDA_RETURN_IF_ERROR(AllowSharedMemory(what, kernel, shared_bytes));
  }
  const dim3 grid(static_cast<unsigned>(num_jobs), static_cast<unsigned>(kv_heads), 2);
  void* arguments[] = {params};
  const cudaError_t error = cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(threads)),
                                             arguments, shared_bytes, stream);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here; or the next launch would report it
  return {StatusCode::kInternal, "%s: %s", what, cudaGetErrorString(error)};
}

// One job may be there without an array of them.
DeviceStatus CheckJobs(const PageShape& shape, int num_jobs, const void* jobs) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckShape(shape));
  if (num_jobs < 0) return {StatusCode::kInvalidArgument, "num_jobs %d < 0", num_jobs};
  if (num_jobs > 1 && jobs == nullptr) {
    return {StatusCode::kInvalidArgument, "num_jobs %d, but jobs is null", num_jobs};
  }
  return {};
}

}  // namespace

DeviceStatus Append(const DeviceAppend& call, cudaStream_t stream) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckJobs(call.shape, call.num_jobs, call.jobs));
  if (call.rung != DeviceRung::kF16 && call.rung != DeviceRung::kBF16) {
    return {StatusCode::kUnimplemented, "rung %s: open pages are f16 or bf16",
            DeviceRungName(call.rung)};
  }
  if (call.num_jobs == 0) return {};
  AppendParams params;
  params.call = call;
  params.strip_bytes = static_cast<uint32_t>(DeviceStripBytes(call.rung, true, call.shape));
  return Launch("append", AppendKernel(), call.num_jobs, call.shape.kv_heads, kAppendThreads,
                &params, 0, stream);
}

DeviceStatus Encode(const DeviceEncode& call, cudaStream_t stream) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckJobs(call.shape, call.num_jobs, call.jobs));
  VARVE_CUDA_RETURN_IF_ERROR(CheckPqShape(call.shape));
  if (call.num_jobs == 0) return {};
  EncodeParams params;
  params.call = call;
  for (int id = 0; id < kNumRungIds; ++id) {
    const auto rung = static_cast<DeviceRung>(id);
    params.key_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, true, call.shape));
    params.value_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, false, call.shape));
  }
  return Launch("encode", EncodeKernel(call.shape.head_dim), call.num_jobs, call.shape.kv_heads,
                kEncodeThreads, &params, EncodeSharedBytes(call.shape), stream);
}

}  // namespace varve::cuda
