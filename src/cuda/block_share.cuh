// Which work a block has. All pages of a call, by sequence, KV head and page, are one line, cut
// into as many equal pieces as there are blocks: every block has the same number of pages, to one,
// whatever the lengths of the sequences. A piece falls into *segments*, one per head that it
// touches. Only the first and the last segment of a block can be a part of a head; what they sum up
// goes to two places of the work space, and the block that comes last joins a head's parts.

#ifndef VARVE_CUDA_BLOCK_SHARE_CUH_
#define VARVE_CUDA_BLOCK_SHARE_CUH_

#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

// A head is here one of kv_heads * head_chunks.
struct Segment {
  int sequence;
  int head;
  int begin;  // records of pages
  int end;
  int first_block;  // of the head's parts
  int num_blocks;   // 1: the block has all of it
  int first_part;   // where the first block's part lies: 0 or 1
  bool starts_block;

  // Places of parts in the work space, in the order of pages.
  __device__ __forceinline__ int64_t PartOf(int which) const {
    return 2 * static_cast<int64_t>(first_block + which) + (which == 0 ? first_part : 0);
  }
};

// Most numbers are small, and a division of 64 bits takes ten times as long.
__device__ __forceinline__ uint64_t Divide(uint64_t a, uint64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

// The segments of a block, one after the other; all lanes of a warp call. Keeps only how far it has
// come: registers are for pages.
class BlockShare {
 public:
  __device__ __forceinline__ bool Next(const AttendParams& params, int lane, Segment* segment) {
    const int32_t* page_begin = params.call.page_begin;
    const int sequences = params.call.num_sequences;
    const auto heads = static_cast<uint32_t>(params.call.shape.kv_heads * params.head_chunks);
    const Line line(static_cast<uint64_t>(heads) * static_cast<uint32_t>(page_begin[sequences]));
    if (blockIdx.x >= line.blocks) return false;
    const uint64_t start = line.StartOf(blockIdx.x), end = line.StartOf(blockIdx.x + 1);
    const uint64_t at = start + done_;
    if (at >= end) return false;
    const int sequence = FindSequence(page_begin, sequences, heads, at, lane);
    const auto first = static_cast<uint32_t>(page_begin[sequence]);
    const uint32_t pages = static_cast<uint32_t>(page_begin[sequence + 1]) - first;
    const uint64_t before = static_cast<uint64_t>(heads) * first;
    const auto head = static_cast<uint32_t>(Divide(at - before, pages));
    const uint64_t from = before + static_cast<uint64_t>(head) * pages;
    const uint64_t to = from + pages;
    const uint64_t until = to < end ? to : end;
    segment->sequence = sequence;
    segment->head = static_cast<int>(head);
    segment->begin = static_cast<int>(first + static_cast<uint32_t>(at - from));
    segment->end = static_cast<int>(first + static_cast<uint32_t>(until - from));
    segment->starts_block = done_ == 0;
    segment->first_block = line.BlockOf(from);
    segment->num_blocks = line.BlockOf(to - 1) - segment->first_block + 1;
    segment->first_part = line.StartOf(static_cast<uint32_t>(segment->first_block)) == from ? 0 : 1;
    done_ += static_cast<uint32_t>(until - at);
    return true;
  }

 private:
  // All pages times heads, and the blocks that have some.
  struct Line {
    uint64_t total;
    uint32_t blocks;

    __device__ __forceinline__ explicit Line(uint64_t all)
        : total(all), blocks(all < gridDim.x ? static_cast<uint32_t>(all) : gridDim.x) {}
    __device__ __forceinline__ uint64_t StartOf(uint32_t block) const {
      return Divide(total * block, blocks);
    }
    __device__ __forceinline__ int BlockOf(uint64_t at) const {
      return static_cast<int>(Divide((at + 1) * blocks - 1, total));
    }
  };

  // The last one that begins at or before `at`, so one that has pages.
  __device__ __forceinline__ static int FindSequence(const int32_t* page_begin, int sequences,
                                                     uint32_t heads, uint64_t at, int lane) {
    int low = 0, high = sequences;  // in [low, high)
    while (high - low > 1) {
      const int step = (high - low + 31) / 32;
      const int mine = low + lane * step;
      const bool before =
          mine < high &&
          static_cast<uint64_t>(heads) * static_cast<uint32_t>(page_begin[mine]) <= at;
      const int count = __popc(__ballot_sync(0xFFFFFFFFu, before));
      low += (count - 1) * step;
      high = min(low + step, high);
    }
    return low;
  }

  uint32_t done_ = 0;  // pages of this block
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BLOCK_SHARE_CUH_
