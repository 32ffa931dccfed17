// Strips on their way into shared memory. A *reader* is a warp. It takes whole pages (small strips)
// or its tile of 16 in every 64 tokens of all pages of the block (strips of floats). It has slots
// of its own for K and V: as soon as one has been read, the next strip or tile is sent for. So
// while one is worked on, others are on their way, and no warp waits for another.

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

  __device__ __forceinline__ void Start(const DevicePage* records, int of_space, int first, int by,
                                        int last) {
    pages = records;
    space = of_space;
    at = first;
    step = by;
    end = last;
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

// Where the strips of a page lie.
struct StripPlaces {
  const AttendParams* params;
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
};

// Slots for whole strips: one for K and one for V. A strip that is larger is read where it lies.
// All lanes of the warp call Send.
struct StripSlots {
  StripPlaces places;
  uint64_t* barriers;  // of K and V
  std::byte* slots;    // [2][slot_bytes]

  __device__ __forceinline__ uint32_t slot_bytes() const { return places.params->slot_bytes; }
  __device__ __forceinline__ void Send(const PageHead& page, bool value, int lane) const {
    const uint32_t bytes = places.BytesOf(page, value);
    if (bytes <= slot_bytes()) {
      ExpectCopies(barriers + value, bytes, lane);
      StartCopy(barriers + value, slots + (value ? slot_bytes() : 0), places.StripOf(page, value),
                bytes, lane);
      EndCopies(barriers + value, lane);
    } else {
      SkipCopy(barriers + value, lane);
    }
  }
  // The strip, once it is there.
  __device__ __forceinline__ const std::byte* Wait(const PageHead& page, bool value,
                                                   uint32_t phase) const {
    WaitCopy(barriers + value, phase);
    return places.BytesOf(page, value) <= slot_bytes() ? slots + (value ? slot_bytes() : 0)
                                                       : places.StripOf(page, value);
  }
};

// Slots for a warp's tiles of float strips: rings for K and V. K of a tile is one piece, V a piece
// per block of 32 channels. In a slot the tiles of the page's 64 tokens lie one after the other,
// each as in a page of 16 tokens.
template <int D>
struct TileSlots {
  static constexpr int kTileBytes = D * 32;
  static constexpr int kBlockBytes = 16 * 64;  // of V: 16 tokens of 32 channels

  StripPlaces places;
  uint64_t* barriers;  // [ring_slots][K, V]
  std::byte* slots;    // [ring_slots][K, V][slot_bytes]; null: tiles are read where they lie
  int tile;            // of each 64 tokens

  __device__ __forceinline__ std::byte* Slot(int slot, bool value) const {
    return slots + (2 * slot + value) * places.params->slot_bytes;
  }
  __device__ __forceinline__ void Send(const PageHead& page, bool value, int slot, int lane) const {
    uint64_t* barrier = barriers + 2 * slot + value;
    if (slots == nullptr) return SkipCopy(barrier, lane);
    const int page_tokens = places.params->call.shape.page_tokens;
    const std::byte* strip = places.StripOf(page, value);
    ExpectCopies(barrier, static_cast<uint32_t>(page_tokens / 64 * kTileBytes), lane);
    for (int chunk = 0; chunk < page_tokens / 64; ++chunk) {
      std::byte* to = Slot(slot, value) + chunk * kTileBytes;
      if (value) {
#pragma unroll
        for (int block = 0; block < D / 32; ++block) {
          StartCopy(barrier, to + block * kBlockBytes,
                    strip + (block * (page_tokens / 16) + 4 * chunk + tile) * kBlockBytes,
                    kBlockBytes, lane);
        }
      } else {
        StartCopy(barrier, to, strip + (4 * chunk + tile) * kTileBytes, kTileBytes, lane);
      }
    }
    EndCopies(barrier, lane);
  }
  // Tile of a chunk of 64 tokens, once it is there: as tile 0 of a strip of *page_tokens tokens.
  __device__ __forceinline__ const std::byte* Wait(const PageHead& page, bool value, int slot,
                                                   uint32_t phase, int chunk,
                                                   int* page_tokens) const {
    WaitCopy(barriers + 2 * slot + value, phase);
    if (slots != nullptr) {
      *page_tokens = 16;
      return Slot(slot, value) + chunk * kTileBytes;
    }
    *page_tokens = places.params->call.shape.page_tokens;
    return places.StripOf(page, value) + (4 * chunk + tile) * (value ? kBlockBytes : kTileBytes);
  }
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_STRIP_SLOTS_CUH_
