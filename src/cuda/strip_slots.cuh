// Strips on their way into shared memory. A *reader* is a warp that takes whole pages, or all warps
// of a block that take a tile of each page. It has a slot for K and one for V. As soon as the K
// strip of a page has been read, that of the next page is sent for, and likewise V: while one of
// them is worked on, the other is on its way. A strip that is larger than a slot is read where it
// lies.

#ifndef VARVE_CUDA_STRIP_SLOTS_CUH_
#define VARVE_CUDA_STRIP_SLOTS_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

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

// The pages of a reader, one after the other: those of a space that have a live row.
struct PageCursor {
  const DevicePage* pages;
  int space;
  int at;  // the page that is looked at next
  int step;
  int end;
  DevicePage upcoming;  // its record, which is on its way

  __device__ __forceinline__ void Start() {
    if (at < end) upcoming = LoadPage(pages + at);
  }
  __device__ __forceinline__ bool Take(DevicePage* page, int* index) {
    while (at < end) {
      *page = upcoming;
      *index = at;
      at += step;
      if (at < end) upcoming = LoadPage(pages + at);
      if (SpaceOf(page->value_rung) == space && (page->live[0] | page->live[1]) != 0) return true;
    }
    return false;
  }
};

// The slots of a reader. All lanes of the warp that sends call Send.
struct StripSlots {
  const AttendParams* params;
  uint64_t* barriers;  // of K and V
  std::byte* slots;    // [2][slot_bytes]
  int kv_head;

  __device__ __forceinline__ uint32_t BytesOf(const DevicePage& page, bool value) const {
    return value ? params->value_bytes[static_cast<int>(page.value_rung)]
                 : params->key_bytes[static_cast<int>(page.key_rung)];
  }
  __device__ __forceinline__ const std::byte* StripOf(const DevicePage& page, bool value) const {
    const uint32_t keys = BytesOf(page, false);
    return page.bytes + static_cast<size_t>(kv_head) * (keys + BytesOf(page, true)) +
           (value ? keys : 0);
  }
  __device__ __forceinline__ void Send(const DevicePage& page, bool value, int lane) const {
    const uint32_t bytes = BytesOf(page, value);
    if (bytes <= params->slot_bytes) {
      StartCopy(barriers + value, slots + (value ? params->slot_bytes : 0), StripOf(page, value),
                bytes, lane);
    } else {
      SkipCopy(barriers + value, lane);
    }
  }
  // The strip, once it is there.
  __device__ __forceinline__ const std::byte* Wait(const DevicePage& page, bool value,
                                                   uint32_t phase) const {
    WaitCopy(barriers + value, phase);
    return BytesOf(page, value) <= params->slot_bytes ? slots + (value ? params->slot_bytes : 0)
                                                      : StripOf(page, value);
  }
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_SLOTS_CUH_
