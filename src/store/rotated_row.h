// One row of K, predicted from a row of the dictionary; private to src/store.

#ifndef VARVE_STORE_ROTATED_ROW_H_
#define VARVE_STORE_ROTATED_ROW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rotated_rows.h"
#include "store/key_rotation.h"
#include "store/part_image.h"

namespace varve::store {

// Whether turning the row of a bf16 part might overflow; rows of f16 cannot.
bool HasHugeValue(LaneType lane, std::span<const std::byte> row);

// Turns rows of all heads. Both arguments must outlive it. Not thread-safe.
class RotatedRow {
 public:
  RotatedRow(const PartShape& shape, const KeyRotation& rotation);

  // The row `distance` tokens after `row`, [num_heads][head_dim]; with what that misses,
  // [heads][dim].
  void Predict(std::span<const std::byte> row, uint32_t distance);
  void Restore(std::span<const std::byte> row, uint32_t distance, const uint16_t* misses,
               uint16_t* out) const;

  const std::vector<uint16_t>& words() const { return words_; }
  // How far `actual` lies from the prediction, in steps of the format, modulo 2^16.
  int Miss(size_t i, uint16_t actual) const {
    return static_cast<int16_t>(OrderedBits(actual) - OrderedBits(words_[i]));
  }
  // How many elements the prediction misses by less than 8.
  size_t CountNear(std::span<const uint16_t> actual) const;

 private:
  const PartShape& shape_;
  const KeyRotation& rotation_;
  const RotationKernels& kernels_;
  size_t width_;                 // elements of a row, all heads
  std::vector<uint16_t> words_;  // the prediction
};

}  // namespace varve::store

#endif  // VARVE_STORE_ROTATED_ROW_H_
