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

__device__ __forceinline__ ulonglong2 LoadLive(const DevicePage* page) {
  const auto* words = reinterpret_cast<const unsigned long long*>(page);
  return {__ldg(words + 1), __ldg(words + 2)};
}

// A page of a reader, the same in all lanes.
struct PageHead {
  static constexpr uint32_t kFull = 1u << 31;                            // all rows are live
  static constexpr uint32_t kKeysLie = 1u << 30, kValuesLie = 1u << 29;  // are read where they lie

  uint32_t bits;  // rungs as they lie in the record, K in the lowest byte, and flags
  int index;      // of its record
  int owner;      // the lane that has its place

  __device__ __forceinline__ DeviceRung key_rung() const {
    return static_cast<DeviceRung>(bits & 255);
  }
  __device__ __forceinline__ DeviceRung value_rung() const {
    return static_cast<DeviceRung>(bits >> 8 & 255);
  }
};

__device__ __forceinline__ bool IsFloatRung(DeviceRung rung) {
  return rung == DeviceRung::kF16 || rung == DeviceRung::kBF16;
}
// K and V are floats, too large for slots.
__device__ __forceinline__ bool IsLyingFloats(uint32_t bits) {
  const PageHead page = {bits, 0, 0};
  return (bits & PageHead::kKeysLie) != 0 && (bits & PageHead::kValuesLie) != 0 &&
         IsFloatRung(page.key_rung()) && IsFloatRung(page.value_rung());
}

// The pages of a reader, one after the other: those of a space. Each lane reads one of the next 32
// records, so that their latency is paid once and the lane that sends a strip has its place.
struct PageWindow {
  const AttendParams* params;
  int kv_head;
  int first;  // record of lane 0
  int step;
  int end;
  bool leaves_floats;       // pages of floats that are read where they lie are another's
  bool met_floats = false;  // this lane has seen one
  uint32_t left = 0;        // lanes whose pages are still to come
  // This lane's page.
  const std::byte* strips = nullptr;  // K, V behind it
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  uint32_t bits = 0;

  __device__ __forceinline__ void Load(int space, int lane) {
    static_assert(offsetof(DevicePage, key_rung) == 24 && offsetof(DevicePage, value_rung) == 25);
    const int page = first + lane * step;
    bool mine = false;
    if (page < end) {
      const auto* record = reinterpret_cast<const ulonglong2*>(params->call.pages + page);
      const ulonglong2 low = __ldg(record), high = __ldg(record + 1);
      const auto rungs = static_cast<uint32_t>(high.y) & 0xFFFF;
      key_bytes = params->key_bytes[rungs & 255];
      value_bytes = params->value_bytes[rungs >> 8];
      strips = reinterpret_cast<const std::byte*>(low.x) +
               static_cast<size_t>(kv_head) * (key_bytes + value_bytes);
      const bool full = low.y == ~0ull && (params->call.shape.page_tokens == 64 || high.x == ~0ull);
      bits = rungs | (full ? PageHead::kFull : 0) |
             (key_bytes > params->slot_bytes ? PageHead::kKeysLie : 0) |
             (value_bytes > params->slot_bytes ? PageHead::kValuesLie : 0);
      if ((bits & PageHead::kKeysLie) != 0) Prefetch(strips, key_bytes);
      if ((bits & PageHead::kValuesLie) != 0) Prefetch(strips + key_bytes, value_bytes);
      mine = SpaceOf(static_cast<DeviceRung>(rungs >> 8)) == space;
      if (leaves_floats && mine && IsLyingFloats(bits)) {
        mine = false;
        met_floats = true;
      }
    }
    left = __ballot_sync(0xFFFFFFFFu, mine);
  }
  // The next page, if there is one. What lanes have of it stays until the next call.
  __device__ __forceinline__ bool Take(int space, int lane, PageHead* page) {
    while (left == 0) {
      first += 32 * step;
      if (first >= end) return false;
      Load(space, lane);
    }
    page->owner = __ffs(left) - 1;
    left &= left - 1;
    page->bits = __shfl_sync(0xFFFFFFFFu, bits, page->owner);
    page->index = first + page->owner * step;
    return true;
  }
  // Where the strips of that page lie, in all lanes.
  __device__ __forceinline__ const std::byte* PlaceOf(const PageHead& page, bool value) const {
    const std::byte* mine = strips + (value ? key_bytes : 0);
    return reinterpret_cast<const std::byte*>(
        __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(mine), page.owner));
  }
};

// The slots of a reader.
struct StripSlots {
  uint64_t* barriers;  // of K and V
  std::byte* slots[2];

  // All lanes of the warp that sends.
  __device__ __forceinline__ void Send(const PageWindow& window, const PageHead& page, bool value,
                                       int lane) const {
    if ((page.bits & (value ? PageHead::kValuesLie : PageHead::kKeysLie)) != 0) {
      SkipCopy(barriers + value, lane);
      return;
    }
    StartCopy(barriers + value, slots[value], window.strips + (value ? window.key_bytes : 0),
              value ? window.value_bytes : window.key_bytes, lane, page.owner);
  }
  // The strip, once it is there.
  __device__ __forceinline__ const std::byte* Wait(bool value, uint32_t phase) const {
    WaitCopy(barriers + value, phase);
    return slots[value];
  }
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_SLOTS_CUH_
