// Decode attention on the stored bytes of pages in device memory: one query per sequence, all
// sequences and heads of a layer in one call.
//
// All pages of the call are shared out evenly over blocks; a block works on pages of one (sequence,
// KV head), or of several behind one another, for all query heads of the group together. The last
// block of a head joins its parts by their log-sum-exp. A call is one launch on the caller's
// stream: it allocates nothing, copies nothing to the host and never waits, so it can be captured
// in a CUDA graph. The work space belongs to the caller; calls that may run at once need one each.
//
// Products are of f16 (bf16 pages: of bf16, in two parts), sums in f32. Queries are rounded to f16.

#ifndef VARVE_CUDA_DEVICE_ATTENTION_H_
#define VARVE_CUDA_DEVICE_ATTENTION_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device_pages.h"
#include "cuda/device_status.h"

namespace varve::cuda {

enum class TensorType : uint8_t { kF32, kF16, kBF16 };

// The centroids of product quantization for one layer; all in device memory. A group is a KV head
// or, if the stride is 0, shared by all. Rows begin at multiples of 16 bytes.
struct DeviceCodebook {
  const uint8_t* centroids = nullptr;  // [groups][dim][2^bits]; byte - 128 is the value
  const float* scales = nullptr;       // [groups][subspaces]
  const uint16_t* rotation = nullptr;  // [groups][dim][dim] f16, or null: rows are not turned
  const uint8_t* rows = nullptr;       // [groups][2^bits][dim]: WritePqRows, for attention
  const uint8_t* pair_rows = nullptr;  // as WritePairRows, where HasPairRows
  int64_t centroid_stride = 0;         // bytes from group to group, of rows, too
  int64_t scale_stride = 0;            // floats
  int64_t rotation_stride = 0;         // values
};

// What the choice of a launch depends on; ask once per device.
struct DeviceLimits {
  int multiprocessors = 0;
  size_t shared_per_multiprocessor = 0;  // bytes
  size_t shared_per_block = 0;
  // A kernel may start while the one before it ends: the device can, and kernels were compiled with
  // what waits for it.
  bool overlaps_launches = false;
};
// `device` is that of the calling thread.
DeviceStatus QueryDevice(int device, DeviceLimits* limits);

// Who takes a page: a warp all of it, or the warps of a block a tile of 16 tokens each. Small
// strips want the first, strips of f16 the second; t3 and t2 have no kernel for it.
enum class Tiling : uint8_t { kAuto, kPages, kTiles };

struct DeviceAttention {
  PageShape shape;
  int num_sequences = 0;
  int query_heads = 0;  // kv_heads * group, group <= 16

  // Page tables, in device memory: records of all sequences one after the other, and where those of
  // sequence i begin: [num_sequences + 1].
  const DevicePage* pages = nullptr;
  const int32_t* page_begin = nullptr;
  // Of the longest sequence, for the choice of a kernel and its blocks. More than it has is slow,
  // fewer is wrong.
  int max_pages = 0;
  // Bit r: some page has rung r as key rung, or as value rung. A page with another is an error that
  // shows as NaN in the output.
  uint32_t key_rungs = 0;
  uint32_t value_rungs = 0;
  // No page has floats in one part and codes in the other: there are faster kernels for that.
  bool pure_pages = false;
  DeviceCodebook key_codebook;
  DeviceCodebook value_codebook;

  TensorType query_type = TensorType::kF16;
  const void* queries = nullptr;  // [num_sequences, query_heads, head_dim]
  TensorType output_type = TensorType::kF16;
  void* output = nullptr;     // as queries; rows of sequences without a live row are 0
  float* lse = nullptr;       // [num_sequences, query_heads] natural logarithm, or null
  float* page_lse = nullptr;  // [pages of all sequences, query_heads], or null: what a page adds to
                              // the sum; its share of the mass is exp(page_lse - lse)
  float scale = 1.0f;         // of scores, 1 / sqrt(head_dim) mostly
  float soft_cap = 0.0f;      // 0: none

  Tiling tiling = Tiling::kAuto;
  // Blocks for each (sequence, KV head) on average, at most 64; 0: as many as run at once.
  int splits = 0;
};

inline constexpr uint32_t RungBit(DeviceRung rung) { return 1u << static_cast<int>(rung); }
inline constexpr int kMaxSplits = 64;

// How many blocks a call would have.
int ChooseBlocks(const DeviceAttention& call, const DeviceLimits& limits);

// Bytes of shared memory that a block of that call would have. The call fails if they are more than
// limits.shared_per_block: the least that its kernel needs is more.
size_t AttentionSharedBytes(const DeviceAttention& call, const DeviceLimits& limits);

// Bytes of work space for that call; the same for all lengths up to max_pages. Another max_pages
// may need more or less, a smaller one, too.
size_t AttentionWorkspaceBytes(const DeviceAttention& call, const DeviceLimits& limits);
// Its first bytes are counters, which are zero between calls: so many for so many sequences and
// query heads. Nothing else in it has to have a value before a call.
size_t AttentionCounterBytes(const DeviceAttention& call);
// Clears the first `bytes`. Once, before the first call that uses the work space, and again before
// one that has more counters or after something else was written there.
DeviceStatus InitAttentionWorkspace(void* workspace, size_t bytes, cudaStream_t stream);

// Launches the call. Fails before any launch if there is no kernel for it or the work space is too
// small.
DeviceStatus Attend(const DeviceAttention& call, const DeviceLimits& limits, void* workspace,
                    size_t workspace_bytes, cudaStream_t stream);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_DEVICE_ATTENTION_H_
