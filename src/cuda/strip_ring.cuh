// Strips on their way into shared memory. A *reader* is a warp that takes whole pages, or all warps
// of a block that take a tile of each page. It reads strips in the order K, V of its first page, K,
// V of the next; a ring of slots holds those to come. When a strip has been read, the one that
// comes `slots` later is sent for into the same slot. A strip that is larger than a slot is read
// where it lies.

#ifndef VARVE_CUDA_STRIP_RING_CUH_
#define VARVE_CUDA_STRIP_RING_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

// A page that has been sent for; no_page where there was none left.
struct QueuedPage {
  DevicePage page;
  int index;
};
inline constexpr int kNoPage = -1;
inline constexpr int kQueuePages = 8;  // more than are on their way

__device__ __forceinline__ int SpaceOf(DeviceRung value_rung) {
  switch (value_rung) {
    case DeviceRung::kF16:
    case DeviceRung::kBF16:
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ4_0:
      return kSpacePlain;
    case DeviceRung::kPq:
      return kSpacePq;
    default:
      return kSpaceTurned;
  }
}

__device__ __forceinline__ DevicePage LoadPage(const DevicePage* page) {
  DevicePage copy;
  const uint4* from = reinterpret_cast<const uint4*>(page);
  uint4* to = reinterpret_cast<uint4*>(&copy);
  to[0] = __ldg(from);
  to[1] = __ldg(from + 1);
  return copy;
}

// One reader's ring. All lanes of the warp that sends call Send; every reading warp has a copy of
// the rest.
struct StripRing {
  const AttendParams* params;
  uint64_t* barriers;  // [slots]
  std::byte* slots;    // [slots][slot_bytes]
  QueuedPage* queue;   // [kQueuePages]
  int kv_head;
  int space;
  int lane;
  // The page that is looked at next, its record, and where pages end.
  int cursor;
  int step;
  int end;
  DevicePage upcoming;
  // The next strip to send: its page in the queue, and whether it is V.
  uint32_t sent_pages = 0;
  bool sends_value = false;

  __device__ __forceinline__ void Start(int begin) {
    cursor = begin;
    if (cursor < end) upcoming = LoadPage(params->call.pages + cursor);
  }

  __device__ __forceinline__ const std::byte* StripOf(const DevicePage& page, bool value) const {
    const uint32_t keys = params->key_bytes[static_cast<int>(page.key_rung)];
    const uint32_t values = params->value_bytes[static_cast<int>(page.value_rung)];
    return page.bytes + static_cast<size_t>(kv_head) * (keys + values) + (value ? keys : 0);
  }
  __device__ __forceinline__ uint32_t BytesOf(const DevicePage& page, bool value) const {
    return value ? params->value_bytes[static_cast<int>(page.value_rung)]
                 : params->key_bytes[static_cast<int>(page.key_rung)];
  }

  // The next page of the space that has a live row, into the queue.
  __device__ __forceinline__ void QueuePage() {
    QueuedPage next;
    next.index = kNoPage;
    while (next.index == kNoPage && cursor < end) {
      next.page = upcoming;
      const int index = cursor;
      cursor += step;
      if (cursor < end) upcoming = LoadPage(params->call.pages + cursor);
      if (SpaceOf(next.page.value_rung) != space) continue;
      if ((next.page.live[0] | next.page.live[1]) != 0) next.index = index;
    }
    if (lane == 0) queue[sent_pages % kQueuePages] = next;
    __syncwarp();
  }

  // Sends for the next strip, into a slot that nobody reads any more.
  __device__ __forceinline__ void Send(int slot) {
    if (!sends_value) QueuePage();
    const QueuedPage& queued = queue[sent_pages % kQueuePages];
    if (queued.index != kNoPage) {
      const uint32_t bytes = BytesOf(queued.page, sends_value);
      if (bytes <= params->slot_bytes) {
        StartCopy(barriers + slot, slots + slot * params->slot_bytes,
                  StripOf(queued.page, sends_value), bytes, lane);
      } else {
        SkipCopy(barriers + slot, lane);
      }
    }
    if (sends_value) ++sent_pages;
    sends_value = !sends_value;
  }
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_RING_CUH_
