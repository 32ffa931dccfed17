#include "store/rotated_row.h"

#include <cstring>

namespace varve::store {

bool HasHugeValue(LaneType lane, std::span<const std::byte> row) {
  if (lane != LaneType::kBF16) return false;
  for (size_t i = 0; i + 1 < row.size(); i += 2) {
    uint16_t bits;
    std::memcpy(&bits, row.data() + i, 2);
    if ((bits >> 7 & 0xFF) >= 127 + 122) return true;
  }
  return false;
}

RotatedRow::RotatedRow(const PartShape& shape, const KeyRotation& rotation)
    : shape_(shape),
      rotation_(rotation),
      kernels_(ActiveRotationKernels()),
      width_(static_cast<size_t>(shape.num_heads) * static_cast<size_t>(shape.head_dim)) {}

void RotatedRow::Predict(std::span<const std::byte> row, uint32_t distance) {
  words_.resize(width_);
  Restore(row, distance, nullptr, words_.data());
}

void RotatedRow::Restore(std::span<const std::byte> row, uint32_t distance, const uint16_t* misses,
                         uint16_t* out) const {
  RotateRowArgs args;
  args.bf16 = shape_.lane == LaneType::kBF16;
  args.order = rotation_.order;
  args.dim = shape_.head_dim;
  args.turns = rotation_.turns.data();
  args.distance = distance;
  for (size_t at = 0; at < width_; at += static_cast<size_t>(shape_.head_dim)) {
    args.row = reinterpret_cast<const uint16_t*>(row.data()) + at;
    args.misses = misses != nullptr ? misses + at : nullptr;
    args.out = out + at;
    kernels_.rotate_row(args);
  }
}

size_t RotatedRow::CountNear(std::span<const uint16_t> actual) const {
  size_t near = 0;
  for (size_t i = 0; i < words_.size(); ++i) {
    const int miss = Miss(i, actual[i]);
    near += miss > -8 && miss < 8 ? 1 : 0;
  }
  return near;
}

}  // namespace varve::store
