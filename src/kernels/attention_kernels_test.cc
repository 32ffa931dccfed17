// Scores and weighted sums of every table against a double-precision reading of the same bytes, and
// against the scalar table, at sizes around the vector, tile and row-tile widths.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/align.h"
#include "kernels/kernel_tables.h"
#include "kernels/kernel_testing.h"
#include "kernels/strip_oracle.h"

namespace varve {
namespace attention_kernels_test {

constexpr float kUntouched = -12345.0f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33};

struct Case {
  int dim;
  int page_tokens;
  int num_tokens;
  int num_rows;
};

// Every dim with every page size and length. The row counts take turns; one shape meets all of
// them.
std::vector<Case> AllCases(bool block) {
  std::vector<Case> cases;
  for (const int dim : {16, 32, 64, 80, 96, 128, 256}) {
    if (block && dim % kBlockValues != 0) continue;
    for (const int page_tokens : {16, 32, 64, 128}) {
      for (const int num_tokens : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128}) {
        if (num_tokens > page_tokens) continue;
        cases.push_back({dim, page_tokens, num_tokens, kRowCounts[cases.size() % 9]});
      }
    }
  }
  for (const int num_rows : kRowCounts) cases.push_back({64, 32, 31, num_rows});
  return cases;
}

class AttentionKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, AttentionKernel, testing::ValuesIn(AllTables()), TableName);

using KeyScores = void (*)(const KeyScoresArgs&);
using AddValues = void (*)(const AddValuesArgs&);

// Runs the kernel into a guarded buffer whose rows lie apart; columns that nobody asked for must
// stay as they were. Returns [num_rows, page_tokens].
std::vector<float> RunScores(KeyScores kernel, const OracleStrip& s, const Case& c,
                             const std::vector<std::byte>& query, ReadAhead* ahead = nullptr) {
  const size_t stride = static_cast<size_t>(c.page_tokens) + (c.num_rows % 2) * 5;
  GuardedBuffer<float> scores((c.num_rows - 1) * stride + c.page_tokens);
  scores.Fill(kUntouched);
  kernel({s.bytes.data(), c.dim, c.page_tokens, c.num_tokens, query.data(), c.num_rows,
          scores.data(), stride, ahead});
  EXPECT_TRUE(scores.ZonesIntact());
  const size_t written = AlignUp(static_cast<size_t>(c.num_tokens), kTileTokens);
  std::vector<float> rows;
  for (size_t at = 0; at < scores.size(); ++at) {
    EXPECT_TRUE(at % stride < written || scores[at] == kUntouched) << "column " << at % stride;
    if (at % stride < static_cast<size_t>(c.page_tokens)) rows.push_back(scores[at]);
  }
  return rows;
}

std::vector<std::byte> AsBytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST_P(AttentionKernel, FloatScoresAreTheDotProducts) {
  TestRandom random(11);
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    for (const Case& c : AllCases(false)) {
      const OracleStrip s = RandomFloatStrip(type, true, c.dim, c.page_tokens, random);
      const std::vector<float> queries = random.Gaussians(static_cast<size_t>(c.num_rows) * c.dim);
      const std::vector<float> scores =
          RunScores(GetParam()->key_scores_float[static_cast<int>(type)], s, c, AsBytes(queries));
      for (int r = 0; r < c.num_rows; ++r) {
        for (int t = 0; t < c.num_tokens; ++t) {
          double exact = 0.0, size = 0.0;
          for (int d = 0; d < c.dim; ++d) {
            const double term = queries[static_cast<size_t>(r) * c.dim + d] * s.value(t, d);
            exact += term;
            size += std::abs(term);
          }
          // Summed in f32 one after another: at most dim roundings of partial sums, one per
          // product.
          ASSERT_NEAR(scores[static_cast<size_t>(r) * c.page_tokens + t], exact,
                      (c.dim + 1) * kUnitRoundoff * size)
              << c.dim << '/' << c.page_tokens << " token " << t << " row " << r;
        }
      }
    }
  }
}

// What a block query stands for; q4_0 sees the high byte alone.
std::vector<double> QueryValues(const std::vector<std::byte>& prepared, BlockType type, int dim,
                                int row) {
  const std::byte* base = prepared.data() + row * BlockQueryBytes(dim);
  const float* scale = reinterpret_cast<const float*>(base);
  const int8_t* hi = reinterpret_cast<const int8_t*>(base + BlockQueryCodesAt(dim));
  const int8_t* lo = hi + dim;
  std::vector<double> values(dim);
  for (int d = 0; d < dim; ++d) {
    values[d] =
        static_cast<double>(scale[d / 32]) * (256 * hi[d] + (type == BlockType::kQ8 ? lo[d] : 0));
  }
  return values;
}

TEST_P(AttentionKernel, BlockScoresAreExactWithinABlock) {
  TestRandom random(12);
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    for (const Case& c : AllCases(true)) {
      const OracleStrip s = RandomBlockStrip(type, true, c.dim, c.page_tokens, random);
      std::vector<std::byte> queries(c.num_rows * BlockQueryBytes(c.dim));
      for (int r = 0; r < c.num_rows; ++r) {
        const std::vector<float> query = random.Gaussians(c.dim);
        ScalarKernels().prepare_block_query(query.data(), c.dim,
                                            &queries[r * BlockQueryBytes(c.dim)]);
      }
      const std::vector<float> scores =
          RunScores(GetParam()->key_scores_block[static_cast<int>(type)], s, c, queries);
      const int roundings = c.dim / 32 + 3;
      for (int r = 0; r < c.num_rows; ++r) {
        const std::vector<double> query = QueryValues(queries, type, c.dim, r);
        for (int t = 0; t < c.num_tokens; ++t) {
          double exact = 0.0, size = 0.0;
          for (int b = 0; b < c.dim / 32; ++b) {
            double block = 0.0;
            for (int d = b * 32; d < b * 32 + 32; ++d) block += query[d] * s.value(t, d);
            exact += block;
            size += std::abs(block);
          }
          // Roundings per block: integer to f32, product of the scales, product, sum. There is none
          // inside a block, so the bound is on the sums of blocks and not on 32 terms each.
          ASSERT_NEAR(scores[static_cast<size_t>(r) * c.page_tokens + t], exact,
                      roundings * kUnitRoundoff * size)
              << c.dim << '/' << c.page_tokens << " token " << t << " row " << r;
        }
      }
    }
  }
}

TEST_P(AttentionKernel, BlockScoresStandTheLargestCodes) {
  // All codes and query values at their extremes: the integer sums are as large as they get.
  // One block has one rounding, so the tables agree to the bit.
  const Case c{32, 16, 16, 2};
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    for (const int fill : {0x00, 0xFF}) {
      TestRandom random(13);
      OracleStrip s = RandomBlockStrip(type, true, c.dim, c.page_tokens, random);
      std::fill(s.bytes.begin() + 2 * c.page_tokens, s.bytes.end(), static_cast<std::byte>(fill));
      std::vector<float> query(c.dim, 1.0f);
      std::vector<std::byte> queries(2 * BlockQueryBytes(c.dim));
      ScalarKernels().prepare_block_query(query.data(), c.dim, queries.data());
      query.assign(c.dim, -1.0f);
      ScalarKernels().prepare_block_query(query.data(), c.dim, &queries[BlockQueryBytes(c.dim)]);
      const int t = static_cast<int>(type);
      EXPECT_EQ(RunScores(GetParam()->key_scores_block[t], s, c, queries),
                RunScores(ScalarKernels().key_scores_block[t], s, c, queries));
    }
  }
}

TEST_P(AttentionKernel, ANanQueryGivesNanScores) {
  TestRandom random(14);
  const Case c{64, 32, 31, 3};
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    const OracleStrip s = RandomBlockStrip(type, true, c.dim, c.page_tokens, random);
    std::vector<std::byte> queries(c.num_rows * BlockQueryBytes(c.dim));
    for (int r = 0; r < c.num_rows; ++r) {
      std::vector<float> query = random.Gaussians(c.dim);
      if (r == 1) query[40] = kNan;
      GetParam()->prepare_block_query(query.data(), c.dim, &queries[r * BlockQueryBytes(c.dim)]);
    }
    const std::vector<float> scores =
        RunScores(GetParam()->key_scores_block[static_cast<int>(type)], s, c, queries);
    for (int r = 0; r < c.num_rows; ++r) {
      for (int t = 0; t < c.num_tokens; ++t) {
        ASSERT_EQ(std::isnan(scores[static_cast<size_t>(r) * c.page_tokens + t]), r == 1);
      }
    }
  }
}

TEST_P(AttentionKernel, FloatStripsKeepNanAndInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  TestRandom random(15);
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    const int index = static_cast<int>(type);
    for (const float odd : {kNan, inf, -inf}) {
      OracleStrip s = RandomFloatStrip(type, true, 32, 16, random);
      const auto put = [&](size_t at) {
        const uint16_t bits = type == FloatType::kF16 ? F32ToF16(odd) : F32ToBF16(odd);
        std::memcpy(&s.bytes[at * FloatBytes(type)],
                    type == FloatType::kF32 ? static_cast<const void*>(&odd) : &bits,
                    FloatBytes(type));
      };
      put(FloatKeyAt(s, 5, 9));
      const std::vector<float> scores =
          RunScores(GetParam()->key_scores_float[index], s, {32, 16, 16, 1},
                    AsBytes(std::vector<float>(32, 0.5f)));
      for (int t = 0; t < 16; ++t) {
        ASSERT_TRUE(t == 5 || std::isfinite(scores[t])) << t;
      }
      EXPECT_TRUE(std::isnan(odd) ? std::isnan(scores[5]) : scores[5] == odd) << scores[5];

      s = RandomFloatStrip(type, false, 32, 16, random);
      put(FloatValueAt(s, 5, 9));
      std::vector<float> sum(32, 0.0f);
      const std::vector<float> weights(16, 0.25f), total(1, 4.0f);
      GetParam()->add_values_float[index](
          {s.bytes.data(), 32, 16, 0, 16, weights.data(), 16, total.data(), 1, sum.data()});
      for (int d = 0; d < 32; ++d) {
        ASSERT_TRUE(d == 9 || std::isfinite(sum[d])) << d;
      }
      EXPECT_TRUE(std::isnan(odd) ? std::isnan(sum[9]) : sum[9] == odd) << sum[9];
    }
  }
}

TEST_P(AttentionKernel, ReadingAheadChangesNoResult) {
  TestRandom random(16);
  const Case c{96, 64, 33, 5};
  const std::vector<std::byte> next(5000);
  const OracleStrip key = RandomFloatStrip(FloatType::kF16, true, c.dim, c.page_tokens, random);
  const OracleStrip block = RandomBlockStrip(BlockType::kQ4, true, c.dim, c.page_tokens, random);
  const std::vector<std::byte> queries =
      AsBytes(random.Gaussians(static_cast<size_t>(c.num_rows) * c.dim));
  std::vector<std::byte> prepared(c.num_rows * BlockQueryBytes(c.dim));
  for (int r = 0; r < c.num_rows; ++r) {
    GetParam()->prepare_block_query(random.Gaussians(c.dim).data(), c.dim,
                                    &prepared[r * BlockQueryBytes(c.dim)]);
  }
  const KeyScores kernels[] = {GetParam()->key_scores_float[1], GetParam()->key_scores_block[1]};
  for (const int rate : {0, 1, 2}) {
    for (const size_t bytes : {0, 1, 63, 64, 65, 5000}) {
      ReadAhead ahead;
      for (int i = 0; i < 3; ++i) ahead.Add(next.data(), bytes);
      ahead.cursor.rate = rate;
      EXPECT_EQ(RunScores(kernels[0], key, c, queries, &ahead),
                RunScores(kernels[0], key, c, queries));
      EXPECT_EQ(RunScores(kernels[1], block, c, prepared, &ahead),
                RunScores(kernels[1], block, c, prepared));
      EXPECT_LE(ahead.entered(), 3u);
    }
  }
}

}  // namespace attention_kernels_test
}  // namespace varve
