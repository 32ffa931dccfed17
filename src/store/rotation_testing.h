// Pages of K as the first layer has them: rows of a few tokens, turned by RoPE; for tests only.

#ifndef VARVE_STORE_ROTATION_TESTING_H_
#define VARVE_STORE_ROTATION_TESTING_H_

#include <cmath>
#include <vector>

#include "kernels/rotated_rows.h"
#include "store/part_testing.h"

namespace varve::store {

struct KeyPage {
  TestPart part;
  int64_t first_position = 0;

  PartView view() const { return {part.shape, part.bytes.data(), 0, first_position}; }
};

inline std::vector<PartView> ViewsOf(const std::vector<KeyPage>& pages) {
  std::vector<PartView> views;
  for (const KeyPage& page : pages) views.push_back(page.view());
  return views;
}

// `words` different tokens in any order, from position 64 on; frequencies base^(-i / pairs).
inline std::vector<KeyPage> MakeKeyPages(const PartShape& shape, RotationOrder order, int count,
                                         int words, double base = 10000, uint64_t seed = 1) {
  const int dim = shape.head_dim, pairs = dim / 2, heads = shape.num_heads;
  TestRandom random(seed), tokens(5);
  std::vector<float> rows(static_cast<size_t>(words * heads * dim));
  for (float& value : rows) value = tokens.Gaussian();
  std::vector<KeyPage> pages;
  int64_t position = 64;
  for (int p = 0; p < count; ++p) {
    KeyPage& page = pages.emplace_back();
    page.part = {shape, std::vector<std::byte>(shape.Bytes())};
    page.first_position = position;
    for (int r = 0; r < shape.num_rows; ++r, ++position) {
      const int word = static_cast<int>(random.Bits() % static_cast<uint64_t>(words));
      for (int head = 0; head < heads; ++head) {
        const float* row = rows.data() + (word * heads + head) * dim;
        std::byte* strip = page.part.bytes.data() + static_cast<size_t>(head) * shape.StripBytes();
        for (int i = 0; i < pairs; ++i) {
          const bool halves = order == RotationOrder::kHalves;
          const int x = halves ? i : 2 * i, y = halves ? i + pairs : 2 * i + 1;
          const double angle =
              static_cast<double>(position) * std::pow(base, -static_cast<double>(i) / pairs);
          const double cos = std::cos(angle), sin = std::sin(angle);
          StoreLane(shape.lane, static_cast<float>(row[x] * cos - row[y] * sin),
                    strip + FloatOffset(shape, r, x));
          StoreLane(shape.lane, static_cast<float>(row[x] * sin + row[y] * cos),
                    strip + FloatOffset(shape, r, y));
        }
      }
    }
  }
  return pages;
}

}  // namespace varve::store

#endif  // VARVE_STORE_ROTATION_TESTING_H_
