#include "kernels/rotated_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_testing.h"

namespace varve {
namespace rotated_rows_kernels_test {

struct Row {
  std::vector<uint16_t> words, misses;
  std::vector<uint32_t> turns;

  Row(int dim, bool bf16, uint64_t seed) {
    TestRandom random(seed);
    for (int i = 0; i < dim; ++i) {
      const float value = random.Gaussian();
      words.push_back(bf16 ? F32ToBF16(value) : F32ToF16(value));
      misses.push_back(static_cast<uint16_t>(kRotationMissBias - 3 + random.Bits() % 7));
    }
    for (int i = 0; i < dim / 2; ++i)
      turns.push_back(static_cast<uint32_t>(random.Bits()) >> i % 30);
  }
  std::vector<uint16_t> Turn(const RotationKernels& kernels, RotationOrder order, bool bf16,
                             uint32_t distance, bool with_misses) const {
    std::vector<uint16_t> out(words.size());
    RotateRowArgs args;
    args.bf16 = bf16;
    args.order = order;
    args.dim = static_cast<int>(words.size());
    args.row = words.data();
    args.turns = turns.data();
    args.distance = distance;
    args.misses = with_misses ? misses.data() : nullptr;
    args.out = out.data();
    kernels.rotate_row(args);
    return out;
  }
};

TEST(RotatedRowKernels, AgreeBitForBit) {
  for (const RotationKernels* table : AvailableRotationKernels()) {
    for (const int dim : {16, 32, 48, 64, 80, 96, 128, 256}) {
      for (int trial = 0; trial < 64; ++trial) {
        const bool bf16 = trial % 2 == 1;
        const RotationOrder order =
            trial % 4 < 2 ? RotationOrder::kInterleaved : RotationOrder::kHalves;
        const Row row(dim, bf16, static_cast<uint64_t>(trial));
        const uint32_t distance = static_cast<uint32_t>(trial) * 2654435761u;
        EXPECT_EQ(row.Turn(*table, order, bf16, distance, trial % 3 != 0),
                  row.Turn(*AvailableRotationKernels()[0], order, bf16, distance, trial % 3 != 0))
            << table->name << " " << dim;
      }
    }
  }
}

TEST(RotatedRowKernels, TurnByTheAngle) {
  const int dim = 64;
  for (const RotationOrder order : {RotationOrder::kInterleaved, RotationOrder::kHalves}) {
    for (const uint32_t distance : {0u, 1u, 1000u, 0u - 77u}) {
      const Row row(dim, false, distance);
      const std::vector<uint16_t> out =
          row.Turn(ActiveRotationKernels(), order, false, distance, false);
      for (int i = 0; i < dim / 2; ++i) {
        const bool halves = order == RotationOrder::kHalves;
        const size_t x = static_cast<size_t>(halves ? i : 2 * i);
        const size_t y = static_cast<size_t>(halves ? i + dim / 2 : 2 * i + 1);
        const double angle = static_cast<double>(row.turns[static_cast<size_t>(i)] * distance) /
                             0x1p32 * 2 * std::numbers::pi;
        const double a = F16ToF32(row.words[x]), b = F16ToF32(row.words[y]);
        const double size = std::hypot(a, b);
        EXPECT_NEAR(F16ToF32(out[x]), a * std::cos(angle) - b * std::sin(angle), size * 0x1p-10);
        EXPECT_NEAR(F16ToF32(out[y]), a * std::sin(angle) + b * std::cos(angle), size * 0x1p-10);
      }
      if (distance == 0) {
        EXPECT_EQ(out, row.words);
      }
    }
  }
}

TEST(RotatedRowKernels, OrderedBitsFollowTheValues) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const uint16_t ordered = OrderedBits(static_cast<uint16_t>(bits));
    EXPECT_EQ(OrderedBits(ordered), bits);
  }
  const auto rank = [](float value) { return static_cast<int16_t>(OrderedBits(F32ToF16(value))); };
  EXPECT_EQ(rank(0.0f) - rank(-0.0f), 1);
  EXPECT_LT(rank(-2.0f), rank(-1.0f));
  EXPECT_LT(rank(-1.0f), rank(0.5f));
  EXPECT_EQ(rank(1.0f) - rank(1.0f - 0x1p-11f), 1);
}

TEST(RotatedRowKernels, TilesHaveSixteenRowsSideBySide) {
  for (const RotationKernels* table : AvailableRotationKernels()) {
    for (const int dim : {16, 32, 48, 128}) {
      std::vector<uint16_t> words(static_cast<size_t>(16 * dim)), out(words.size());
      for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i * 40503u);
      const uint16_t* rows[16];
      for (int r = 0; r < 16; ++r) rows[r] = words.data() + r * dim;
      table->fill_tile(rows, dim, out.data());
      for (int r = 0; r < 16; ++r) {
        for (int c = 0; c < dim; ++c) {
          ASSERT_EQ(out[static_cast<size_t>(16 * c + r)], rows[r][c]) << table->name;
        }
      }
    }
  }
}

}  // namespace rotated_rows_kernels_test
}  // namespace varve
