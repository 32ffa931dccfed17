// What a page costs in the pool, by its size alone: for the pool itself, for plans that are weighed
// before there is one, and for checks of room.

#ifndef VARVE_BASE_SLOT_BYTES_H_
#define VARVE_BASE_SLOT_BYTES_H_

#include <cstddef>

#include "base/align.h"

namespace varve {

inline constexpr size_t kSlotGranule = 256;
inline constexpr size_t kSystemPageBytes = 4096;

// Bytes that a page of `bytes` takes in the pool: what it costs where there are many of its size.
constexpr size_t SlotBytes(size_t bytes) { return AlignUp(bytes, kSlotGranule); }

// Slots of one size begin at multiples of this in their system pages.
constexpr size_t SlotAlignment(size_t slot_bytes) {
  const size_t lowest_bit = slot_bytes & (~slot_bytes + 1);
  return lowest_bit < kSystemPageBytes ? lowest_bit : kSystemPageBytes;
}

// The most by which bytes_held() may grow when a slot for `bytes` is taken: all system pages that
// it touches are new, and it begins as late in the first one as it can. SlotBytes(bytes) where that
// is a multiple of 4 KiB, less than 8 KiB more where not.
constexpr size_t MostSlotBytes(size_t bytes) {
  const size_t slot = SlotBytes(bytes);
  const size_t latest = kSystemPageBytes - SlotAlignment(slot);
  return AlignUp(latest + slot, kSystemPageBytes);
}

// The least by which bytes_held() without the warm slots falls when it is given back: neighbours
// keep the first and the last system page.
constexpr size_t LeastSlotBytes(size_t bytes) {
  const size_t slot = SlotBytes(bytes);
  const size_t pages = (slot + SlotAlignment(slot)) / kSystemPageBytes;
  return pages > 1 ? (pages - 1) * kSystemPageBytes : 0;
}

}  // namespace varve

#endif  // VARVE_BASE_SLOT_BYTES_H_
