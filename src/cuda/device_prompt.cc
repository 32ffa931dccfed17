#include "cuda/device_prompt.h"

#include "base/align.h"
#include "cuda/prompt_params.h"
#include "cuda/shared_memory.h"

namespace varve::cuda {
namespace {

int TilesOf(const DevicePrompt& call) {
  return call.num_pages * (call.shape.page_tokens / kPromptTile);
}

PromptKernels KernelsOf(int head_dim) {
  switch (head_dim) {
    case 64:
      return PromptKernels64();
    case 96:
      return PromptKernels96();
    case 128:
      return PromptKernels128();
    default:
      return PromptKernels256();
  }
}

DeviceStatus CheckPrompt(const DevicePrompt& call) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckShape(call.shape));
  const int kv_heads = call.shape.kv_heads;
  if (call.query_heads < kv_heads || call.query_heads % kv_heads != 0 || call.query_heads > 65535) {
    return {StatusCode::kInvalidArgument, "query_heads %d is not a multiple of kv_heads %d",
            call.query_heads, kv_heads};
  }
  if (call.num_pages < 0 || call.num_pages > (1 << 24)) {
    return {StatusCode::kInvalidArgument, "num_pages %d is not in 0 ... %d", call.num_pages,
            1 << 24};
  }
  if (call.num_queries < 0) {
    return {StatusCode::kInvalidArgument, "num_queries %d < 0", call.num_queries};
  }
  if (!(call.scale > 0.0f)) {
    return {StatusCode::kInvalidArgument, "scale %g is not above 0", call.scale};
  }
  return {};
}

DeviceStatus Launch(const char* what, const void* kernel, dim3 grid, int threads,
                    PromptParams* params, size_t shared_bytes, cudaStream_t stream) {
  if (shared_bytes > 0) {
    VARVE_CUDA_RETURN_IF_ERROR(AllowSharedMemory(what, kernel, shared_bytes));
  }
  void* arguments[] = {params};
  const cudaError_t error = cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(threads)),
                                             arguments, shared_bytes, stream);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here; or the next launch would report it
  return {StatusCode::kInternal, "%s: %s", what, cudaGetErrorString(error)};
}

}  // namespace

size_t PromptSharedBytes(int head_dim) { return KernelsOf(head_dim).shared_bytes; }

size_t PromptWorkspaceBytes(const DevicePrompt& call) {
  if (!CheckPrompt(call).ok()) return 0;
  return static_cast<size_t>(call.shape.kv_heads) * static_cast<size_t>(TilesOf(call)) * 2 *
         static_cast<size_t>(PromptTileBytes(call.shape.head_dim));
}

DeviceStatus AttendPrompt(const DevicePrompt& call, void* workspace, size_t workspace_bytes,
                          cudaStream_t stream) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckPrompt(call));
  if (call.num_queries == 0) return {};
  const size_t bytes = PromptWorkspaceBytes(call);
  if (workspace_bytes < bytes) {
    return {StatusCode::kInvalidArgument, "workspace_bytes %zu < %zu", workspace_bytes, bytes};
  }
  PromptParams params;
  params.call = call;
  params.group = call.query_heads / call.shape.kv_heads;
  params.num_tiles = TilesOf(call);
  params.tiles = static_cast<std::byte*>(workspace);
  for (int id = 0; id < kNumRungIds; ++id) {
    const auto rung = static_cast<DeviceRung>(id);
    params.key_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, true, call.shape));
    params.value_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, false, call.shape));
  }
  const PromptKernels kernels = KernelsOf(call.shape.head_dim);
  const auto kv_heads = static_cast<unsigned>(call.shape.kv_heads);
  if (params.num_tiles > 0) {
    VARVE_CUDA_RETURN_IF_ERROR(Launch("expanding pages", kernels.expand,
                                      dim3(static_cast<unsigned>(params.num_tiles), kv_heads, 2),
                                      kExpandThreads, &params, 0, stream));
  }
  const int query_tiles = CeilDiv(call.num_queries, PromptRows(call.shape.head_dim));
  return Launch("attention of a prompt", kernels.attend,
                dim3(static_cast<unsigned>(query_tiles), static_cast<unsigned>(call.query_heads)),
                kPromptWarps * 32, &params, kernels.shared_bytes, stream);
}

}  // namespace varve::cuda
