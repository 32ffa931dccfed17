#include "cli/codebook/codebook_training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/random.h"

namespace varve::cli {
namespace codebook_training_test {

constexpr int kDim = 16;

// Like a normal distribution.
float Noise(SplitMix64& random) {
  float sum = 0;
  for (int i = 0; i < 6; ++i) sum += static_cast<float>(random.Next() >> 40) * 0x1p-24f - 0.5f;
  return sum;
}

std::vector<float> NoiseRows(size_t count, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> rows(count * kDim);
  for (float& value : rows) value = Noise(random);
  return rows;
}

Result<Codebook> Train(const std::vector<float>& rows, CodebookSize size, int threads = 2,
                       TrainingOptions options = {}) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  const SharedRows shared = {Part::kKey, kDim, rows, {size}};
  return TrainOnRows({&shared, 1}, 1, 1, CodebookGrain::kHead, options, *executor);
}

// Mean of |x - decoded|^2 / |x|^2 for the nearest centroids of group 0, by comparing all.
double Error(const CodebookTable& table, const std::vector<float>& rows) {
  const size_t dim = static_cast<size_t>(table.dim);
  const size_t codes = static_cast<size_t>(table.num_codes());
  const size_t sub_dim = static_cast<size_t>(table.sub_dim());
  double total = 0;
  for (size_t r = 0; r < rows.size() / dim; ++r) {
    double norm = 0;
    for (size_t d = 0; d < dim; ++d) norm += rows[r * dim + d] * rows[r * dim + d];
    if (norm == 0) continue;
    for (size_t m = 0; m < static_cast<size_t>(table.num_subspaces); ++m) {
      double least = std::numeric_limits<double>::infinity();
      for (size_t j = 0; j < codes; ++j) {
        double sum = 0;
        for (size_t d = 0; d < sub_dim; ++d) {
          const int byte = table.centroids[(m * sub_dim + d) * codes + j];
          const double step =
              rows[r * dim + m * sub_dim + d] / std::sqrt(norm) - table.scales[m] * (byte - 128);
          sum += step * step;
        }
        least = std::min(least, sum);
      }
      total += least;
    }
  }
  return total / (static_cast<double>(rows.size()) / kDim);
}

TEST(CodebookTraining, ErrorIsThatOfKMeansOnNoise) {
  const std::vector<float> rows = NoiseRows(2000, 1);
  const Result<Codebook> codebook = Train(rows, {8, 6});
  ASSERT_TRUE(codebook.ok()) << codebook.status().message();
  // 3 bits per value: a scalar quantizer of a normal distribution leaves 0.035, a good one of pairs
  // 0.03 and the bound is 0.016; on other rows a little more.
  EXPECT_GT(Error(codebook->tables[0], rows), 0.016);
  EXPECT_LT(Error(codebook->tables[0], rows), 0.032);
  EXPECT_LT(Error(codebook->tables[0], NoiseRows(500, 2)), 0.038);
}

TEST(CodebookTraining, ClustersAreFoundUpToTheRounding) {
  // 16 directions in each of 4 sub-spaces; rows of all lengths.
  SplitMix64 random(3);
  std::vector<float> corners(16 * 4);
  for (float& value : corners) value = Noise(random);
  for (size_t j = 0; j < 16; ++j) {
    float norm = 0;
    for (size_t d = 0; d < 4; ++d) norm += corners[j * 4 + d] * corners[j * 4 + d];
    for (size_t d = 0; d < 4; ++d) corners[j * 4 + d] /= std::sqrt(norm);
  }
  std::vector<float> rows;
  for (int r = 0; r < 3000; ++r) {
    const float length = 0.01f + 100.0f * static_cast<float>(random.Next() % 1000);
    for (int m = 0; m < 4; ++m) {
      const size_t j = random.Next() % 16;
      for (size_t d = 0; d < 4; ++d) rows.push_back(length * corners[j * 4 + d]);
    }
  }
  // Twice as many centroids as clusters: k-means finds them all.
  const Result<Codebook> codebook = Train(rows, {4, 6});
  ASSERT_TRUE(codebook.ok()) << codebook.status().message();
  EXPECT_LT(Error(codebook->tables[0], rows), 1e-4);
  EXPECT_GT(Error(codebook->tables[0], rows), 0.0);
}

TEST(CodebookTraining, DependsOnTheSeedAndNotOnThreads) {
  const std::vector<float> rows = NoiseRows(700, 4);
  const Result<Codebook> one = Train(rows, {8, 5}, 1);
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(*one == *Train(rows, {8, 5}, 3));
  EXPECT_FALSE(*one == *Train(rows, {8, 5}, 1, {25, 2, RotationKind::kNone}));
  EXPECT_FALSE(*one == *Train(rows, {8, 5}, 1, {1, 1, RotationKind::kNone}));
}

TEST(CodebookTraining, SubspacesWithoutVarietyWork) {
  std::vector<float> rows = NoiseRows(100, 5);
  for (size_t r = 0; r < 100; ++r) {
    rows[r * kDim] = rows[r * kDim + 1] = 0;           // always zero
    rows[r * kDim + 2] = 1e-30f * rows[r * kDim + 2];  // nearly
    if (r % 3 == 0) std::fill_n(&rows[r * kDim], kDim, 0.0f);
  }
  const Result<Codebook> codebook = Train(rows, {8, 4});
  ASSERT_TRUE(codebook.ok()) << codebook.status().message();
  EXPECT_TRUE(std::all_of(codebook->tables[0].centroids.begin(),
                          codebook->tables[0].centroids.begin() + 32,
                          [](uint8_t byte) { return byte == 128; }));
  // All rows zero, and all rows equal.
  EXPECT_TRUE(Train(std::vector<float>(20 * kDim, 0.0f), {8, 4}).ok());
  const std::vector<float> equal(20 * kDim, -3.0f);
  const Result<Codebook> same = Train(equal, {8, 4});
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_LT(Error(same->tables[0], equal), 1e-4);
}

TEST(CodebookTraining, AsManyRowsAsCentroidsAreEnough) {
  EXPECT_TRUE(Train(NoiseRows(16, 6), {16, 4}).ok());
  const Status status = Train(NoiseRows(15, 6), {16, 4}).status();
  EXPECT_EQ(status.message(),
            "size 16x4: the given rows has 15 rows < 16 centroids; it takes more text or fewer "
            "bits");
}

TEST(CodebookTraining, SaysWhatCannotBe) {
  const std::vector<float> rows = NoiseRows(64, 7);
  EXPECT_EQ(Train(rows, {3, 4}).status().message(), "size 3x4: M 3 does not divide head_dim 16");
  EXPECT_EQ(Train(rows, {0, 4}).status().message(), "size 0x4: M 0 does not divide head_dim 16");
  EXPECT_EQ(Train(rows, {8, 3}).status().message(), "size 8x3: bits 3 is not in 4 … 12");
  EXPECT_EQ(Train(rows, {8, 13}).status().message(), "size 8x13: bits 13 is not in 4 … 12");
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> broken = rows;
    broken[5 * kDim + 3] = bad;
    EXPECT_EQ(Train(broken, {8, 4}).status().message(),
              "the given rows: row 5 has a value that is not finite");
  }
  EXPECT_FALSE(ParseSize("--k", "64").ok());
  EXPECT_FALSE(ParseSize("--k", "64x").ok());
  EXPECT_FALSE(ParseSize("--k", "x8").ok());
  EXPECT_FALSE(ParseSize("--k", "64x8 ").ok());
  EXPECT_FALSE(ParseSize("--k", "99999999999x8").ok());
  EXPECT_TRUE(*ParseSize("--k", "64x8") == (CodebookSize{64, 8}));
}

TEST(CodebookTraining, EndsWhenAsked) {
  const std::vector<float> rows = NoiseRows(64, 7);
  class Rows final : public RowSource {
   public:
    explicit Rows(const std::vector<float>& rows) : rows_(rows) {}
    size_t NumRows(int) const override { return rows_.size() / kDim; }
    void ReadRow(int, size_t row, float* to) const override {
      std::copy_n(&rows_[row * kDim], kDim, to);
    }
    std::string GroupName(int) const override { return "rows"; }

   private:
    const std::vector<float>& rows_;
  };
  const Rows source(rows);
  const PartTraining training = {Part::kKey, kDim, CodebookGrain::kHead, 4, {{8, 4}}, &source};
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  std::vector<double> seen;
  const auto tables = TrainTables(training, {}, *executor, [&](double done) {
    seen.push_back(done / TrainingWork(training, {}));
    return seen.size() < 3;
  });
  EXPECT_EQ(tables.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(seen, (std::vector<double>{0.25, 0.5, 0.75}));
}

TEST(CodebookTraining, RotationsHelpWhereChannelsGoTogether) {
  // Few numbers, mixed into all channels: without a rotation every sub-space stores some of each.
  SplitMix64 random(8);
  std::vector<float> mixing(4 * kDim);
  for (float& value : mixing) value = Noise(random);
  std::vector<float> rows;
  for (int r = 0; r < 600; ++r) {
    float hidden[4];
    for (float& value : hidden) value = Noise(random);
    for (size_t d = 0; d < kDim; ++d) {
      float sum = 0.05f * Noise(random);
      for (size_t h = 0; h < 4; ++h) sum += hidden[h] * mixing[h * kDim + d];
      rows.push_back(sum);
    }
  }
  const Result<Codebook> plain = Train(rows, {8, 4});
  const Result<Codebook> rotated = Train(rows, {8, 4}, 2, {25, 1, RotationKind::kOpq});
  ASSERT_TRUE(plain.ok() && rotated.ok()) << rotated.status().message();
  EXPECT_EQ(rotated->tables[0].rotation.size(), size_t{kDim * kDim});
  EXPECT_TRUE(*rotated == *Train(rows, {8, 4}, 1, {25, 1, RotationKind::kOpq}));
  std::vector<float> turned(rows.size());
  for (size_t r = 0; r < rows.size() / kDim; ++r) {
    for (size_t i = 0; i < kDim; ++i) {
      for (size_t j = 0; j < kDim; ++j) {
        turned[r * kDim + i] +=
            F16ToF32(rotated->tables[0].rotation[i * kDim + j]) * rows[r * kDim + j];
      }
    }
  }
  EXPECT_LT(Error(rotated->tables[0], turned), 0.8 * Error(plain->tables[0], rows));
}

TEST(CodebookTraining, SharedTablesAreThoseOfEveryHead) {
  const std::vector<float> rows = NoiseRows(300, 9);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const SharedRows parts[] = {{Part::kKey, kDim, rows, {{8, 4}, {4, 5}}},
                              {Part::kValue, kDim, rows, {{8, 4}}}};
  const Result<Codebook> codebook = TrainOnRows(parts, 3, 2, CodebookGrain::kHead, {}, *executor);
  ASSERT_TRUE(codebook.ok()) << codebook.status().message();
  EXPECT_EQ(codebook->model_fingerprint, 0u);
  ASSERT_EQ(codebook->tables.size(), 3u);
  const std::vector<uint8_t>& bytes = codebook->tables[1].centroids;
  const ptrdiff_t group = std::ssize(bytes) / 6;
  for (ptrdiff_t g = 1; g < 6; ++g) {
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + group, bytes.begin() + g * group));
  }
}

}  // namespace codebook_training_test
}  // namespace varve::cli
