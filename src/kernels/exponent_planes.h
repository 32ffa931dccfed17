// Decoding of exponent planes: the quick lossless format of 16-bit float strips.
//
// Exponents have a prefix code that needs no table. Its bits lie in planes, a bit per element, and
// 64 elements are decoded at once, by masks. The code is a ladder of levels with one or two bits
// each. An element whose bits in a level are all set goes on to the next one; only those elements
// have bits there, so the planes of all levels but the first are closed up, and are spread out
// again by the mask of the elements that came so far. What leaves the last level is a patch: its
// exponent is listed. docs/format/packed.md has the byte tables.
//
// One function per instruction set, bit for bit the same; pure, may run concurrently.

#ifndef VARVE_KERNELS_EXPONENT_PLANES_H_
#define VARVE_KERNELS_EXPONENT_PLANES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/exponent_pairs.h"

namespace varve {

// What a level adds to the value of an element: `enter` when it comes there, add[b] if bit b is
// set.
struct PlaneLevel {
  int bits;
  int enter;
  int add[2];
};
inline constexpr int kMaxPlaneLevels = 4;
struct PlaneLadder {
  int num_levels;
  PlaneLevel levels[kMaxPlaneLevels];
};
// base + (0, -1, -2 | -3 | -4, -5, +1 | -6, -7, -8 | patch): within 0.15 bits of the entropy on
// rows of K and V.
inline constexpr PlaneLadder kExponentLadder = {
    4, {{2, 0, {-1, -2}}, {1, 0, {-1, 0}}, {2, 0, {-1, 5}}, {2, -6, {-1, -2}}}};
// base + (0 | 1, -1, 2 | -2, 3, -3 | patch): what a turned row of K misses.
inline constexpr PlaneLadder kMissLadder = {
    3, {{1, 0, {1, 0}}, {2, 0, {-2, 1}}, {2, -2, {5, -1}}, {0, 0, {0, 0}}}};

// kExponent stands for misses here: bytes, decoded to uint16_t.
constexpr const PlaneLadder& LadderOf(PairElement element) {
  return element == PairElement::kExponent ? kMissLadder : kExponentLadder;
}

// The base of all misses.
inline constexpr uint8_t kMissBase = 128;

inline constexpr size_t kPlaneElements = 64;  // of a block
// A block: the raw bits of 64 elements (PairRawBlockBytes), then the planes of the first level.
constexpr size_t PlaneBlockBytes(PairElement element) {
  return PairRawBlockBytes(element, kPlaneElements) +
         static_cast<size_t>(LadderOf(element).levels[0].bits) * kPlaneElements / 8;
}
// Bytes past a level that a decoder may read; their content does not matter.
inline constexpr size_t kPlaneReadSlack = 160;

struct PlaneDecodeArgs {
  PairElement element = PairElement::kF16;
  PairLayout layout = PairLayout::kTiles;
  int num_heads = 0;
  int num_rows = 0;
  int dim = 0;
  int chunk = 0;                    // kChunks
  const uint8_t* bases = nullptr;   // [num_heads, dim]; f16: up to 63; kExponent: none
  const uint8_t* blocks = nullptr;  // of all heads
  const uint8_t* levels[kMaxPlaneLevels - 1] = {};  // closed planes of the levels from the second
  size_t level_bytes[kMaxPlaneLevels - 1] = {};     // on, block by block; slack behind each
  const uint8_t* patches = nullptr;  // [num_patches] exponents, in order; f16: up to 31
  size_t num_patches = 0;
  std::byte* out = nullptr;  // element (head, i) at head * head_stride + 2 * i
  size_t head_stride = 0;    // bytes, even
};

// Whether elements of such a strip fill blocks that have their channels in one order.
constexpr bool HasPlanes(PairLayout layout, int num_rows, int dim, int chunk) {
  constexpr int kBlock = static_cast<int>(kPlaneElements);
  if (layout == PairLayout::kTiles) return num_rows % 16 == 0 && dim % 4 == 0;
  return chunk > 0 && (kBlock % chunk == 0 || chunk % kBlock == 0) &&
         num_rows * chunk % kBlock == 0;
}
// The channel of a head's element.
constexpr size_t PlaneChannel(PairLayout layout, int num_rows, int dim, int chunk, size_t element) {
  if (layout == PairLayout::kTiles) return element / 16 % static_cast<size_t>(dim);
  const size_t run = static_cast<size_t>(chunk);
  return element / (run * static_cast<size_t>(num_rows)) * run + element % run;
}

// One implementation; `name` is that of the kernel table that it belongs to.
struct PlaneKernels {
  const char* name;
  // The shape must have planes. False if no encoder made the stream: it ends early, or something is
  // left over. Writes only the elements of all heads.
  bool (*decode)(const PlaneDecodeArgs&);
};

// Runs the implementation that belongs to ActiveKernels().
bool DecodePlanes(const PlaneDecodeArgs& args);

// Scalar first, best last, named as those of AvailableKernels().
std::span<const PlaneKernels* const> AvailablePlaneKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_EXPONENT_PLANES_H_
