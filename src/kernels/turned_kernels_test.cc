// Every table of turned kernels against a double-precision reading of the same bytes and against
// the scalar table, at sizes around the vector, tile and row-tile widths.

#include "kernels/turned_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_testing.h"

namespace varve {
namespace turned_kernels_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kUntouched = -12345.0f;

const uint8_t* BytesOf(int bits) {
  return bits == 4   ? kTurnedBytes<4>.data()
         : bits == 3 ? kTurnedBytes<3>.data()
                     : kTurnedBytes<2>.data();
}

// A strip of random bytes: any is a code. `rows` is what the codes mean, `mean` what K adds.
struct Strip {
  int bits, dim, page_tokens;
  bool key;
  std::vector<std::byte> bytes;
  std::vector<float> scales;  // [page_tokens]
  std::vector<float> mean;    // [dim], K only
  std::vector<int> levels;    // [page_tokens, dim]

  double Row(int token, int d) const {
    return double{scales[token]} / 32 * levels[static_cast<size_t>(token) * dim + d];
  }
};

void PutHalf(std::vector<std::byte>& bytes, size_t at, float value, float* rounded) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(&bytes[at], &bits, 2);
  *rounded = F16ToF32(bits);
}

Strip RandomStrip(int bits, bool key, int dim, int page_tokens, TestRandom& random) {
  Strip s{bits, dim, page_tokens, key, {}, {}, {}, {}};
  s.bytes.resize(TurnedStripBytes(bits, key, dim, page_tokens));
  for (std::byte& byte : s.bytes) byte = static_cast<std::byte>(random.Bits() & 255);
  s.mean.resize(key ? dim : 0);
  for (int d = 0; key && d < dim; ++d) PutHalf(s.bytes, 2 * d, 3 * random.Gaussian(), &s.mean[d]);
  s.scales.resize(page_tokens);
  for (int t = 0; t < page_tokens; ++t) {
    PutHalf(s.bytes, (key ? 2 * dim : 0) + 2 * t, t % 7 == 3 ? 0.0f : std::abs(random.Gaussian()),
            &s.scales[t]);
  }
  const size_t codes = (key ? 2 * dim : 0) + 2 * page_tokens;
  for (int t = 0; t < page_tokens; ++t) {
    for (int d = 0; d < dim; ++d) {
      // The formula of docs/format/pages.md, written out once more.
      const int cell = key ? t / 16 * (dim / 32) + d / 32 : d / 32 * (page_tokens / 16) + t / 16;
      const int p = key ? d % 32 / 4 : t % 16 / 4 * 2 + d % 32 / 16;
      const int j = key ? t % 16 * 4 + d % 4 : d % 16 * 4 + t % 4;
      const auto line = [&](int i) {
        return std::to_integer<int>(
            s.bytes[codes + static_cast<size_t>(cell) * 64 * bits + 64 * i + j]);
      };
      int code = line(bits == 2 ? p / 4 : p / 2 % bits) >> (bits == 2 ? p % 4 * 2 : p % 2 * bits);
      if (bits == 3 && p == 6) code = line(0) / 64 + line(1) / 64 % 2 * 4;
      if (bits == 3 && p == 7) code = line(2) / 64 + line(1) / 128 * 4;
      code &= (1 << bits) - 1;
      s.levels.push_back(2 * BytesOf(bits)[code] - 127);
    }
  }
  return s;
}

struct Case {
  int dim, page_tokens, num_tokens, num_rows;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  const int row_counts[] = {1, 2, 3, 4, 5, 6, 8, 9};
  for (const int dim : {32, 64, 96, 128, 256, 512}) {
    for (const int page_tokens : {16, 32, 64, 128}) {
      for (const int num_tokens : {1, 15, 17, 33, 63, 65, page_tokens}) {
        if (num_tokens <= page_tokens)
          cases.push_back({dim, page_tokens, num_tokens, row_counts[cases.size() % 8]});
      }
    }
  }
  return cases;
}

std::vector<const TurnedKernels*> AllTurnedTables() {
  const auto tables = AvailableTurnedKernels();
  return {tables.begin(), tables.end()};
}

class TurnedKernel : public testing::TestWithParam<const TurnedKernels*> {};
INSTANTIATE_TEST_SUITE_P(Tables, TurnedKernel, testing::ValuesIn(AllTurnedTables()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST(TurnedTables, AreOnePerTableOfKernels) {
  for (const Kernels* kernels : AvailableKernels())
    EXPECT_STREQ(TurnedKernelsOf(*kernels).name, kernels->name);
}

TEST_P(TurnedKernel, ScoresAreTheProductsWithTheRoundedQueryPlusTheMean) {
  TestRandom random(91);
  for (const int bits : {2, 3, 4}) {
    for (const Case& c : AllCases()) {
      const Strip s = RandomStrip(bits, true, c.dim, c.page_tokens, random);
      const size_t row_bytes = TurnedQueryBytes(c.dim);
      std::vector<std::byte> query(c.num_rows * row_bytes);
      std::vector<float> exact = random.Gaussians(static_cast<size_t>(c.num_rows) * c.dim);
      const std::vector<float> turned = random.Gaussians(exact.size());
      for (int r = 0; r < c.num_rows; ++r)
        GetParam()->prepare_query(&exact[static_cast<size_t>(r) * c.dim],
                                  &turned[static_cast<size_t>(r) * c.dim], c.dim,
                                  &query[r * row_bytes]);
      const size_t stride = static_cast<size_t>(c.page_tokens) + 5;
      GuardedBuffer<float> scores(c.num_rows * stride);
      scores.Fill(kUntouched);
      GetParam()->key_scores[bits - 2]({s.bytes.data(), c.dim, c.page_tokens, c.num_tokens,
                                        query.data(), c.num_rows, scores.data(), stride, nullptr});
      ASSERT_TRUE(scores.ZonesIntact());
      const int written = (c.num_tokens + 15) / 16 * 16;
      for (int r = 0; r < c.num_rows; ++r) {
        float step;
        std::memcpy(&step, &query[r * row_bytes], 4);
        const auto* codes =
            reinterpret_cast<const int8_t*>(&query[r * row_bytes + TurnedQueryCodes(c.dim)]);
        const float* q = &exact[static_cast<size_t>(r) * c.dim];
        double mean = 0.0, size = 0.0;
        for (int d = 0; d < c.dim; ++d) {
          mean += double{q[d]} * s.mean[d];
          size += std::abs(double{q[d]} * s.mean[d]);
        }
        for (int t = 0; t < c.num_tokens; ++t) {
          double sum = 0.0;
          for (int d = 0; d < c.dim; ++d) sum += codes[d] * s.Row(t, d);
          ASSERT_NEAR(scores[r * stride + t], step * sum + mean,
                      4 * kUnitRoundoff * std::abs(step * sum) + c.dim * kUnitRoundoff * size)
              << bits << " bits, dim " << c.dim << " page " << c.page_tokens << " row " << r
              << " token " << t;
        }
        for (size_t t = written; t < stride; ++t) ASSERT_EQ(scores[r * stride + t], kUntouched);
      }
    }
  }
}

TEST_P(TurnedKernel, QueriesAreRoundedTo127StepsOfTheirLargest) {
  TestRandom random(92);
  for (const int dim : {32, 96, 128, 512}) {
    const std::vector<float> exact = random.Gaussians(dim);
    const std::vector<float> turned = random.Gaussians(dim);
    std::vector<std::byte> got(TurnedQueryBytes(dim)), want(got.size());
    GetParam()->prepare_query(exact.data(), turned.data(), dim, got.data());
    ScalarTurnedKernels().prepare_query(exact.data(), turned.data(), dim, want.data());
    EXPECT_EQ(got, want) << dim;
    float step;
    std::memcpy(&step, got.data(), 4);
    const auto* codes = reinterpret_cast<const int8_t*>(got.data() + TurnedQueryCodes(dim));
    int largest = 0;
    for (int d = 0; d < dim; ++d) {
      EXPECT_NEAR(step * static_cast<float>(codes[d]), turned[d], 0.5001f * step);
      largest = std::max(largest, std::abs(int{codes[d]}));
    }
    EXPECT_EQ(largest, 127);
  }
}

TEST_P(TurnedKernel, AQueryThatIsNotFiniteGivesScoresThatAreNot) {
  TestRandom random(93);
  const Strip s = RandomStrip(4, true, 64, 16, random);
  for (const float odd : {kNan, kInf, -kInf}) {
    std::vector<float> query = random.Gaussians(64);
    query[9] = odd;
    std::vector<std::byte> prepared(TurnedQueryBytes(64));
    GetParam()->prepare_query(query.data(), query.data(), 64, prepared.data());
    std::vector<float> scores(16, 0.0f);
    GetParam()->key_scores[2](
        {s.bytes.data(), 64, 16, 16, prepared.data(), 1, scores.data(), 16, nullptr});
    for (const float score : scores) EXPECT_TRUE(std::isnan(score));
  }
  // Zero, and so small that its inverse is infinite: the mean alone, or nothing.
  for (const float small : {0.0f, 1e-44f}) {
    const std::vector<float> query(64, small);
    std::vector<std::byte> prepared(TurnedQueryBytes(64));
    GetParam()->prepare_query(query.data(), query.data(), 64, prepared.data());
    std::vector<float> scores(16, 1.0f);
    GetParam()->key_scores[2](
        {s.bytes.data(), 64, 16, 16, prepared.data(), 1, scores.data(), 16, nullptr});
    for (const float score : scores) EXPECT_NEAR(score, 0.0f, 1e-40f);
  }
}

std::vector<float> RandomWeights(const Case& c, TestRandom& random) {
  std::vector<float> weights(static_cast<size_t>(c.num_rows) * c.page_tokens, 0.0f);
  for (int r = 0; r < c.num_rows; ++r) {
    for (int t = 0; t < c.num_tokens; ++t)
      weights[static_cast<size_t>(r) * c.page_tokens + t] = std::exp(2 * random.Gaussian());
  }
  return weights;
}

TEST_P(TurnedKernel, AddedValuesAreTheSumsWithRoundedWeights) {
  TestRandom random(94);
  for (const int bits : {2, 3, 4}) {
    for (const Case& c : AllCases()) {
      const Strip s = RandomStrip(bits, false, c.dim, c.page_tokens, random);
      const std::vector<float> weights = RandomWeights(c, random);
      // Rows take turns: fine, because one token has the whole mass, and coarse.
      std::vector<float> sums(c.num_rows);
      for (int r = 0; r < c.num_rows; ++r) sums[r] = r % 3 == 1 ? 1e-6f : 1e9f;
      if (c.num_rows == 4) sums.assign(4, 1e9f);
      const size_t count = static_cast<size_t>(c.num_rows) * c.dim;
      const std::vector<float> before = random.Gaussians(count);
      GuardedBuffer<float> got(count), want(count);
      got.Assign(before);
      want.Assign(before);
      const AddValuesArgs args = {s.bytes.data(),
                                  c.dim,
                                  c.page_tokens,
                                  0,
                                  c.num_tokens,
                                  weights.data(),
                                  size_t(c.page_tokens),
                                  sums.data(),
                                  c.num_rows,
                                  got.data(),
                                  nullptr};
      AddValuesArgs scalar = args;
      scalar.accumulators = want.data();
      GetParam()->add_values[bits - 2](args);
      ScalarTurnedKernels().add_values[bits - 2](scalar);
      ASSERT_TRUE(got.ZonesIntact());
      for (int r = 0; r < c.num_rows; ++r) {
        double largest = 0.0;
        for (int t = 0; t < c.num_tokens; ++t)
          largest = std::max(
              largest, double{weights[static_cast<size_t>(r) * c.page_tokens + t]} * s.scales[t]);
        const double half_level = 0.51 * largest / (sums[r] > 1 ? 127 : 16256);
        for (int d = 0; d < c.dim; ++d) {
          const size_t at = static_cast<size_t>(r) * c.dim + d;
          double exact = before[at], bound = 0.0, size = std::abs(exact);
          for (int t = 0; t < c.num_tokens; ++t) {
            const double level = s.levels[static_cast<size_t>(t) * c.dim + d] / 32.0;
            const double weight = weights[static_cast<size_t>(r) * c.page_tokens + t];
            exact += weight * s.Row(t, d);
            size += std::abs(weight * s.Row(t, d));
            // Dither and rounding: a whole level.
            bound += (sums[r] > 1 ? 2 : 1) * half_level * std::abs(level);
          }
          ASSERT_NEAR(got[at], exact, bound + 8 * kUnitRoundoff * size)
              << bits << " bits, dim " << c.dim << " page " << c.page_tokens << " row " << r;
          // The same integers in every table: only the last product and sum may round.
          ASSERT_NEAR(got[at], want[at], 4 * kUnitRoundoff * size)
              << bits << " bits, dim " << c.dim << " page " << c.page_tokens << " row " << r;
        }
      }
    }
  }
}

TEST_P(TurnedKernel, WeightsThatAreNothingAddNothing) {
  TestRandom random(95);
  Strip s = RandomStrip(3, false, 64, 32, random);
  for (const float odd : {0.0f, kNan, 1e-38f}) {
    const std::vector<float> weights(32, odd);
    const float sum = 1.0f;
    const std::vector<float> before = random.Gaussians(64);
    std::vector<float> got = before;
    GetParam()->add_values[1](
        {s.bytes.data(), 64, 32, 0, 32, weights.data(), 32, &sum, 1, got.data(), nullptr});
    EXPECT_TRUE(SameBits(got.data(), before.data(), 64)) << odd;
  }
}

TEST_P(TurnedKernel, QuantizesToTheSameBitsAsScalar) {
  TestRandom random(96);
  for (const int bits : {2, 3, 4}) {
    for (const int dim : {32, 64, 96, 128, 512}) {
      const int num_rows = 9;
      std::vector<float> rows = random.Gaussians(static_cast<size_t>(num_rows) * dim);
      for (int d = 0; d < dim; ++d) {
        rows[dim + d] *= 1e-7f;                    // a subnormal scale
        rows[2 * dim + d] = 0.0f;                  // none
        rows[3 * dim + d] *= 1e5f;                 // one that is cut
        rows[4 * dim + d] *= 1e-30f;               // squares underflow
        rows[5 * dim + d] = d % 2 ? 1.0f : -1.0f;  // all alike
      }
      rows[6 * dim] = -0.0f;
      std::vector<uint16_t> scales(num_rows), want_scales(num_rows);
      std::vector<uint8_t> codes(rows.size()), want_codes(rows.size());
      const uint64_t replaced =
          GetParam()->quantize[bits - 2](rows.data(), num_rows, dim, scales.data(), codes.data());
      EXPECT_EQ(replaced, ScalarTurnedKernels().quantize[bits - 2](
                              rows.data(), num_rows, dim, want_scales.data(), want_codes.data()));
      EXPECT_EQ(scales, want_scales) << bits << ' ' << dim;
      EXPECT_EQ(codes, want_codes) << bits << ' ' << dim;
      EXPECT_EQ(scales[2], 0);
      EXPECT_EQ(scales[4], 0);
      EXPECT_EQ(replaced, 0x7BFF == scales[3] ? dim : 0u);
      for (const uint8_t code : codes) ASSERT_LT(code, 1 << bits);
    }
  }
}

TEST_P(TurnedKernel, ReadingAheadChangesNothing) {
  TestRandom random(97);
  const Strip s = RandomStrip(3, true, 128, 64, random);
  const std::vector<float> query = random.Gaussians(4 * 128);
  std::vector<std::byte> prepared(4 * TurnedQueryBytes(128));
  for (int r = 0; r < 4; ++r)
    GetParam()->prepare_query(&query[r * 128], &query[r * 128], 128,
                              &prepared[r * TurnedQueryBytes(128)]);
  std::vector<float> scores[2];
  for (int with = 0; with < 2; ++with) {
    ReadAhead ahead;
    ahead.Add(s.bytes.data(), s.bytes.size());
    ahead.Add(s.bytes.data(), 100);
    ahead.cursor.rate = 2;
    scores[with].resize(4 * 64);
    GetParam()->key_scores[1]({s.bytes.data(), 128, 64, 64, prepared.data(), 4, scores[with].data(),
                               64, with == 1 ? &ahead : nullptr});
  }
  EXPECT_EQ(scores[0], scores[1]);
}

}  // namespace turned_kernels_test
}  // namespace varve
