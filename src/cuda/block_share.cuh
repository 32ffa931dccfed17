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

// The segments of a block, one after the other; all lanes of a warp call.
class BlockShare {
 public:
  __device__ __forceinline__ BlockShare(const AttendParams& params, int lane)
      : page_begin_(params.call.page_begin),
        sequences_(params.call.num_sequences),
        heads_(static_cast<uint32_t>(params.call.shape.kv_heads * params.head_chunks)),
        lane_(lane) {
    total_ = static_cast<uint64_t>(heads_) * static_cast<uint32_t>(page_begin_[sequences_]);
    blocks_ = total_ < gridDim.x ? static_cast<uint32_t>(total_) : gridDim.x;
    at_ = end_ = 0;
    if (blockIdx.x >= blocks_) return;
    at_ = start_ = Divide(total_ * blockIdx.x, blocks_);
    end_ = Divide(total_ * (blockIdx.x + 1), blocks_);
  }

  __device__ __forceinline__ bool Next(Segment* segment) {
    if (at_ >= end_) return false;
    const int sequence = FindSequence();
    const auto first = static_cast<uint32_t>(page_begin_[sequence]);
    const uint32_t pages = static_cast<uint32_t>(page_begin_[sequence + 1]) - first;
    const uint64_t line = static_cast<uint64_t>(heads_) * first;
    const auto head = static_cast<uint32_t>(Divide(at_ - line, pages));
    const uint64_t from = line + static_cast<uint64_t>(head) * pages;
    const uint64_t to = from + pages;
    const uint64_t until = to < end_ ? to : end_;
    segment->sequence = sequence;
    segment->head = static_cast<int>(head);
    segment->begin = static_cast<int>(first + static_cast<uint32_t>(at_ - from));
    segment->end = static_cast<int>(first + static_cast<uint32_t>(until - from));
    segment->starts_block = at_ == start_;
    segment->first_block = BlockOf(from);
    segment->num_blocks = BlockOf(to - 1) - segment->first_block + 1;
    segment->first_part =
        Divide(total_ * static_cast<uint32_t>(segment->first_block), blocks_) == from ? 0 : 1;
    at_ = until;
    return true;
  }

 private:
  // The last one that begins at or before `at_`, so one that has pages.
  __device__ __forceinline__ int FindSequence() const {
    int low = 0, high = sequences_;  // in [low, high)
    while (high - low > 1) {
      const int step = (high - low + 31) / 32;
      const int mine = low + lane_ * step;
      const bool before =
          mine < high &&
          static_cast<uint64_t>(heads_) * static_cast<uint32_t>(page_begin_[mine]) <= at_;
      const int count = __popc(__ballot_sync(0xFFFFFFFFu, before));
      low += (count - 1) * step;
      high = min(low + step, high);
    }
    return low;
  }
  __device__ __forceinline__ int BlockOf(uint64_t at) const {
    return static_cast<int>(Divide((at + 1) * blocks_ - 1, total_));
  }

  const int32_t* page_begin_;
  int sequences_;
  uint32_t heads_;
  int lane_;
  uint32_t blocks_;  // that have pages
  uint64_t total_;   // pages times heads
  uint64_t start_ = 0, at_, end_;
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BLOCK_SHARE_CUH_
