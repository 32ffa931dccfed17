// What the kernels for prompts get; private to src/cuda.

#ifndef VARVE_CUDA_PROMPT_PARAMS_H_
#define VARVE_CUDA_PROMPT_PARAMS_H_

#include "cuda/device_prompt.h"

namespace varve::cuda {

inline constexpr int kPromptTile = 64;  // tokens
inline constexpr int kPromptWarps = 4;
inline constexpr int kExpandThreads = 256;

// Values from row to row of a tile: units of 16 bytes change places within a row, which needs a
// multiple of eight of them.
constexpr int PromptPitch(int head_dim) { return head_dim == 96 ? 128 : head_dim; }
constexpr int PromptTileBytes(int head_dim) { return kPromptTile * PromptPitch(head_dim) * 2; }
// Queries of a block; wide heads leave registers for half as many.
constexpr int PromptRows(int head_dim) { return head_dim > 128 ? 64 : 128; }

struct PromptParams {
  DevicePrompt call;
  int group = 0;
  int num_tiles = 0;
  uint32_t key_bytes[kNumRungIds] = {};  // of strips
  uint32_t value_bytes[kNumRungIds] = {};
  std::byte* tiles = nullptr;  // [kv_heads][num_tiles][K, V][kPromptTile][pitch] f16
};

struct PromptKernels {
  const void* expand = nullptr;
  const void* attend = nullptr;
  size_t shared_bytes = 0;  // of a block of `attend`
};
PromptKernels PromptKernels64();
PromptKernels PromptKernels96();
PromptKernels PromptKernels128();
PromptKernels PromptKernels256();

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PROMPT_PARAMS_H_
