// Attention of many queries of one sequence over its pages, whatever their rungs: a prompt, or a
// chunk of one.
//
// Two launches on the caller's stream. The first writes the rows of all pages in f16 into the work
// space, in tiles as shared memory wants them; the second is flash attention over these tiles. A
// row is decoded once for all queries: one pass over 2 * rows * head_dim values beside 4 * queries
// * rows * head_dim operations per query head. Nothing is allocated, nothing waits.
//
// Queries and rows are rounded to f16 (values beyond its range become the largest it has, NaN stays
// NaN), sums are in f32. A NaN in a row of V shows in all queries that see the row, and in those of
// the 128 computed together that do not: their weight is 0, and 0 * NaN is NaN.

#ifndef VARVE_CUDA_DEVICE_PROMPT_H_
#define VARVE_CUDA_DEVICE_PROMPT_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device_attention.h"
#include "cuda/device_pages.h"
#include "cuda/device_status.h"

namespace varve::cuda {

// Row slots that a query sees, counted through the table: row r of page p is p * page_tokens + r.
// Rows that are not live are never seen.
struct VisibleRows {
  int32_t begin = 0;
  int32_t end = 0;
};

struct DevicePrompt {
  PageShape shape;
  int query_heads = 0;                // kv_heads * group
  const DevicePage* pages = nullptr;  // device memory
  int num_pages = 0;
  // [num_queries], device memory; neither begin nor end may fall from a query to the next.
  const VisibleRows* visible = nullptr;
  int num_queries = 0;
  DeviceCodebook key_codebook;
  DeviceCodebook value_codebook;

  TensorType query_type = TensorType::kF16;
  const void* queries = nullptr;  // [num_queries, query_heads, head_dim]
  TensorType output_type = TensorType::kF16;
  void* output = nullptr;  // as queries; rows of queries that see nothing are 0
  float* lse = nullptr;    // [num_queries, query_heads] natural logarithm, or null
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none
};

// Bytes of shared memory that a block would have. Where a device lends fewer there is no kernel for
// prompts, and each query can be a sequence of DeviceAttention.
size_t PromptSharedBytes(int head_dim);

// Bytes of work space; 256-aligned memory. It needs no preparation.
size_t PromptWorkspaceBytes(const DevicePrompt& call);

DeviceStatus AttendPrompt(const DevicePrompt& call, void* workspace, size_t workspace_bytes,
                          cudaStream_t stream);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_DEVICE_PROMPT_H_
