// Sign, exponent and mantissa of float elements as the exponent coder takes them apart; private to
// src/store.

#ifndef VARVE_STORE_FLOAT_BITS_H_
#define VARVE_STORE_FLOAT_BITS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/exponent_pairs.h"
#include "store/exponent_coder.h"

namespace varve::store {

constexpr size_t LaneBytes(LaneType lane) { return lane == LaneType::kF32 ? 4 : 2; }

template <LaneType kLane>
uint32_t LoadElement(const std::byte* from) {
  uint32_t bits = 0;
  std::memcpy(&bits, from, LaneBytes(kLane));
  return bits;
}

template <LaneType kLane>
constexpr uint32_t ExponentOf(uint32_t bits) {
  if constexpr (kLane == LaneType::kF16) return bits >> 10 & 0x1F;
  if constexpr (kLane == LaneType::kBF16) return bits >> 7 & 0xFF;
  return bits >> 23 & 0xFF;
}

// Calls visit(head, unit, element) for every pair of a plane, in order: the unit among those of all
// heads, the first element among those of the head.
template <class Visit>
void ForEachPair(const FloatPlane& plane, Visit&& visit) {
  const size_t units = static_cast<size_t>(PairUnits(plane.layout, plane.dim));
  const bool tiles = plane.layout == PairLayout::kTiles;
  const size_t outer = tiles ? static_cast<size_t>(plane.num_rows) / 16
                             : static_cast<size_t>(plane.dim / plane.chunk);
  const size_t middle = static_cast<size_t>(tiles ? plane.dim : plane.num_rows);
  const size_t inner = tiles ? 8 : static_cast<size_t>(plane.chunk) / 2;
  for (size_t head = 0; head < static_cast<size_t>(plane.num_heads); ++head) {
    size_t element = 0;
    for (size_t o = 0; o < outer; ++o) {
      for (size_t m = 0; m < middle; ++m) {
        const size_t first = head * units + (tiles ? m : o * inner);
        for (size_t i = 0; i < inner; ++i, element += 2) {
          visit(head, tiles ? first : first + i, element);
        }
      }
    }
  }
}

// Calls run.template operator()<kLane>().
template <class Run>
auto WithLane(LaneType lane, Run&& run) {
  if (lane == LaneType::kF16) return run.template operator()<LaneType::kF16>();
  if (lane == LaneType::kBF16) return run.template operator()<LaneType::kBF16>();
  return run.template operator()<LaneType::kF32>();
}

constexpr PairElement ElementOf(LaneType lane) {
  return lane == LaneType::kF16    ? PairElement::kF16
         : lane == LaneType::kBF16 ? PairElement::kBF16
                                   : PairElement::kExponent;
}

}  // namespace varve::store

#endif  // VARVE_STORE_FLOAT_BITS_H_
