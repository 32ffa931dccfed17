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

// What is needed of a page before it is worked on. Three registers; the live rows are read later.
struct PageHead {
  const std::byte* bytes;
  uint32_t rungs;  // as they lie in the record: K in the lowest byte, V above

  __device__ __forceinline__ DeviceRung key_rung() const {
    return static_cast<DeviceRung>(rungs & 255);
  }
  __device__ __forceinline__ DeviceRung value_rung() const {
    return static_cast<DeviceRung>(rungs >> 8 & 255);
  }
};

__device__ __forceinline__ PageHead LoadHead(const DevicePage* page) {
  static_assert(offsetof(DevicePage, key_rung) == 24 && offsetof(DevicePage, value_rung) == 25);
  const auto* words = reinterpret_cast<const unsigned long long*>(page);
  return {reinterpret_cast<const std::byte*>(__ldg(words)),
          static_cast<uint32_t>(__ldg(words + 3))};
}

__device__ __forceinline__ ulonglong2 LoadLive(const DevicePage* page) {
  const auto* words = reinterpret_cast<const unsigned long long*>(page);
  return {__ldg(words + 1), __ldg(words + 2)};
}

// The pages of a reader, one after the other: those of a space.
struct PageCursor {
  const DevicePage* pages;
  int space;
  int at;  // the page that is looked at next
  int step;
  int end;
  PageHead upcoming;  // its head, which is on its way

  __device__ __forceinline__ void Start() {
    if (at < end) upcoming = LoadHead(pages + at);
  }
  __device__ __forceinline__ bool Take(PageHead* page, int* index) {
    while (at < end) {
      *page = upcoming;
      *index = at;
      at += step;
      if (at < end) upcoming = LoadHead(pages + at);
      if (SpaceOf(page->value_rung()) == space) return true;
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

  __device__ __forceinline__ uint32_t BytesOf(const PageHead& page, bool value) const {
    return value ? params->value_bytes[static_cast<int>(page.value_rung())]
                 : params->key_bytes[static_cast<int>(page.key_rung())];
  }
  __device__ __forceinline__ const std::byte* StripOf(const PageHead& page, bool value) const {
    const uint32_t keys = BytesOf(page, false);
    return page.bytes + static_cast<size_t>(kv_head) * (keys + BytesOf(page, true)) +
           (value ? keys : 0);
  }
  __device__ __forceinline__ void Send(const PageHead& page, bool value, int lane) const {
    const uint32_t bytes = BytesOf(page, value);
    if (bytes <= params->slot_bytes) {
      StartCopy(barriers + value, slots + (value ? params->slot_bytes : 0), StripOf(page, value),
                bytes, lane);
    } else {
      SkipCopy(barriers + value, lane);
    }
  }
  // The strip, once it is there.
  __device__ __forceinline__ const std::byte* Wait(const PageHead& page, bool value,
                                                   uint32_t phase) const {
    WaitCopy(barriers + value, phase);
    return BytesOf(page, value) <= params->slot_bytes ? slots + (value ? params->slot_bytes : 0)
                                                      : StripOf(page, value);
  }
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_SLOTS_CUH_
