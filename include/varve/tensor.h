// What a model hands to a cache and gets back: rows of keys and values, queries and outputs.
//
// These are views: pointer, sizes, strides, the type of the numbers and the device that they are
// on. They own nothing, and the cache keeps no pointer after the call. Numbers are f32, f16 or
// bf16; the cache converts where it must. A tensor is in the memory of the CPU or, for a cache on a
// GPU (CacheOptions::device), in that GPU's; another device is refused with kUnimplemented.

#ifndef VARVE_TENSOR_H_
#define VARVE_TENSOR_H_

#include <cstddef>
#include <cstdint>

#include "varve/sequence_id.h"

namespace varve {

// Numbers are those of the C ABI and are never reused.
enum class DType : int { kF32 = 0, kF16 = 1, kBF16 = 2 };
enum class Device : int { kCpu = 0, kCuda = 1 };

constexpr size_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// Rows [num_tokens, num_kv_heads, dim]. Strides count values, not bytes; 0 means dense.
struct RowsView {
  const void* data = nullptr;
  int num_tokens = 0;
  ptrdiff_t token_stride = 0;
  ptrdiff_t head_stride = 0;
  DType dtype = DType::kF32;
  Device device = Device::kCpu;

  // Requires dtype kF32.
  const float* f32() const { return static_cast<const float*>(data); }
};

// The queries of one sequence in one Attend. Inside a step they belong to the last num_queries
// tokens of the sequence's step; outside a step, to the last num_queries positions.
struct AttendRequest {
  SequenceId sequence;
  int num_queries = 1;
  // [num_queries, num_kv_heads * group_size, key_dim], after RoPE. Query heads h*group_size …
  // (h+1)*group_size-1 share KV head h. Strides count values, 0 means dense.
  const void* queries = nullptr;
  ptrdiff_t query_token_stride = 0;
  ptrdiff_t query_head_stride = 0;
  // [num_queries, num_kv_heads * group_size, value_dim]. A query that sees no row gives zeros.
  void* output = nullptr;
  ptrdiff_t output_token_stride = 0;
  ptrdiff_t output_head_stride = 0;
  // Optional: [num_queries, num_kv_heads * group_size] f32, log-sum-exp of the scaled scores.
  float* log_sum_exp = nullptr;
  DType query_dtype = DType::kF32;
  DType output_dtype = DType::kF32;
  Device device = Device::kCpu;  // of queries, output and log_sum_exp

  // Require kF32.
  const float* f32_queries() const { return static_cast<const float*>(queries); }
  float* f32_output() const { return static_cast<float*>(output); }
};

struct AttendOptions {
  float scale = 0.0f;     // 0: 1 / sqrt(key_dim)
  float soft_cap = 0.0f;  // > 0: scores become cap * tanh(score / cap)
  int64_t window = 0;     // > 0: the model's own sliding window, row-exact; also without causal
  bool causal = true;     // false: every query sees every row (cross attention)
};

// ggml's blocks of 32 values: an f16 scale and 32 (q8_0) or 16 (q4_0) bytes of codes.
enum class BlockFormat : int { kQ8_0 = 0, kQ4_0 = 1 };

// Rows as ggml stores them, [num_tokens, num_kv_heads, dim / 32] blocks of 34 or 18 bytes: a row of
// llama.cpp's K or V tensor is one token here.
struct BlockRowsView {
  const std::byte* data = nullptr;
  int num_tokens = 0;
  BlockFormat format = BlockFormat::kQ8_0;
  ptrdiff_t token_stride = 0;  // bytes; 0 means dense
};

}  // namespace varve

#endif  // VARVE_TENSOR_H_
