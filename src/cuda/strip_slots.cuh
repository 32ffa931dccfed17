// Strips on their way to a warp that takes pages of its own. It has a slot for K and one for V. The
// K strip of the next page is sent for as soon as that of this page has been read, and likewise V:
// while one is worked on, the other is on its way. A strip that is larger than a slot is read where
// it lies.

#ifndef VARVE_CUDA_STRIP_SLOTS_CUH_
#define VARVE_CUDA_STRIP_SLOTS_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/page_ring.cuh"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

__device__ __forceinline__ ulonglong2 LoadLive(const DevicePage* page) {
  const auto* words = reinterpret_cast<const unsigned long long*>(page);
  return {__ldg(words + 1), __ldg(words + 2)};
}

// A page of a warp, the same in all lanes.
struct PageHead {
  uint32_t bits;            // as those of PageEntry
  int index;                // of its record
  const std::byte* strips;  // K, V behind it
  uint32_t sizes;           // of K and V, in units of 16 bytes; not where one rung is all there is

  __device__ __forceinline__ uint32_t key_bytes() const { return (sizes & 0xFFFF) * 16; }
  __device__ __forceinline__ uint32_t value_bytes() const { return (sizes >> 16) * 16; }
  __device__ __forceinline__ DeviceRung key_rung() const { return PageEntry::KeyRung(bits); }
  __device__ __forceinline__ DeviceRung value_rung() const { return PageEntry::ValueRung(bits); }
};

// K and V are floats, too large for slots.
__device__ __forceinline__ bool IsLyingFloats(uint32_t bits) {
  return (bits & PageEntry::kKeysLie) != 0 && (bits & PageEntry::kValuesLie) != 0 &&
         IsFloat(PageEntry::KeyRung(bits)) && IsFloat(PageEntry::ValueRung(bits));
}

inline constexpr uint32_t kMetFloats = 1u << kNumSpaces;

// The pages of a warp, one after the other: those of a space, but for floats that do not fit. Each
// lane reads one of the next 32
// records, so that their latency is paid once.
struct PageWindow {
  const AttendParams* params;
  int kv_head;
  int first;  // record of lane 0
  int step;
  int end;
  uint32_t met = 0;   // spaces of the pages that this lane has seen
  uint32_t left = 0;  // lanes whose pages are still to come
  // This lane's page.
  const std::byte* strips = nullptr;
  uint32_t bits = 0;
  uint32_t sizes = 0;

  __device__ __forceinline__ void Load(int space, int lane) {
    const int page = first + lane * step;
    bool mine = false;
    if (page < end) {
      const PageRecord record(*params, page);
      bits = record.bits;
      sizes = record.key_bytes / 16 | record.value_bytes / 16 << 16;
      strips =
          record.bytes + static_cast<size_t>(kv_head) * (record.key_bytes + record.value_bytes);
      record.PrefetchLying(strips);
      const int of_page = SpaceOf(PageEntry::ValueRung(bits));
      const bool floats = IsLyingFloats(bits);  // are for WalkFloats
      mine = of_page == space && !floats;
      met |= floats ? kMetFloats : 1u << of_page;
    }
    left = __ballot_sync(0xFFFFFFFFu, mine);
  }
  // The next page, if there is one.
  template <bool kSizes>
  __device__ __forceinline__ bool Take(int space, int lane, PageHead* page) {
    while (left == 0) {
      first += 32 * step;
      if (first >= end) return false;
      Load(space, lane);
    }
    const int owner = __ffs(left) - 1;
    left &= left - 1;
    page->bits = __shfl_sync(0xFFFFFFFFu, bits, owner);
    page->index = first + owner * step;
    page->strips = reinterpret_cast<const std::byte*>(
        __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(strips), owner));
    if constexpr (kSizes) page->sizes = __shfl_sync(0xFFFFFFFFu, sizes, owner);
    return true;
  }
};

// The barriers of a warp's slots. All its lanes; a barrier of the block must follow.
__device__ __forceinline__ void InitSlots(uint64_t* barriers, int warp, int lane) {
  if (lane < 2) InitBarrier(barriers + 2 * warp + lane, 1);
  FenceCopies();
}

// The slots of a warp. Its pages are counted from the kernel's start. kOnly: the one rung that
// comes here, or 0.
template <int kOnly>
struct StripSlots {
  const AttendParams* params;
  std::byte* shared_bytes;
  uint64_t* barriers;  // [warps][K, V]
  int warp;
  int lane;

  __device__ __forceinline__ std::byte* Slot(bool value) const {
    return shared_bytes + (value ? params->scratch_offset : params->slots_offset) +
           static_cast<uint32_t>(warp) * params->slot_bytes;
  }
  // All lanes of the warp.
  __device__ __forceinline__ void Send(const PageHead& page, bool value) const {
    uint64_t* barrier = Barrier(value);
    if (kOnly == 0 && (page.bits & (value ? PageEntry::kValuesLie : PageEntry::kKeysLie)) != 0) {
      ArriveBarrier(barrier, lane);
      return;
    }
    // Sizes come with the page: parameters are not looked up by its rung here.
    const uint32_t key_bytes = kOnly != 0 ? params->key_bytes[kOnly] : page.key_bytes();
    const uint32_t value_bytes = kOnly != 0 ? params->value_bytes[kOnly] : page.value_bytes();
    StartCopy(barrier, Slot(value), page.strips + (value ? key_bytes : 0),
              value ? value_bytes : key_bytes, lane, 0);
  }
  // For a strip of page number `count`.
  __device__ __forceinline__ void Wait(bool value, uint32_t count) const {
    WaitCopy(Barrier(value), count % 2);
  }

 private:
  __device__ __forceinline__ uint64_t* Barrier(bool value) const {
    return barriers + 2 * warp + (value ? 1 : 0);
  }
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_SLOTS_CUH_
