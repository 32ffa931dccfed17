// Parts for the tests of src/store: rows that look like keys and values, and odd ones. Not part of
// the library.

#ifndef VARVE_STORE_PART_TESTING_H_
#define VARVE_STORE_PART_TESTING_H_

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_testing.h"
#include "store/part_image.h"

namespace varve::store {

// Strips side by side, and the view of them.
struct TestPart {
  PartShape shape;
  std::vector<std::byte> bytes;

  PartView view() const { return {shape, bytes.data(), 0}; }
};

inline void StoreLane(LaneType lane, float value, std::byte* to) {
  if (lane == LaneType::kF32) {
    std::memcpy(to, &value, 4);
    return;
  }
  const uint16_t bits = lane == LaneType::kF16 ? F32ToF16(value) : F32ToBF16(value);
  std::memcpy(to, &bits, 2);
}

// Gaussian rows with a scale and a mean per channel, as KV rows have them; the codes of blocks are
// noise.
inline TestPart MakePart(const PartShape& shape, uint64_t seed) {
  TestPart part = {shape, std::vector<std::byte>(shape.Bytes())};
  TestRandom random(seed), channels(7);
  if (!IsFloat(shape.lane)) {
    for (std::byte& byte : part.bytes) byte = static_cast<std::byte>(random.Bits());
    const size_t scales = static_cast<size_t>(shape.num_rows * shape.head_dim / 32);
    for (int head = 0; head < shape.num_heads; ++head) {
      std::byte* strip = part.bytes.data() + static_cast<size_t>(head) * shape.StripBytes();
      for (size_t i = 0; i < scales; ++i) {
        StoreLane(LaneType::kF16, 0.01f * (1.0f + random.Uniform()), strip + 2 * i);
      }
    }
    return part;
  }
  for (int head = 0; head < shape.num_heads; ++head) {
    std::byte* strip = part.bytes.data() + static_cast<size_t>(head) * shape.StripBytes();
    for (int d = 0; d < shape.head_dim; ++d) {
      const float scale = std::exp(channels.Gaussian()), mean = scale * channels.Gaussian();
      for (int row = 0; row < shape.num_rows; ++row) {
        StoreLane(shape.lane, mean + scale * random.Gaussian(), strip + FloatOffset(shape, row, d));
      }
    }
  }
  return part;
}

// Bits of a linear congruence: nothing to gain.
inline TestPart MakeNoise(const PartShape& shape, uint64_t seed) {
  TestPart part = {shape, std::vector<std::byte>(shape.Bytes())};
  TestRandom random(seed);
  for (std::byte& byte : part.bytes) byte = static_cast<std::byte>(random.Bits() >> 24);
  return part;
}

// All shapes of one kind that a test should see, small ones.
inline std::vector<PartShape> TestShapes() {
  std::vector<PartShape> shapes;
  for (const LaneType lane : {LaneType::kF32, LaneType::kF16, LaneType::kBF16}) {
    for (const int dim : {16, 48, 64, 80, 128, 192, 256}) {
      shapes.push_back({lane, PartLayout::kKey, 2, 64, dim});
      shapes.push_back({lane, PartLayout::kValue, 2, 64, dim});
    }
    for (const int rows : {1, 2, 3, 5, 31, 33, 63, 127}) {
      shapes.push_back({lane, PartLayout::kValue, 1, rows, 64});
      shapes.push_back({lane, PartLayout::kRows, 3, rows, 40});
    }
    shapes.push_back({lane, PartLayout::kRows, 3, 17, 33});  // no pairs
    shapes.push_back({lane, PartLayout::kRows, 1, 1, 1});
    shapes.push_back({lane, PartLayout::kKey, 5, 16, 32});
    shapes.push_back({lane, PartLayout::kKey, 1, 128, 128});
  }
  for (const LaneType lane : {LaneType::kQ8, LaneType::kQ4}) {
    for (const int dim : {32, 64, 128}) {
      for (const int rows : {16, 64, 128}) {
        shapes.push_back({lane, PartLayout::kKey, 3, rows, dim});
        shapes.push_back({lane, PartLayout::kValue, 3, rows, dim});
      }
    }
    shapes.push_back({lane, PartLayout::kValue, 1, 4, 32});  // no tiles
  }
  return shapes;
}

inline std::string ShapeText(const PartShape& shape) {
  return "lane " + std::to_string(static_cast<int>(shape.lane)) + " layout " +
         std::to_string(static_cast<int>(shape.layout)) + ": " + std::to_string(shape.num_heads) +
         " x " + std::to_string(shape.num_rows) + " x " + std::to_string(shape.head_dim);
}

}  // namespace varve::store

#endif  // VARVE_STORE_PART_TESTING_H_
