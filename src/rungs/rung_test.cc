// What every rung promises about content: names, sizes, round trips, partial strips, and the same
// bytes from every kernel table. Attention on the stored bytes is in rung_attention_test.cc.

#include "rungs/rung.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernel_tables.h"
#include "rungs/rung_testing.h"

namespace varve {
namespace rung_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(RungTable, BytesPerRowCountTheScales) {
  const auto bytes = [](const char* rung, int dim) {
    return RungBytesPerRow(rung, Part::kKey, dim, 64).value();
  };
  EXPECT_EQ(bytes("f32", 128), 512.0);
  EXPECT_EQ(bytes("f16", 80), 160.0);
  EXPECT_EQ(bytes("bf16", 128), 256.0);
  EXPECT_EQ(bytes("q8_0", 128), 136.0);  // 8.5 bits a value
  EXPECT_EQ(bytes("q4_0", 128), 72.0);   // 4.5
  EXPECT_EQ(bytes("q4_0r", 96), 54.0);
}

TEST(RungTable, BytesPerRowSaysWhatIsWrong) {
  const auto message = [](const char* rung, int dim, int page_tokens) {
    return RungBytesPerRow(rung, Part::kValue, dim, page_tokens).status().message();
  };
  EXPECT_NE(message("q5_0", 128, 64).find("\"q5_0\""), std::string::npos);
  EXPECT_NE(message("q5_0", 128, 64).find("q4_0r"), std::string::npos);
  EXPECT_NE(message("q8_0", 80, 64).find("80"), std::string::npos);
  EXPECT_NE(message("q8_0", 64, 48).find("page_tokens 48"), std::string::npos);
}

class RungContent : public EveryRung {};
INSTANTIATE_TEST_SUITE_P(Rungs, RungContent, testing::ValuesIn(AllRungNames()), RungName);

TEST_P(RungContent, RefusesADimWithItsValueAndTheLimit) {
  const std::string multiple = IsCoded(rung()) ? "32" : "16";
  std::vector<int> refused = {
      -32, -1, 0, 1, 8, 15, 17, 513, 544, 1024, std::numeric_limits<int>::max()};
  if (IsCoded(rung())) refused.insert(refused.end(), {16, 80, 112});
  for (const int dim : refused) {
    const Status status = rung().CheckDim(dim);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << dim;
    for (const std::string& part : {GetParam(), "head_dim " + std::to_string(dim) + " ",
                                    "multiple of " + multiple, std::string("512")}) {
      EXPECT_NE(status.message().find(part), std::string::npos)
          << status.message() << " lacks " << part;
    }
  }
  for (const int dim : {32, 64, 96, 128, 256, 512}) EXPECT_TRUE(rung().CheckDim(dim).ok()) << dim;
}

TEST_P(RungContent, SeparateRangesDecodeAsTheWhole) {
  TestRandom random(41);
  for (const Part part : {Part::kKey, Part::kValue}) {
    const StoredRows stored = Store(rung(), part, 96, 64, random.Gaussians(size_t{64} * 96));
    for (const auto& [first, count] :
         {std::pair{0, 1}, {1, 2}, {15, 2}, {17, 31}, {63, 1}, {5, 0}}) {
      GuardedBuffer<float> rows(static_cast<size_t>(count) * 96);
      rung().Decode(part, stored.shape, stored.strip.data(), first, count, rows.data());
      EXPECT_TRUE(rows.ZonesIntact());
      EXPECT_TRUE(
          std::equal(rows.data(), rows.data() + rows.size(), &stored.decoded[size_t{96} * first]));
    }
  }
}

TEST_P(RungContent, MissingRowsReadAsZeroAndTheOthersAsInAFullStrip) {
  TestRandom random(42);
  for (const Part part : {Part::kKey, Part::kValue}) {
    if (IsTurned(rung()) && part == Part::kKey) continue;  // they share a mean
    for (const int dim : DimsOf(rung())) {
      for (const int page_tokens : {16, 32, 64, 128}) {
        const std::vector<float> rows = random.Gaussians(static_cast<size_t>(page_tokens) * dim);
        const StoredRows whole = Store(rung(), part, dim, page_tokens, rows);
        for (const int num_rows : {0, 1, 3, 4, 5, 15}) {
          const StoredRows some =
              Store(rung(), part, dim, page_tokens,
                    {rows.begin(), rows.begin() + static_cast<ptrdiff_t>(num_rows) * dim});
          const size_t used = static_cast<size_t>(num_rows) * dim;
          ASSERT_TRUE(SameBits(some.decoded.data(), whole.decoded.data(), used))
              << dim << ' ' << num_rows;
          for (size_t i = used; i < some.decoded.size(); ++i) ASSERT_EQ(some.decoded[i], 0.0f) << i;
        }
      }
    }
  }
}

TEST_P(RungContent, EncodeWritesTheStripAndNothingElse) {
  TestRandom random(43);
  for (const Part part : {Part::kKey, Part::kValue}) {
    for (const int dim : DimsOf(rung())) {
      for (const int num_rows : {0, 1, 31, 32}) {
        const StripShape shape{0, 0, dim, 32};
        const std::vector<float> rows = random.Gaussians(static_cast<size_t>(num_rows) * dim);
        // Whatever was there before, the bytes are the same: every one of them is written.
        GuardedBuffer<std::byte> zeros(rung().StripBytes(part, shape)),
            ones(rung().StripBytes(part, shape));
        zeros.Fill(std::byte{0});
        ones.Fill(std::byte{0xFF});
        EXPECT_EQ(rung().Encode(part, shape, rows.data(), num_rows, zeros.data()), 0u);
        EXPECT_EQ(rung().Encode(part, shape, rows.data(), num_rows, ones.data()), 0u);
        ASSERT_TRUE(zeros.ZonesIntact() && ones.ZonesIntact());
        ASSERT_EQ(std::memcmp(zeros.data(), ones.data(), zeros.size()), 0)
            << dim << ' ' << num_rows;
      }
    }
  }
}

TEST_P(RungContent, EveryTableEncodesTheSameBytes) {
  TestRandom random(44);
  for (const int dim : DimsOf(rung())) {
    std::vector<float> rows = random.Gaussians(size_t{31} * dim);
    for (size_t i = 0; i < rows.size(); i += 37)
      rows[i] *= std::ldexp(1.0f, static_cast<int>(i % 60) - 30);
    rows[5] = -0.0f;
    if (IsCoded(rung())) rows[7] = kNan, rows[12] = -kInf, rows[dim] = 1e30f;
    const StripShape shape{0, 0, dim, 32};
    for (const Part part : {Part::kKey, Part::kValue}) {
      std::vector<std::byte> want(rung().StripBytes(part, shape));
      uint64_t replaced = 0;
      for (const Kernels* table : AllTables()) {
        const ScopedKernels scope(*table);
        std::vector<std::byte> got(want.size());
        const uint64_t count = rung().Encode(part, shape, rows.data(), 31, got.data());
        if (table == AllTables().front()) want = got, replaced = count;
        ASSERT_EQ(got, want) << table->name << " dim " << dim;
        ASSERT_EQ(count, replaced) << table->name << " dim " << dim;
      }
    }
  }
}

TEST_P(RungContent, RowsWrittenOneByOneGiveTheEncodedStrip) {
  if (!rung().can_append()) {
    EXPECT_TRUE(IsCoded(rung()));
    return;
  }
  TestRandom random(45);
  for (const Part part : {Part::kKey, Part::kValue}) {
    for (const int dim : DimsOf(rung())) {
      const StripShape shape{0, 0, dim, 32};
      const std::vector<float> rows = random.Gaussians(size_t{32} * dim);
      const StoredRows whole = Store(rung(), part, dim, 32, rows);
      // A wide stride, as rows of one head lie in [tokens, heads, dim]; last row first.
      const size_t stride = static_cast<size_t>(dim) + 24;
      std::vector<float> wide(31 * stride + dim, kNan);
      for (int i = 0; i < 32; ++i) std::copy_n(&rows[size_t(i) * dim], dim, &wide[i * stride]);
      GuardedBuffer<std::byte> strip(whole.strip.size());
      for (int i = 31; i >= 0; --i) {
        rung().WriteRows(part, shape, strip.data(), i, 1, &wide[i * stride],
                         static_cast<ptrdiff_t>(stride));
      }
      ASSERT_TRUE(strip.ZonesIntact());
      ASSERT_EQ(std::memcmp(strip.data(), whole.strip.data(), strip.size()), 0) << dim;
      strip.Fill(std::byte{0});
      rung().WriteRows(part, shape, strip.data(), 0, 7, wide.data(),
                       static_cast<ptrdiff_t>(stride));
      rung().WriteRows(part, shape, strip.data(), 7, 25, &wide[7 * stride],
                       static_cast<ptrdiff_t>(stride));
      ASSERT_EQ(std::memcmp(strip.data(), whole.strip.data(), strip.size()), 0) << dim;
    }
  }
}

TEST_P(RungContent, FloatRungsRoundOnceAndKeepWhatIsNotFinite) {
  if (IsCoded(rung())) {
    EXPECT_TRUE(rung().values_always_finite());
    return;
  }
  EXPECT_FALSE(rung().values_always_finite());
  // Significant bits 24, 11 and 8: relative error at most 2^-bits, and close to it for some value.
  const double bound = GetParam() == "f32" ? 0.0 : GetParam() == "f16" ? 0x1p-11 : 0x1p-8;
  TestRandom random(46);
  for (const Part part : {Part::kKey, Part::kValue}) {
    std::vector<float> rows = random.Gaussians(size_t{16} * 80);
    for (float& x : rows) x = std::copysign(std::max(std::abs(x), 1e-4f), x);  // normal in f16
    rows[0] = kNan, rows[81] = kInf, rows[162] = -kInf, rows[243] = -0.0f;
    const StoredRows stored = Store(rung(), part, 80, 16, rows);
    EXPECT_TRUE(std::isnan(stored.decoded[0]));
    EXPECT_EQ(stored.decoded[81], kInf);
    EXPECT_EQ(stored.decoded[162], -kInf);
    EXPECT_TRUE(std::signbit(stored.decoded[243]));
    double worst = 0.0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!std::isfinite(rows[i]) || rows[i] == 0.0f) continue;
      worst = std::max(worst, std::abs(static_cast<double>(stored.decoded[i]) / rows[i] - 1.0));
    }
    EXPECT_LE(worst, bound);
    EXPECT_GE(worst, 0.9 * bound) << "more bits than the format has";
  }
}

// Kernels that count their calls: proof that rungs run those that they were made with.
int g_quantized, g_scored, g_added;

TEST(RungKernels, AreThoseThatARungIsMadeWith) {
  static const Kernels& scalar = ScalarKernels();
  Kernels counting = scalar;
  counting.quantize_blocks[0] = [](const float* values, size_t count, uint16_t* scales,
                                   uint8_t* codes) {
    ++g_quantized;
    return scalar.quantize_blocks[0](values, count, scales, codes);
  };
  counting.key_scores_block[0] = [](const KeyScoresArgs& args) {
    ++g_scored;
    scalar.key_scores_block[0](args);
  };
  counting.add_values_float[1] = [](const AddValuesArgs& args) {
    ++g_added;
    scalar.add_values_float[1](args);
  };
  const std::unique_ptr<const Rung> made = FindRung("q8_0")->Make({&counting, nullptr});
  const std::unique_ptr<const Rung> f16 = FindRung("f16")->Make({&counting, nullptr});
  const Rung& q8 = *made;
  const std::vector<float> rows(16 * 32, 1.0f), weights(16, 1.0f);
  const StoredRows key = Store(q8, Part::kKey, 32, 16, rows);
  const StoredRows value = Store(*f16, Part::kValue, 32, 16, rows);
  std::vector<std::byte> query(q8.PreparedRowBytes(key.shape, 1));
  std::vector<float> scores(16), sums(32, 0.0f);
  q8.PrepareQuery(key.shape, rows.data(), 1, query.data());
  q8.Scores(key.shape, key.strip.data(), query.data(), 1, 16, scores.data(), 16, nullptr);
  AddPage(*f16, value.shape, value.strip.data(), 0, 16, weights.data(), 16, weights.data(), 1,
          sums.data());
  EXPECT_EQ(g_quantized, 1);
  EXPECT_EQ(g_scored, 1);
  EXPECT_EQ(g_added, 1);
  EXPECT_NEAR(scores[0], 32.0f, 0.01f);
  EXPECT_EQ(sums[0], 16.0f);
}

}  // namespace rung_test
}  // namespace varve
