// Attention on pq strips: whatever method is used, scores are those of the decoded keys and sums
// those of the decoded values.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "kernels/kernel_testing.h"
#include "rungs/pq/pq_rung.h"
#include "rungs/pq/pq_testing.h"

namespace varve {
namespace pq_rung_attention_test {

struct Size {
  int dim;
  PqSize size;
  int page_tokens;
};
const Size kSizes[] = {{16, {1, 4}, 16},   {48, {16, 5}, 64},  {64, {32, 6}, 32},
                       {80, {16, 7}, 128}, {64, {32, 8}, 64},  {128, {64, 4}, 64},
                       {96, {32, 9}, 16},  {64, {16, 12}, 32}, {64, {64, 8}, 16}};

const char* NameOf(PqKeyMethod method) {
  return method == PqKeyMethod::kAuto     ? "auto"
         : method == PqKeyMethod::kBytes  ? "bytes"
         : method == PqKeyMethod::kTables ? "tables"
                                          : "decode";
}
const char* NameOf(PqValueMethod method) {
  return method == PqValueMethod::kAuto        ? "auto"
         : method == PqValueMethod::kBytes     ? "bytes"
         : method == PqValueMethod::kCentroids ? "centroids"
                                               : "decode";
}

// Prepared queries begin at a line of the cache.
struct AlignedBytes {
  explicit AlignedBytes(size_t bytes)
      : data(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {}
  ~AlignedBytes() { ::operator delete (data, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::byte* data;
};

// Strips of one head, and their rows as Decode gives them.
struct Pages {
  Pages(const Size& size, Part part, bool rotated, int count)
      : shape{1, 0, size.dim, size.page_tokens} {
    CacheShape model;
    model.num_layers = model.num_kv_heads = 2;
    model.key_dim = model.value_dim = size.dim;
    rung = std::make_unique<PqRung>(MakePqRung(
        size.size, SharePqCodebook(model, {{part, size.size, CodebookGrain::kHead, rotated}}, 3)));
    TestRandom random(21);
    for (int p = 0; p < count; ++p) {
      // The last page is not full.
      const int num_rows = p + 1 < count ? size.page_tokens : size.page_tokens - 3;
      const std::vector<float> rows =
          random.Gaussians(static_cast<size_t>(num_rows) * static_cast<size_t>(size.dim));
      std::vector<std::byte> strip(rung->StripBytes(part, shape));
      EXPECT_EQ(rung->Encode(part, shape, rows.data(), num_rows, strip.data()), 0u);
      std::vector<float> all(static_cast<size_t>(size.page_tokens) * size.dim);
      rung->Decode(part, shape, strip.data(), 0, size.page_tokens, all.data());
      strips.push_back(std::move(strip));
      decoded.push_back(std::move(all));
    }
  }

  StripShape shape;
  std::unique_ptr<PqRung> rung;
  std::vector<std::vector<std::byte>> strips;
  std::vector<std::vector<float>> decoded;  // [page_tokens, dim] each
};

double Length(const float* row, int dim) {
  double sum = 0;
  for (int d = 0; d < dim; ++d) sum += static_cast<double>(row[d]) * row[d];
  return std::sqrt(sum);
}

std::vector<float> ScoresOf(const Pages& pages, const std::vector<float>& queries, int num_rows) {
  const StripShape& shape = pages.shape;
  const size_t row_bytes = pages.rung->PreparedRowBytes(shape, num_rows);
  const AlignedBytes prepared(row_bytes * static_cast<size_t>(num_rows));
  pages.rung->PrepareQuery(shape, queries.data(), num_rows, prepared.data);
  const size_t stride = static_cast<size_t>(shape.page_tokens) + 16;
  std::vector<float> scores(static_cast<size_t>(num_rows) * stride, 1e30f);
  // The first row alone, the others together: rows may come in parts.
  pages.rung->Scores(shape, pages.strips[0].data(), prepared.data, 1, shape.page_tokens,
                     scores.data(), stride, nullptr);
  if (num_rows > 1) {
    pages.rung->Scores(shape, pages.strips[0].data(), prepared.data + row_bytes, num_rows - 1,
                       shape.page_tokens, scores.data() + stride, stride, nullptr);
  }
  for (int row = 0; row < num_rows; ++row) {
    EXPECT_EQ(scores[static_cast<size_t>(row) * stride + shape.page_tokens], 1e30f);
  }
  return scores;
}

class PqAttention : public testing::TestWithParam<bool> {};  // rotated

TEST_P(PqAttention, ScoresByEveryMethodAreThoseOfTheDecodedKeys) {
  for (const Size& size : kSizes) {
    const Pages pages(size, Part::kKey, GetParam(), 1);
    for (const PqKeyMethod method :
         {PqKeyMethod::kAuto, PqKeyMethod::kBytes, PqKeyMethod::kTables, PqKeyMethod::kDecode}) {
      const ScopedPqMethods scope({method, PqValueMethod::kAuto});
      for (const int num_rows : {1, 2, 7, 20}) {
        std::vector<float> queries =
            TestRandom(22).Gaussians(static_cast<size_t>(num_rows) * size.dim);
        queries[0] *= 40.0f;  // one channel above the others, as RoPE has it
        const std::vector<float> scores = ScoresOf(pages, queries, num_rows);
        // With 4-bit codes the query is 8-bit integers (bytes), or its products with centroids are
        // 14-bit ones (tables), relative to the largest: less is left for the other channels where
        // one is 40 times as large.
        const PqKeyMethod chosen =
            ChoosePqKeyMethod(PqKernelsOf(ActiveKernels()), size.size.bits, num_rows);
        const bool shuffles = size.size.bits == 4 && chosen == PqKeyMethod::kTables;
        const bool coarse = size.size.bits == 4 && chosen == PqKeyMethod::kBytes;
        for (int row = 0; row < num_rows; ++row) {
          double worst = 0;
          const float* query = queries.data() + static_cast<size_t>(row) * size.dim;
          for (int t = 0; t < size.page_tokens; ++t) {
            const float* key = pages.decoded[0].data() + static_cast<size_t>(t) * size.dim;
            double dot = 0;
            for (int d = 0; d < size.dim; ++d) dot += static_cast<double>(query[d]) * key[d];
            const size_t at = static_cast<size_t>(row) * (size.page_tokens + 16) + t;
            worst = std::max(worst, std::abs(scores[at] - dot) /
                                        (Length(query, size.dim) * Length(key, size.dim) + 1e-6));
          }
          const bool outlier = row == 0;
          const double coarse_limit = outlier ? 1e-2 : 5e-3;
          const double limit = shuffles && outlier ? 3e-4 : 1e-4;
          EXPECT_LT(worst, coarse ? coarse_limit : limit)
              << PqName(size.size) << " of " << size.dim << " by " << NameOf(method) << ", row "
              << row << " of " << num_rows;
        }
      }
    }
  }
}

// Sums of one call over all pages, or of a call for each page.
std::vector<float> ValuesOf(const Pages& pages, const std::vector<float>& weights, size_t stride,
                            int num_rows, bool one_call) {
  const StripShape& shape = pages.shape;
  std::vector<ValuePage> list;
  for (size_t p = 0; p < pages.strips.size(); ++p) {
    list.push_back({pages.strips[p].data(), 0, shape.page_tokens,
                    weights.data() + p * static_cast<size_t>(shape.page_tokens)});
  }
  std::vector<float> sums(static_cast<size_t>(num_rows));
  for (int row = 0; row < num_rows; ++row) {
    for (size_t i = 0; i < pages.strips.size() * static_cast<size_t>(shape.page_tokens); ++i)
      sums[static_cast<size_t>(row)] += weights[static_cast<size_t>(row) * stride + i];
  }
  EXPECT_EQ(pages.rung->AccumulatorFloats(shape), static_cast<size_t>(shape.dim));
  std::vector<float> accumulators(static_cast<size_t>(num_rows) * shape.dim, 0.0f);
  const size_t per_call = one_call ? list.size() : 1;
  for (size_t p = 0; p < list.size(); p += per_call) {
    pages.rung->AddValuePages(shape, {list.data() + p, per_call}, stride, sums.data(), num_rows,
                              accumulators.data(), nullptr);
  }
  std::vector<float> output(accumulators.size(), 0.5f);  // added to
  pages.rung->FinishValues(shape, accumulators.data(), num_rows, output.data());
  for (float& x : output) x -= 0.5f;
  return output;
}

TEST_P(PqAttention, ValuesByEveryMethodAreTheSumOfTheDecodedRows) {
  for (const Size& size : kSizes) {
    for (const int count : {1, 3, 16}) {
      if (count == 16 && (size.dim > 64 || size.page_tokens > 64)) continue;  // nothing new
      const Pages pages(size, Part::kValue, GetParam(), count);
      ASSERT_LE(count, pages.rung->most_value_pages());
      const size_t stride = static_cast<size_t>(count * size.page_tokens) + 16;
      for (const bool flat : {false, true}) {
        const int num_rows = 5;
        std::vector<float> weights = TestRandom(23).Gaussians(num_rows * stride);
        for (float& weight : weights) weight = std::exp((flat ? 0.3f : 5.0f) * weight);
        for (const PqValueMethod method : {PqValueMethod::kAuto, PqValueMethod::kBytes,
                                           PqValueMethod::kCentroids, PqValueMethod::kDecode}) {
          const ScopedPqMethods scope({PqKeyMethod::kAuto, method});
          const bool rounds =
              ChoosePqValueMethod(PqKernelsOf(ActiveKernels()), size.size.bits,
                                  size.dim / size.size.subspaces) == PqValueMethod::kBytes;
          const std::vector<float> together = ValuesOf(pages, weights, stride, num_rows, true);
          const std::vector<float> apart = ValuesOf(pages, weights, stride, num_rows, false);
          double worst = 0;
          for (int row = 0; row < num_rows; ++row) {
            std::vector<double> expected(static_cast<size_t>(size.dim), 0.0);
            double mass = 0;
            for (size_t p = 0; p < pages.strips.size(); ++p) {
              for (int t = 0; t < size.page_tokens; ++t) {
                const double weight =
                    weights[static_cast<size_t>(row) * stride + p * size.page_tokens + t];
                const float* value = pages.decoded[p].data() + static_cast<size_t>(t) * size.dim;
                for (size_t d = 0; d < expected.size(); ++d) expected[d] += weight * value[d];
                mass += weight * Length(value, size.dim);
              }
            }
            for (size_t d = 0; d < expected.size(); ++d) {
              const size_t at = static_cast<size_t>(row) * expected.size() + d;
              const double unit = mass / std::sqrt(size.dim) + 1e-6;
              worst = std::max(worst, std::abs(together[at] - expected[d]) / unit);
              worst = std::max(worst, std::abs(apart[at] - expected[d]) / unit);
            }
          }
          // Of the rounding of weights, as in pq_kernels_test.cc; or of f32 alone.
          EXPECT_LT(worst, !rounds               ? 2e-5
                           : size.size.bits == 4 ? 3e-2
                           : size.size.bits <= 6 ? 1.5e-2
                                                 : 1e-2)
              << PqName(size.size) << " of " << size.dim << " by " << NameOf(method) << " pages "
              << count << (flat ? " flat" : " sharp");
        }
      }
    }
  }
}

TEST_P(PqAttention, RowsWithoutWeightAndQueriesWithoutLengthGiveZeros) {
  const Size size = {64, {32, 8}, 32};
  const Pages keys(size, Part::kKey, GetParam(), 1);
  const Pages values(size, Part::kValue, GetParam(), 3);
  for (const PqKeyMethod method :
       {PqKeyMethod::kBytes, PqKeyMethod::kTables, PqKeyMethod::kDecode}) {
    const ScopedPqMethods scope({method, PqValueMethod::kAuto});
    const std::vector<float> scores = ScoresOf(keys, std::vector<float>(2 * 64, 0.0f), 2);
    for (int t = 0; t < 32; ++t) EXPECT_EQ(scores[static_cast<size_t>(t)], 0.0f);
  }
  for (const PqValueMethod method :
       {PqValueMethod::kBytes, PqValueMethod::kCentroids, PqValueMethod::kDecode}) {
    const ScopedPqMethods scope({PqKeyMethod::kAuto, method});
    for (const float x : ValuesOf(values, std::vector<float>(2 * 112, 0.0f), 112, 2, true))
      EXPECT_EQ(x, 0.0f) << NameOf(method);
  }
}

TEST_P(PqAttention, OfEveryTableOfKernelsAgrees) {
  const Size size = {128, {64, 8}, 64};
  const std::vector<float> queries = TestRandom(24).Gaussians(3 * 128);
  std::vector<float> weights = TestRandom(25).Gaussians(3 * 208);
  for (float& weight : weights) weight = std::exp(weight);
  std::vector<float> first_scores, first_values;
  for (const Kernels* kernels : AllTables()) {
    const ScopedKernels scope(*kernels);
    const Pages keys(size, Part::kKey, GetParam(), 1);
    const Pages values(size, Part::kValue, GetParam(), 3);
    const std::vector<float> scores = ScoresOf(keys, queries, 3);
    const std::vector<float> sums = ValuesOf(values, weights, 208, 3, true);
    if (first_scores.empty()) first_scores = scores, first_values = sums;
    for (int t = 0; t < 64; ++t) EXPECT_NEAR(scores[t], first_scores[t], 0.02) << kernels->name;
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_NEAR(sums[i], first_values[i], 0.01 * 3 * 64 * 2) << kernels->name;
  }
}

std::string TurnedName(const testing::TestParamInfo<bool>& info) {
  return info.param ? "turned" : "plain";
}

INSTANTIATE_TEST_SUITE_P(Rotated, PqAttention, testing::Bool(), TurnedName);

}  // namespace pq_rung_attention_test
}  // namespace varve
