// KeyRotation: how the rows of K turn from token to token, found out from the rows themselves.
//
// Keys are stored after RoPE: pairs of channels turned by an angle that grows with the position. In
// the first layer nothing else depends on the position, so two rows of one token have pairs of the
// same lengths, and the angles between them tell how fast each pair turns. Nobody has to say which
// model it is; where rows do not repeat like that (every layer but the first) there is no rotation
// to be found. Functions are pure.

#ifndef VARVE_STORE_KEY_ROTATION_H_
#define VARVE_STORE_KEY_ROTATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/rotated_rows.h"
#include "store/part_image.h"

namespace varve::store {

struct KeyRotation {
  RotationOrder order = RotationOrder::kInterleaved;
  std::vector<uint32_t> turns;  // [head_dim / 2] 2^-32 turns a token

  bool operator==(const KeyRotation&) const = default;
};

// Rows of K that are looked at together.
struct KeyRows {
  PartShape shape;                 // of the parts; num_rows does not matter
  std::vector<uint16_t> words;     // [rows][num_heads][head_dim]
  std::vector<int64_t> positions;  // [rows]

  size_t width() const {
    return static_cast<size_t>(shape.num_heads) * static_cast<size_t>(shape.head_dim);
  }
  const uint16_t* row(size_t i) const { return words.data() + i * width(); }
};

// Whether parts like this one may have rows that turn: strips of K in f16 or bf16.
bool MayRotate(const PartShape& shape);

// The rows of samples whose positions are known.
KeyRows GatherKeyRows(std::span<const PartView> samples);

// Rows of one token, by position: indices into KeyRows, two at least.
using RowGroup = std::vector<size_t>;

// Rows with pairs of the same lengths.
std::vector<RowGroup> GroupRows(const KeyRows& rows, RotationOrder order);

// How rows of the same groups turn into each other. None if they do not, or if there are too few
// rows to tell; `min_repeats` is the share of rows that must have come before.
struct FoundRotation {
  KeyRotation rotation;
  std::vector<RowGroup> groups;
};
std::optional<FoundRotation> FindRotation(const KeyRows& rows, double min_repeats);

// Sum of squares of a row of 16-bit floats: what no rotation changes, but for rounding.
float RowEnergy(LaneType lane, std::span<const uint16_t> row);
// How far, relatively, the energies of two rows of one token may lie apart.
float EnergyTolerance(LaneType lane);

}  // namespace varve::store

#endif  // VARVE_STORE_KEY_ROTATION_H_
