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

// Where the pages of sequences begin. Of few sequences each lane reads one number at once: one
// after the other, each would wait for memory. All lanes of a warp.
class PageBegins {
 public:
  __device__ __forceinline__ PageBegins(const AttendParams& params, int lane)
      : begin_(params.call.page_begin), sequences_(params.call.num_sequences), lane_(lane) {
    if (few()) mine_ = static_cast<uint32_t>(__ldg(begin_ + min(lane, sequences_)));
  }
  __device__ __forceinline__ uint32_t Of(int sequence) const {
    return few() ? __shfl_sync(0xFFFFFFFFu, mine_, sequence)
                 : static_cast<uint32_t>(begin_[sequence]);
  }
  // The last one that begins at or before `at`, so one that has pages.
  template <class Number>
  __device__ __forceinline__ int Find(uint32_t heads, Number at) const {
    if (few()) return __popc(CountBefore(heads, at, mine_, lane_ < sequences_)) - 1;
    int low = 0, high = sequences_;  // in [low, high)
    while (high - low > 1) {
      const int step = (high - low + 31) / 32;
      const int place = low + lane_ * step;
      const bool there = place < high;
      const auto begin = static_cast<uint32_t>(there ? begin_[place] : 0);
      low += (__popc(CountBefore(heads, at, begin, there)) - 1) * step;
      high = min(low + step, high);
    }
    return low;
  }

 private:
  __device__ __forceinline__ bool few() const { return sequences_ < 32; }
  template <class Number>
  __device__ __forceinline__ static uint32_t CountBefore(uint32_t heads, Number at, uint32_t begin,
                                                         bool there) {
    return __ballot_sync(0xFFFFFFFFu, there && static_cast<Number>(heads) * begin <= at);
  }

  const int32_t* begin_;
  int sequences_;
  int lane_;
  uint32_t mine_ = 0;
};

// The segments of a block, one after the other; all lanes of a warp call. Keeps only how far it has
// come: registers are for pages.
class BlockShare {
 public:
  __device__ __forceinline__ bool Next(const AttendParams& params, int lane, Segment* segment) {
    return params.short_line != 0 ? NextOf<uint32_t>(params, lane, segment)
                                  : NextOf<uint64_t>(params, lane, segment);
  }

 private:
  // All pages times heads, and the blocks that have some. Number: of 32 bits where the line is
  // short (AttendParams::short_line), since a division then takes a tenth of the time.
  template <class Number>
  struct Line {
    Number total;
    uint32_t blocks;

    __device__ __forceinline__ explicit Line(Number all)
        : total(all), blocks(all < gridDim.x ? static_cast<uint32_t>(all) : gridDim.x) {}
    __device__ __forceinline__ Number StartOf(uint32_t block) const {
      return total * block / blocks;
    }
    __device__ __forceinline__ int BlockOf(Number at) const {
      return static_cast<int>(((at + 1) * blocks - 1) / total);
    }
  };

  template <class Number>
  __device__ __forceinline__ bool NextOf(const AttendParams& params, int lane, Segment* segment) {
    const auto heads = static_cast<uint32_t>(params.call.shape.kv_heads * params.head_chunks);
    const PageBegins begins(params, lane);
    const Line<Number> line(static_cast<Number>(heads) * begins.Of(params.call.num_sequences));
    if (blockIdx.x >= line.blocks) return false;
    const Number start = line.StartOf(blockIdx.x), end = line.StartOf(blockIdx.x + 1);
    const Number at = start + done_;
    if (at >= end) return false;
    const int sequence = begins.Find<Number>(heads, at);
    const uint32_t first = begins.Of(sequence);
    const uint32_t pages = begins.Of(sequence + 1) - first;
    const Number before = static_cast<Number>(heads) * first;
    const auto head = static_cast<uint32_t>((at - before) / pages);
    const Number from = before + static_cast<Number>(head) * pages;
    const Number to = from + pages;
    const Number until = to < end ? to : end;
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

  uint32_t done_ = 0;  // pages of this block
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BLOCK_SHARE_CUH_
