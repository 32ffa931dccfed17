// Every table of pq kernels against plain double precision on the same codes.

#include "kernels/pq_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"

namespace varve {
namespace pq_kernels_test {

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(bits_.Next() >> 33) % limit; }
  // A sum of uniform numbers: near enough.
  float Gaussian() {
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(bits_.Next() >> 40) * 0x1p-24f;
    return sum;
  }

 private:
  SplitMix64 bits_;
};

// Strips of random codes, random centroids, and what they stand for.
struct Coded {
  PqShape shape;
  std::vector<uint8_t> bytes;  // [dim][num_codes]
  std::vector<float> scales;   // [M]
  std::vector<std::vector<std::byte>> strips;
  std::vector<std::vector<double>> rows;  // [pages][page_tokens * dim]

  PqCentroids centroids() const { return {bytes.data(), scales.data()}; }
};

Coded MakeCoded(const PqShape& shape, int pages, uint64_t seed) {
  Random random(seed);
  Coded coded;
  coded.shape = shape;
  coded.bytes.resize(static_cast<size_t>(shape.dim) * shape.num_codes());
  for (uint8_t& byte : coded.bytes) byte = static_cast<uint8_t>(1 + random.Below(255));
  coded.scales.resize(static_cast<size_t>(shape.subspaces));
  for (float& scale : coded.scales) scale = 0.001f * static_cast<float>(1 + random.Below(30));
  const size_t page_tokens = static_cast<size_t>(shape.page_tokens);
  for (int p = 0; p < pages; ++p) {
    std::vector<std::byte> strip(shape.strip_bytes());
    std::vector<double> rows(page_tokens * shape.dim);
    for (int m = 0; m < shape.subspaces; ++m) {
      uint16_t codes[kMaxPageTokens] = {};
      for (size_t t = 0; t < page_tokens; ++t)
        codes[t] = static_cast<uint16_t>(random.Below(static_cast<uint32_t>(shape.num_codes())));
      WritePqCodes(shape, m, codes, strip.data());
      for (size_t t = 0; t < page_tokens; ++t) {
        for (int d = m * shape.sub_dim(); d < (m + 1) * shape.sub_dim(); ++d) {
          rows[t * shape.dim + d] =
              static_cast<double>(coded.scales[m]) *
              (coded.bytes[static_cast<size_t>(d) * shape.num_codes() + codes[t]] - 128);
        }
      }
    }
    for (size_t t = 0; t < page_tokens; ++t) {
      const uint16_t gain = F32ToF16(0.25f * static_cast<float>(random.Below(9)));
      std::memcpy(strip.data() + 2 * t, &gain, 2);
      for (int d = 0; d < shape.dim; ++d) rows[t * shape.dim + d] *= F16ToF32(gain);
    }
    coded.strips.push_back(std::move(strip));
    coded.rows.push_back(std::move(rows));
  }
  return coded;
}

std::vector<float> RandomValues(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.Gaussian();
  return values;
}

double Length(const double* values, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i] * values[i];
  return std::sqrt(sum);
}

// Sizes over their range: sub-vectors of 1, 2, 3, 4, 8 and all channels; every page size.
const PqShape kShapes[] = {{16, 16, 4, 16},  {48, 16, 5, 32},   {64, 32, 6, 64},   {80, 40, 7, 64},
                           {128, 64, 8, 64}, {128, 64, 4, 64},  {128, 16, 8, 128}, {96, 3, 8, 16},
                           {64, 64, 8, 32},  {512, 256, 4, 16}, {128, 32, 6, 16},  {16, 1, 4, 64},
                           {112, 7, 5, 128}, {256, 128, 7, 32}};
const PqShape kWideShapes[] = {
    {64, 16, 9, 64}, {48, 16, 10, 16}, {128, 32, 12, 32}, {32, 1, 11, 64}};

std::string Describe(const PqShape& shape) {
  return "dim " + std::to_string(shape.dim) + " M " + std::to_string(shape.subspaces) + " bits " +
         std::to_string(shape.bits) + " page " + std::to_string(shape.page_tokens);
}

class PqKernelsTest : public testing::TestWithParam<std::string> {
 protected:
  const PqKernels& kernels() const {
    for (const PqKernels* table : AvailablePqKernels()) {
      if (GetParam() == table->name) return *table;
    }
    return ScalarPqKernels();
  }

  // Largest error of scores relative to |query| |key|.
  double ScoreError(const Coded& coded, int num_rows, int num_tokens, bool tables) {
    const PqShape& shape = coded.shape;
    const std::vector<float> queries = RandomValues(static_cast<size_t>(num_rows) * shape.dim, 7);
    const size_t stride = PqQueryBytes(shape, tables);
    std::vector<std::byte> prepared(stride * num_rows + 64);
    void* start = prepared.data();
    size_t space = prepared.size();
    auto* aligned = static_cast<std::byte*>(std::align(64, 1, start, space));
    for (int row = 0; row < num_rows; ++row) {
      kernels().prepare_query(shape, coded.centroids(),
                              &queries[static_cast<size_t>(row) * shape.dim], tables,
                              aligned + row * stride);
    }
    const size_t scores_stride = static_cast<size_t>(shape.page_tokens) + 16;
    std::vector<float> scores(num_rows * scores_stride, 1e30f);
    const PqScoresArgs args = {
        shape,  coded.centroids(), coded.strips[0].data(), num_tokens,    aligned,
        stride, num_rows,          scores.data(),          scores_stride, nullptr};
    !tables           ? kernels().scores_bytes[shape.bits - 4](args)
    : shape.bits == 4 ? kernels().scores_nibbles(args)
                      : kernels().scores_tables(args);
    double worst = 0;
    for (int row = 0; row < num_rows; ++row) {
      for (int t = 0; t < num_tokens; ++t) {
        double dot = 0, length = 0;
        for (int d = 0; d < shape.dim; ++d) {
          const double q = queries[static_cast<size_t>(row) * shape.dim + d];
          dot += q * coded.rows[0][static_cast<size_t>(t) * shape.dim + d];
          length += q * q;
        }
        const double key = Length(&coded.rows[0][static_cast<size_t>(t) * shape.dim], shape.dim);
        const double error = std::abs(scores[row * scores_stride + t] - dot);
        worst = std::max(worst, error / (std::sqrt(length) * key + 1e-6));
      }
      // Nothing beyond the page.
      EXPECT_EQ(scores[row * scores_stride + shape.page_tokens], 1e30f) << Describe(shape);
    }
    return worst;
  }

  // Largest error of a sum over pages relative to the sum of weight * |value|.
  double ValueError(const Coded& coded, int num_rows, bool flat, bool centroids) {
    const PqShape& shape = coded.shape;
    const size_t pages = coded.strips.size();
    const size_t stride = pages * shape.page_tokens + 16;
    std::vector<float> weights = RandomValues(num_rows * stride, 9);
    for (float& weight : weights) weight = std::exp(flat ? 0.3f * weight : 5.0f * weight);
    std::vector<PqValuePage> list;
    for (size_t p = 0; p < pages; ++p)
      list.push_back({coded.strips[p].data(), weights.data() + p * shape.page_tokens});
    std::vector<float> sums(static_cast<size_t>(num_rows) * shape.dim, 0.5f);
    const PqValuesArgs args = {shape,    coded.centroids(), list,   stride,
                               num_rows, sums.data(),       nullptr};
    centroids ? kernels().add_values_centroids(args)
              : kernels().add_values_bytes[shape.bits - 4](args);
    double worst = 0;
    for (int row = 0; row < num_rows; ++row) {
      double mass = 0;
      std::vector<double> expected(static_cast<size_t>(shape.dim), 0.5);
      for (size_t p = 0; p < pages; ++p) {
        for (int t = 0; t < shape.page_tokens; ++t) {
          const double weight = weights[row * stride + p * shape.page_tokens + t];
          const double* value = &coded.rows[p][static_cast<size_t>(t) * shape.dim];
          for (int d = 0; d < shape.dim; ++d) expected[d] += weight * value[d];
          mass += weight * Length(value, shape.dim);
        }
      }
      for (int d = 0; d < shape.dim; ++d)
        worst =
            std::max(worst, std::abs(sums[static_cast<size_t>(row) * shape.dim + d] - expected[d]) /
                                (mass / std::sqrt(shape.dim) + 1e-6));
    }
    return worst;
  }
};

TEST(PqCodes, OfEveryWidthAreReadBackAsTheyWereWritten) {
  Random random(3);
  for (int bits = kMinPqBits; bits <= kMaxPqBits; ++bits) {
    for (const int subspaces : {1, 3, 16}) {
      for (const int page_tokens : {16, 32, 64, 128}) {
        const PqShape shape = {48, subspaces, bits, page_tokens};
        std::vector<std::byte> strip(shape.strip_bytes(), std::byte{0});
        std::vector<std::vector<uint16_t>> written;
        for (int m = 0; m < subspaces; ++m) {
          std::vector<uint16_t> codes(static_cast<size_t>(page_tokens));
          for (uint16_t& code : codes)
            code = static_cast<uint16_t>(random.Below(static_cast<uint32_t>(shape.num_codes())));
          WritePqCodes(shape, m, codes.data(), strip.data());
          written.push_back(codes);
        }
        for (int m = 0; m < subspaces; ++m) {
          std::vector<uint16_t> codes(static_cast<size_t>(page_tokens));
          ReadPqCodes(shape, strip.data(), m, codes.data());
          EXPECT_EQ(codes, written[static_cast<size_t>(m)]) << Describe(shape) << " m " << m;
        }
        for (int t = 0; t < page_tokens; ++t) EXPECT_EQ(ReadPqGain(strip.data(), t), 0.0f);
      }
    }
  }
}

TEST(PqCodes, TakeTheBitsThatTheirNameSays) {
  // M codes of B bits and a gain of 16 bits a token.
  EXPECT_EQ((PqShape{128, 64, 8, 64}.strip_bytes()), 64u * (64 + 2));
  EXPECT_EQ((PqShape{128, 64, 6, 64}.strip_bytes()), 64u * (48 + 2));
  EXPECT_EQ((PqShape{128, 64, 4, 64}.strip_bytes()), 64u * (32 + 2));
  EXPECT_EQ((PqShape{128, 32, 12, 64}.strip_bytes()), 64u * (48 + 2));
}

TEST_P(PqKernelsTest, ScoresByBytesEqualTheDecodedDot) {
  for (const PqShape& shape : kShapes) {
    const Coded coded = MakeCoded(shape, 1, 11);
    for (const int rows : {1, 2, 3, 4, 7}) {
      for (const int tokens : {1, 15, shape.page_tokens}) {
        const double error = ScoreError(coded, rows, tokens, false);
        EXPECT_LT(error, shape.bits == 4 ? 5e-3 : 1e-4)
            << Describe(shape) << " rows " << rows << " tokens " << tokens;
      }
    }
  }
}

TEST_P(PqKernelsTest, ScoresByTablesEqualTheDecodedDot) {
  for (const auto& shapes :
       {std::span<const PqShape>(kShapes), std::span<const PqShape>(kWideShapes)}) {
    for (const PqShape& shape : shapes) {
      const Coded coded = MakeCoded(shape, 1, 12);
      for (const int rows : {1, 3})
        EXPECT_LT(ScoreError(coded, rows, shape.page_tokens, true), shape.bits == 4 ? 1e-4 : 1e-5)
            << Describe(shape);
    }
  }
}

TEST_P(PqKernelsTest, ValuesByBytesEqualTheDecodedSum) {
  for (const PqShape& shape : kShapes) {
    for (const int pages : {1, 3, 16}) {
      if (pages == 16 && shape.dim > 128) continue;  // nothing new, and slow
      const Coded coded = MakeCoded(shape, pages, 13);
      for (const int rows : {1, 2, 4, 5}) {
        // Whether one token has most of the weight or none has much.
        for (const bool flat : {false, true}) {
          EXPECT_LT(ValueError(coded, rows, flat, false), shape.bits == 4   ? 3e-2
                                                          : shape.bits <= 6 ? 1.5e-2
                                                                            : 1e-2)
              << Describe(shape) << " pages " << pages << " rows " << rows << " flat " << flat;
        }
      }
    }
  }
}

TEST_P(PqKernelsTest, ValuesByCentroidsEqualTheDecodedSum) {
  for (const auto& shapes :
       {std::span<const PqShape>(kShapes), std::span<const PqShape>(kWideShapes)}) {
    for (const PqShape& shape : shapes) {
      const Coded coded = MakeCoded(shape, 2, 14);
      for (const int rows : {1, 4, 6})
        EXPECT_LT(ValueError(coded, rows, true, true), 1e-5) << Describe(shape);
    }
  }
}

TEST_P(PqKernelsTest, ARowsAnswerDoesNotDependOnTheRowsBesideIt) {
  const Coded coded = MakeCoded({128, 64, 8, 64}, 4, 15);
  const size_t stride = 4 * 64 + 16;
  std::vector<float> weights = RandomValues(5 * stride, 16);
  // Sharp and flat rows side by side: both ways of rounding.
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = std::exp((i / stride % 2 == 0 ? 0.1f : 6.0f) * weights[i]);
  const auto run = [&](int first, int rows) {
    std::vector<PqValuePage> list;
    for (size_t p = 0; p < 4; ++p)
      list.push_back({coded.strips[p].data(), weights.data() + first * stride + p * 64});
    std::vector<float> sums(static_cast<size_t>(rows) * 128, 0.0f);
    kernels().add_values_bytes[4](
        {coded.shape, coded.centroids(), list, stride, rows, sums.data(), nullptr});
    return sums;
  };
  const std::vector<float> together = run(0, 5);
  for (int row = 0; row < 5; ++row) {
    const std::vector<float> alone = run(row, 1);
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + row * 128, 128 * sizeof(float)), 0)
        << "row " << row;
  }
}

TEST_P(PqKernelsTest, RowsWithoutWeightAddNothing) {
  const Coded coded = MakeCoded({64, 32, 8, 64}, 2, 17);
  std::vector<float> weights(2 * 144, 0.0f);
  const PqValuePage pages[] = {{coded.strips[0].data(), weights.data()},
                               {coded.strips[1].data(), weights.data() + 64}};
  std::vector<float> sums(2 * 64, 0.25f);
  const PqValuesArgs args = {coded.shape, coded.centroids(), pages, 144, 2, sums.data(), nullptr};
  kernels().add_values_bytes[4](args);
  kernels().add_values_centroids(args);
  for (const float sum : sums) EXPECT_EQ(sum, 0.25f);
  kernels().add_values_bytes[4]({coded.shape, coded.centroids(), {}, 144, 2, sums.data(), nullptr});
  for (const float sum : sums) EXPECT_EQ(sum, 0.25f);
}

TEST_P(PqKernelsTest, AQueryThatIsNoNumberGivesScoresThatAreNone) {
  const Coded coded = MakeCoded({64, 32, 8, 64}, 1, 18);
  for (const bool tables : {false, true}) {
    std::vector<float> query(64, 1.0f);
    query[5] = std::numeric_limits<float>::quiet_NaN();
    const size_t stride = PqQueryBytes(coded.shape, tables);
    std::vector<std::byte> prepared(stride);
    kernels().prepare_query(coded.shape, coded.centroids(), query.data(), tables, prepared.data());
    std::vector<float> scores(64, 0.0f);
    const PqScoresArgs args = {coded.shape, coded.centroids(), coded.strips[0].data(),
                               64,          prepared.data(),   stride,
                               1,           scores.data(),     64,
                               nullptr};
    tables ? kernels().scores_tables(args) : kernels().scores_bytes[4](args);
    for (const float score : scores) EXPECT_TRUE(std::isnan(score));
  }
}

TEST_P(PqKernelsTest, NearestIsTheNearestByBruteForceAndTheSameEverywhere) {
  Random random(21);
  for (const int sub_dim : {1, 2, 3, 8}) {
    for (const int bits : {4, 6, 8, 11}) {
      const int num_codes = 1 << bits;
      std::vector<uint8_t> bytes(static_cast<size_t>(sub_dim) * num_codes);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(1 + random.Below(255));
      constexpr int kPoints = 37;
      std::vector<float> points = RandomValues(static_cast<size_t>(kPoints) * sub_dim, 22);
      for (float& point : points) point *= 60.0f;
      uint16_t codes[kPoints], expected[kPoints];
      kernels().nearest(bytes.data(), sub_dim, num_codes, points.data(), kPoints, codes);
      ScalarPqKernels().nearest(bytes.data(), sub_dim, num_codes, points.data(), kPoints, expected);
      for (int p = 0; p < kPoints; ++p) {
        EXPECT_EQ(codes[p], expected[p]);
        const auto distance = [&](int code) {
          double sum = 0;
          for (int j = 0; j < sub_dim; ++j) {
            const double x = points[static_cast<size_t>(p) * sub_dim + j] -
                             (bytes[static_cast<size_t>(j) * num_codes + code] - 128.0);
            sum += x * x;
          }
          return sum;
        };
        double least = distance(0);
        for (int c = 1; c < num_codes; ++c) least = std::min(least, distance(c));
        EXPECT_LE(distance(codes[p]), least * (1 + 1e-5) + 1e-6)
            << "sub_dim " << sub_dim << " bits " << bits;
      }
    }
  }
}

std::vector<std::string> TableNames() {
  std::vector<std::string> names;
  for (const PqKernels* table : AvailablePqKernels()) names.emplace_back(table->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, PqKernelsTest, testing::ValuesIn(TableNames()),
                         [](const auto& test) { return test.param; });

}  // namespace pq_kernels_test
}  // namespace varve
