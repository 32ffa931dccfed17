// Attention on stored bytes equals decoding and computing in double precision, for every rung,
// within bounds that follow from how the query and the weights are rounded, and not better than
// those allow.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "rungs/rotation.h"
#include "rungs/rung_testing.h"

namespace varve {
namespace rung_attention_test {

class RungAttention : public EveryRung {
 protected:
  // The space in which a coded rung rounds: rows as stored, rotated if it rotates.
  std::vector<float> InRoundingSpace(std::vector<float> rows, int dim) const {
    if (IsRotated(rung()))
      RotateRows(ActiveKernels(), rows.data(), static_cast<int>(rows.size()) / dim, dim);
    return rows;
  }
  // Rotations in f32, relative to the norm: one rounding per stage and the final factor.
  double RotationError(int dim) const {
    return IsRotated(rung()) ? (std::log2(RotationBlock(dim)) + 2) * kUnitRoundoff : 0.0;
  }
};
INSTANTIATE_TEST_SUITE_P(Rungs, RungAttention, testing::ValuesIn(AllRungNames()), RungName);

// Bound and variance of what rounding the query does to a score, or the weights to an output.
struct RoundingError {
  double bound = 0.0;
  double variance = 0.0;
};

// Levels of the query are max / 32512 in each block of 32; q4_0 keeps every 256th.
RoundingError RoundingOfQuery(const float* query, const float* key, int dim, bool q4) {
  RoundingError rounding;
  for (int b = 0; b < dim; b += kBlockValues) {
    double largest = 0.0;
    for (int d = b; d < b + kBlockValues; ++d)
      largest = std::max<double>(largest, std::abs(query[d]));
    const double level = largest / 32512.0;
    for (int d = b; d < b + kBlockValues; ++d) {
      rounding.bound += (q4 ? 128.6 : 0.6) * level * std::abs(key[d]);
      rounding.variance += std::pow(level * (q4 ? 256 : 1) * key[d], 2) / 12;
    }
  }
  return rounding;
}

// Turned keys: one step for the whole query, of keys less their mean.
RoundingError RoundingOfTurnedQuery(const float* query, const float* key, int dim) {
  RoundingError rounding;
  double largest = 0.0;
  for (int d = 0; d < dim; ++d) largest = std::max<double>(largest, std::abs(query[d]));
  for (int d = 0; d < dim; ++d) {
    rounding.bound += 0.51 * largest / 127 * std::abs(key[d]);
    rounding.variance += std::pow(largest / 127 * key[d], 2) / 12;
  }
  return rounding;
}

// [dim], zero where a rung keeps none.
std::vector<float> MeanOf(const Rung& rung, const StoredRows& key) {
  std::vector<uint16_t> bits(key.shape.dim, 0);
  if (IsTurned(rung)) std::memcpy(bits.data(), key.strip.data(), 2 * bits.size());
  std::vector<float> mean(bits.size());
  std::transform(bits.begin(), bits.end(), mean.begin(), F16ToF32);
  return mean;
}

TEST_P(RungAttention, ScoresAreTheDotProductsWithTheDecodedKeys) {
  TestRandom random(51);
  const int row_counts[] = {1, 2, 3, 4, 5, 8, 9};
  double errors = 0.0, expected = 0.0;
  size_t turn = 0;
  for (const int dim : DimsOf(rung())) {
    for (const int page_tokens : {16, 32, 64, 128}) {
      const int num_rows = row_counts[turn++ % 7];
      const int num_tokens = page_tokens - static_cast<int>(turn % 3);
      const StoredRows key = Store(rung(), Part::kKey, dim, page_tokens,
                                   random.Gaussians(static_cast<size_t>(num_tokens) * dim));
      const std::vector<float> queries = random.Gaussians(static_cast<size_t>(num_rows) * dim);
      std::vector<std::byte> prepared(num_rows * rung().PreparedRowBytes(key.shape, num_rows));
      rung().PrepareQuery(key.shape, queries.data(), num_rows, prepared.data());
      GuardedBuffer<float> scores(static_cast<size_t>(num_rows) * page_tokens);
      rung().Scores(key.shape, key.strip.data(), prepared.data(), num_rows, num_tokens,
                    scores.data(), page_tokens, nullptr);
      ASSERT_TRUE(scores.ZonesIntact());
      const std::vector<float> mean = MeanOf(rung(), key);
      std::vector<float> rounded_keys = key.decoded;
      for (size_t i = 0; i < rounded_keys.size(); ++i) rounded_keys[i] -= mean[i % dim];
      rounded_keys = InRoundingSpace(std::move(rounded_keys), dim);
      const std::vector<float> rounded_queries = InRoundingSpace(queries, dim);
      for (int r = 0; r < num_rows; ++r) {
        for (int t = 0; t < num_tokens; ++t) {
          const float* q = &queries[static_cast<size_t>(r) * dim];
          double exact = 0.0, size = 0.0;
          for (int d = 0; d < dim; ++d) {
            exact += static_cast<double>(q[d]) * key.value(t, d);
            size += std::abs(static_cast<double>(q[d]) * key.value(t, d));
          }
          const double norms = Norm(q, dim) * Norm(&key.decoded[static_cast<size_t>(t) * dim], dim);
          RoundingError rounding;
          if (IsBlock(rung())) {
            rounding =
                RoundingOfQuery(&rounded_queries[static_cast<size_t>(r) * dim],
                                &rounded_keys[static_cast<size_t>(t) * dim], dim, IsQ4(rung()));
            size = norms;  // at least the blocks' sums in either space
          } else if (IsTurned(rung())) {
            rounding = RoundingOfTurnedQuery(&rounded_queries[static_cast<size_t>(r) * dim],
                                             &rounded_keys[static_cast<size_t>(t) * dim], dim);
            size = norms + Norm(q, dim) * Norm(mean.data(), dim);
          }
          const double error = scores[static_cast<size_t>(r) * page_tokens + t] - exact;
          const int roundings = IsBlock(rung()) ? dim / kBlockValues + 3 : dim + 1;
          ASSERT_LE(std::abs(error), rounding.bound + roundings * kUnitRoundoff * size +
                                         2 * RotationError(dim) * norms)
              << "dim " << dim << " page " << page_tokens << " token " << t;
          errors += error * error;
          expected += rounding.variance;
        }
      }
    }
  }
  if (IsCoded(rung())) {
    // Uniform rounding: the query's largest value of each block is exact, the rest not better.
    EXPECT_GT(std::sqrt(errors / expected), 0.85);
    EXPECT_LT(std::sqrt(errors / expected), 1.15);
  }
}

struct Weights {
  std::vector<float> values;  // [num_rows, page_tokens]
  std::vector<float> max;     // [num_rows]; as a total it makes every weight a large one
};

Weights RandomWeights(int num_rows, int page_tokens, int first, int count, TestRandom& random) {
  Weights w{std::vector<float>(static_cast<size_t>(num_rows) * page_tokens, 0.0f),
            std::vector<float>(num_rows, 0.0f)};
  for (int r = 0; r < num_rows; ++r) {
    for (int t = first; t < first + count; ++t) {
      const float weight = std::exp(1.5f * random.Gaussian());
      w.values[static_cast<size_t>(r) * page_tokens + t] = weight;
      w.max[r] = std::max(w.max[r], weight);
    }
  }
  return w;
}

// Sum of squares of the bounds, and of the variances, over the channels of one row: what rounding
// weight * scale to 32767 levels (q4_0: 32512) of the page's largest does to the output.
RoundingError RoundingOfWeights(const std::vector<float>& stored, int dim, int page_tokens,
                                int first, int count, float weight_max, bool q4) {
  const double codes = q4 ? 8 : 127;  // the largest value of a block has this code
  RoundingError total;
  for (int b = 0; b < dim; b += kBlockValues) {
    std::vector<double> scale(page_tokens, 0.0);
    for (int t = 0; t < page_tokens; ++t) {
      for (int d = b; d < b + kBlockValues; ++d) {
        scale[t] = std::max(
            scale[t],
            std::abs(static_cast<double>(stored[static_cast<size_t>(t) * dim + d])) / codes);
      }
    }
    const double step =
        weight_max * *std::max_element(scale.begin(), scale.end()) / (q4 ? 32512.0 : 32767.0);
    for (int d = b; d < b + kBlockValues; ++d) {
      double bound = 0.0;
      for (int t = first; t < first + count; ++t) {
        if (scale[t] == 0.0) continue;
        const double code = std::abs(stored[static_cast<size_t>(t) * dim + d]) / scale[t];
        bound += 0.51 * step * code;
        total.variance += step * step * code * code / 12;
      }
      total.bound += bound * bound;
    }
  }
  return total;
}

// The same of turned values: weight * scale is rounded to 16256 levels of the page's largest.
RoundingError RoundingOfTurnedWeights(const StoredRows& value, const std::vector<float>& turned,
                                      const float* weights) {
  const int dim = value.shape.dim, page_tokens = value.shape.page_tokens;
  std::vector<double> scale(page_tokens);
  double largest = 0.0;
  for (int t = 0; t < page_tokens; ++t) {
    uint16_t bits;
    std::memcpy(&bits, &value.strip[2 * t], 2);
    scale[t] = F16ToF32(bits);
    largest = std::max(largest, weights[t] * scale[t]);
  }
  RoundingError total;
  for (int d = 0; d < dim; ++d) {
    double bound = 0.0;
    for (int t = 0; t < page_tokens; ++t) {
      if (weights[t] == 0.0f) continue;
      const double code = std::abs(turned[static_cast<size_t>(t) * dim + d]) / scale[t];
      bound += 0.51 * largest / 16256 * code;
      total.variance += std::pow(largest / 16256 * code, 2) / 12;
    }
    total.bound += bound * bound;
  }
  return total;
}

TEST_P(RungAttention, AddedValuesAreTheWeightedSumOfTheDecodedRows) {
  TestRandom random(52);
  const int row_counts[] = {1, 2, 3, 4, 5, 8, 9};
  double errors = 0.0, expected = 0.0;
  size_t turn = 0;
  for (const int dim : DimsOf(rung())) {
    for (const int page_tokens : {16, 32, 64, 128}) {
      const int num_rows = row_counts[turn++ % 7];
      const int first = static_cast<int>(turn % 4),
                count = page_tokens - first - static_cast<int>(turn % 3);
      const StoredRows value = Store(rung(), Part::kValue, dim, page_tokens,
                                     random.Gaussians(static_cast<size_t>(page_tokens) * dim));
      const Weights w = RandomWeights(num_rows, page_tokens, first, count, random);
      const size_t floats = rung().AccumulatorFloats(value.shape);
      GuardedBuffer<float> sums(num_rows * floats), output(static_cast<size_t>(num_rows) * dim);
      sums.Fill(0.0f);
      const std::vector<float> before = random.Gaussians(output.size());
      output.Assign(before);
      AddPage(rung(), value.shape, value.strip.data(), first, count, w.values.data(), page_tokens,
              w.max.data(), num_rows, sums.data());
      rung().FinishValues(value.shape, sums.data(), num_rows, output.data());
      ASSERT_TRUE(sums.ZonesIntact() && output.ZonesIntact());
      const std::vector<float> stored = InRoundingSpace(value.decoded, dim);
      for (int r = 0; r < num_rows; ++r) {
        double error = 0.0, size = 0.0;  // sums of squares over the row
        for (int d = 0; d < dim; ++d) {
          const size_t at = static_cast<size_t>(r) * dim + d;
          double exact = before[at], terms = std::abs(exact);
          for (int t = first; t < first + count; ++t) {
            const double term =
                w.values[static_cast<size_t>(r) * page_tokens + t] * double{value.value(t, d)};
            exact += term;
            terms += std::abs(term);
          }
          error += std::pow(output[at] - exact, 2);
          size += terms * terms;
        }
        RoundingError rounding;
        if (IsBlock(rung())) {
          rounding =
              RoundingOfWeights(stored, dim, page_tokens, first, count, w.max[r], IsQ4(rung()));
        } else if (IsTurned(rung())) {
          rounding = RoundingOfTurnedWeights(value, stored,
                                             &w.values[static_cast<size_t>(r) * page_tokens]);
        }
        const int roundings = IsCoded(rung()) ? 9 : count + 2;
        ASSERT_LE(std::sqrt(error),
                  std::sqrt(rounding.bound) +
                      (roundings * kUnitRoundoff + 2 * RotationError(dim)) * std::sqrt(size))
            << "dim " << dim << " page " << page_tokens << " tokens " << first << '+' << count;
        errors += error;
        expected += rounding.variance;
      }
    }
  }
  if (IsCoded(rung())) {
    EXPECT_GT(std::sqrt(errors / expected), 0.85);
    EXPECT_LT(std::sqrt(errors / expected), 1.1);
  }
}

TEST(RungSpaces, PagesOfDifferentRungsShareAnAccumulatorPerSpace) {
  TestRandom random(53);
  const int dim = 96, page_tokens = 32, num_rows = 3;
  const StripShape shape{0, 0, dim, page_tokens};
  std::vector<float> sums[kNumSharedValueSpaces];
  for (auto& sum : sums) sum.assign(num_rows * dim, 0.0f);
  std::vector<double> exact(num_rows * dim, 0.0), size(num_rows * dim, 0.0);
  for (const std::string& name : AllRungNames()) {
    const Rung& rung = TestRung(name);
    const StoredRows value =
        Store(rung, Part::kValue, dim, page_tokens, random.Gaussians(size_t{32} * dim));
    const Weights w = RandomWeights(num_rows, page_tokens, 0, page_tokens, random);
    AddPage(rung, shape, value.strip.data(), 0, page_tokens, w.values.data(), page_tokens,
            w.max.data(), num_rows, sums[static_cast<int>(rung.value_space())].data());
    for (int i = 0; i < num_rows * dim; ++i) {
      for (int t = 0; t < page_tokens; ++t) {
        const double term = double{w.values[i / dim * page_tokens + t]} * value.value(t, i % dim);
        exact[i] += term;
        size[i] += std::abs(term);
      }
    }
  }
  std::vector<float> output(num_rows * dim, 0.0f);
  TestRung("q8_0").FinishValues(shape, sums[static_cast<int>(ValueSpace::kPlain)].data(), num_rows,
                                output.data());
  TestRung("q4_0r").FinishValues(shape, sums[static_cast<int>(ValueSpace::kRotated)].data(),
                                 num_rows, output.data());
  // 2^-14 is the coarsest rounding of a weight, that of turned rungs.
  for (int i = 0; i < num_rows * dim; ++i) ASSERT_NEAR(output[i], exact[i], 0x1p-14 * size[i]) << i;
}

TEST(RungSpaces, RungsOfOneKeySpaceShareThePreparedQuery) {
  TestRandom random(54);
  const StripShape shape{0, 0, 128, 16};
  const std::vector<float> queries = random.Gaussians(size_t{3} * 128);
  const auto prepare = [&](const char* name) {
    std::vector<std::byte> prepared(3 * TestRung(name).PreparedRowBytes(shape, 3));
    TestRung(name).PrepareQuery(shape, queries.data(), 3, prepared.data());
    return prepared;
  };
  EXPECT_EQ(prepare("f32"), prepare("bf16"));
  EXPECT_EQ(prepare("q8_0"), prepare("q4_0"));
  EXPECT_EQ(prepare("q8_0r"), prepare("q4_0r"));
  EXPECT_EQ(prepare("t4"), prepare("t2"));
  EXPECT_NE(prepare("q8_0"), prepare("q8_0r"));
  for (const auto& [a, b] :
       {std::pair{"f32", "f16"}, {"q8_0", "q4_0"}, {"q8_0r", "q4_0r"}, {"t4", "t3"}}) {
    EXPECT_EQ(TestRung(a).key_space(), TestRung(b).key_space());
    EXPECT_EQ(TestRung(a).value_space(), TestRung(b).value_space());
  }
}

TEST_P(RungAttention, SmallWeightsBesideASinkKeepTheirShare) {
  // One token has weight 1, 63 have 5e-4: together 3 % of the mass, which 8-bit weights would lose.
  // A small weight is 5e-4 * 32767 = 16 levels times the token's scale over the page's largest,
  // here about 0.65 on average; rounding is 0.29 levels rms. So 2.8 % of each term, and the same of
  // the sum when the rows share nothing, which is the worst case. Turned rungs have half the
  // levels.
  const double bound = IsTurned(rung()) ? 0.06 : IsBlock(rung()) ? 0.04 : 0.001;
  TestRandom random(55);
  for (const int dim : {64, 128, 256}) {
    const StoredRows value =
        Store(rung(), Part::kValue, dim, 64, random.Gaussians(size_t{64} * dim));
    std::vector<float> weights(64, 5e-4f), sums(dim, 0.0f), output(dim, 0.0f);
    weights[0] = 1.0f;
    AddPage(rung(), value.shape, value.strip.data(), 0, 64, weights.data(), 64, weights.data(), 1,
            sums.data());
    rung().FinishValues(value.shape, sums.data(), 1, output.data());
    double error = 0.0, share = 0.0;
    for (int d = 0; d < dim; ++d) {
      double small = 0.0;
      for (int t = 1; t < 64; ++t) small += 5e-4f * double{value.value(t, d)};
      error += std::pow(output[d] - value.value(0, d) - small, 2);
      share += small * small;
    }
    EXPECT_LT(std::sqrt(error / share), bound) << "dim " << dim;
    EXPECT_GT(std::sqrt(error / share), bound / 50) << "dim " << dim;
  }
}

}  // namespace rung_attention_test
}  // namespace varve
