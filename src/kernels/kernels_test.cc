// Selection of a table, and the small vector kernels: softmax, page_mass, scale, add_scaled.

#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernel_tables.h"
#include "kernels/kernel_testing.h"

namespace varve {
namespace kernels_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(KernelSelection, ScalarComesFirstAndNamesAreUnique) {
  const auto tables = AllTables();
  ASSERT_FALSE(tables.empty());
  EXPECT_STREQ(tables.front()->name, "scalar");
  EXPECT_EQ(tables.front(), &ScalarKernels());
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_STRNE(tables[i]->name, tables[j]->name);
  }
}

TEST(KernelSelection, FindsEveryTableByNameAndNoOther) {
  for (const Kernels* table : AllTables()) EXPECT_EQ(FindKernels(table->name), table);
  EXPECT_EQ(FindKernels("scala"), nullptr);
  EXPECT_EQ(FindKernels("Scalar"), nullptr);
  EXPECT_EQ(FindKernels(""), nullptr);
}

TEST(KernelSelection, TheTableThatWasSetIsTheOneInUse) {
  for (const Kernels* table : AllTables()) {
    const ScopedKernels scope(*table);
    EXPECT_STREQ(ActiveKernels().name, table->name);
  }
}

TEST(KernelSelection, TablesAreDifferentCode) {
  const auto tables = AllTables();
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(tables[i]->key_scores_float[1], tables[j]->key_scores_float[1]);
      EXPECT_NE(tables[i]->add_values_block[1], tables[j]->add_values_block[1]);
      EXPECT_NE(tables[i]->softmax, tables[j]->softmax);
    }
  }
}

// Each death test is a fresh process (style "threadsafe"), which reads VARVE_ISA anew.
class KernelSelectionDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (const char* before = std::getenv("VARVE_ISA")) before_ = before;
  }
  void TearDown() override { setenv("VARVE_ISA", before_.c_str(), 1); }

  std::string before_;
};

TEST_F(KernelSelectionDeathTest, VarveIsaChoosesTheTable) {
  for (const char* name : {"scalar", "neon", "sse4", "avx2", "avx512", "avx512_vnni"}) {
    setenv("VARVE_ISA", name, 1);
    EXPECT_EXIT(
        {
          const bool chosen = std::string(ActiveKernels().name) == name;
          const bool warned = !KernelSelectionWarning().empty();
          std::exit(FindKernels(name) == nullptr ? !warned : !chosen || warned);
        },
        testing::ExitedWithCode(0), "")
        << name;
  }
}

TEST_F(KernelSelectionDeathTest, AnUnknownVarveIsaWarnsWithTheChoicesAndTakesTheBest) {
  setenv("VARVE_ISA", "quantum", 1);
  EXPECT_EXIT(
      {
        const std::string warning(KernelSelectionWarning());
        const bool best = &ActiveKernels() == AvailableKernels().back();
        const bool named = warning.starts_with("VARVE_ISA=quantum: ");
        const bool choices = warning.find(" scalar") != std::string::npos;
        std::exit(best && named && choices ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(KernelSelectionDeathTest, AnEmptyVarveIsaMeansTheBest) {
  setenv("VARVE_ISA", "", 1);
  EXPECT_EXIT(
      std::exit(&ActiveKernels() == AvailableKernels().back() && KernelSelectionWarning().empty()
                    ? 0
                    : 1),
      testing::ExitedWithCode(0), "");
}

// --- softmax ---

struct SoftmaxRun {
  std::vector<float> weights;   // [num_rows, num_pages * page_tokens]
  std::vector<float> max;       // [num_rows]
  std::vector<float> sum;       // [num_rows]
  std::vector<float> page_sum;  // [num_rows, num_pages]
};

// Rows lie `gap` floats further apart than they are long; nobody may write between them.
SoftmaxRun RunSoftmax(const Kernels& kernels, const std::vector<std::vector<float>>& rows,
                      int page_tokens, size_t gap = 0) {
  const size_t num_rows = rows.size(), columns = rows[0].size(), stride = columns + gap;
  const size_t num_pages = columns / page_tokens;
  GuardedBuffer<float> scores((num_rows - 1) * stride + columns);
  GuardedBuffer<float> max(num_rows), sum(num_rows), page_sum(num_rows * num_pages);
  scores.Fill(12345.0f);
  for (size_t r = 0; r < num_rows; ++r) {
    std::copy(rows[r].begin(), rows[r].end(), scores.data() + r * stride);
  }
  kernels.softmax({scores.data(), static_cast<int>(num_rows), stride, page_tokens,
                   static_cast<int>(num_pages), max.data(), sum.data(), page_sum.data()});
  for (const auto* b : {&scores, &max, &sum, &page_sum}) EXPECT_TRUE(b->ZonesIntact());
  SoftmaxRun run;
  for (size_t r = 0; r < num_rows; ++r) {
    const float* row = scores.data() + r * stride;
    run.weights.insert(run.weights.end(), row, row + columns);
    for (size_t i = columns; i < stride && r + 1 < num_rows; ++i) EXPECT_EQ(row[i], 12345.0f);
  }
  run.max.assign(max.data(), max.data() + num_rows);
  run.sum.assign(sum.data(), sum.data() + num_rows);
  run.page_sum.assign(page_sum.data(), page_sum.data() + page_sum.size());
  return run;
}

class SoftmaxKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, SoftmaxKernel, testing::ValuesIn(AllTables()), TableName);

TEST_P(SoftmaxKernel, AgreesWithDoubleOverAnyNumberOfPages) {
  // exp within 2 ulp, and 0 in place of what is subnormal; the sums add a rounding per token.
  constexpr double kExpTolerance = 8 * kUnitRoundoff;  // polynomial 3 units, its rounding the rest
  constexpr double kVanishing = 2 * std::numeric_limits<float>::min();
  TestRandom random(1);
  for (const int page_tokens : {16, 32, 64, 128}) {
    for (const int num_pages : {1, 2, 3, 7}) {
      for (const float size : {1.0f, 20.0f, 60.0f}) {
        std::vector<std::vector<float>> rows(3, std::vector<float>(num_pages * page_tokens));
        for (auto& row : rows) {
          for (float& x : row) x = random.Bits() % 5 == 0 ? -kInf : size * random.Gaussian();
          row[random.Bits() % row.size()] = size;  // not all hidden
        }
        const SoftmaxRun run = RunSoftmax(*GetParam(), rows, page_tokens, num_pages % 2 ? 5 : 0);
        for (size_t r = 0; r < rows.size(); ++r) {
          const float max = *std::max_element(rows[r].begin(), rows[r].end());
          ASSERT_EQ(run.max[r], max);
          double sum = 0.0;
          for (int page = 0; page < num_pages; ++page) {
            double page_sum = 0.0;
            for (int t = page * page_tokens; t < (page + 1) * page_tokens; ++t) {
              const float weight = run.weights[r * rows[r].size() + t];
              const double exact = std::exp(static_cast<double>(rows[r][t] - max));
              ASSERT_NEAR(weight, exact, kExpTolerance * exact + kVanishing);
              ASSERT_LE(weight, 1.0f);
              page_sum += weight;
            }
            ASSERT_NEAR(run.page_sum[r * num_pages + page], page_sum,
                        page_tokens * kUnitRoundoff * page_sum);
            sum += page_sum;
          }
          ASSERT_NEAR(run.sum[r], sum, (page_tokens + num_pages) * kUnitRoundoff * sum);
        }
      }
    }
  }
}

TEST_P(SoftmaxKernel, PageSumsMayBeLeftOut) {
  std::vector<float> scores(64, 0.5f), max(2), sum(2);
  GetParam()->softmax({scores.data(), 2, 32, 16, 2, max.data(), sum.data(), nullptr});
  EXPECT_EQ(sum, (std::vector<float>{32.0f, 32.0f}));
}

TEST_P(SoftmaxKernel, ARowOfMinusInfinityHasNoWeight) {
  const std::vector<std::vector<float>> rows(2, std::vector<float>(48, -kInf));
  const SoftmaxRun run = RunSoftmax(*GetParam(), rows, 16, 3);
  for (const float weight : run.weights) EXPECT_EQ(weight, 0.0f);
  EXPECT_EQ(run.max, (std::vector<float>{-kInf, -kInf}));
  EXPECT_EQ(run.sum, (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(run.page_sum, std::vector<float>(6, 0.0f));
}

TEST_P(SoftmaxKernel, AHiddenTokenAmongOthersHasWeightZero) {
  std::vector<float> row(16, -kInf);
  row[0] = row[2] = 1.0f;
  const SoftmaxRun run = RunSoftmax(*GetParam(), {row}, 16);
  EXPECT_EQ(run.weights[0], 1.0f);
  EXPECT_EQ(FloatBits(run.weights[1]), 0u);
  EXPECT_EQ(run.sum[0], 2.0f);
}

TEST_P(SoftmaxKernel, ANanScoreAnywhereShowsInItsSumsAndInNoOther) {
  for (const int at : {0, 1, 15, 16, 30, 47}) {
    std::vector<std::vector<float>> rows(3, std::vector<float>(48, 0.5f));
    rows[1][at] = kNan;
    const SoftmaxRun run = RunSoftmax(*GetParam(), rows, 16);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(std::isnan(run.sum[r]), r == 1) << at;
      for (int page = 0; page < 3; ++page) {
        EXPECT_EQ(std::isnan(run.page_sum[r * 3 + page]), r == 1 && page == at / 16) << at;
      }
    }
    EXPECT_EQ(run.max[1], 0.5f) << "a NaN is no maximum";
  }
}

TEST_P(SoftmaxKernel, ARowOfNanDoesNotPassForHidden) {
  // What a query that is not finite gives: no maximum at all.
  const SoftmaxRun run =
      RunSoftmax(*GetParam(), {std::vector<float>(32, kNan), std::vector<float>(32, -kInf)}, 16);
  EXPECT_TRUE(std::isnan(run.sum[0]));
  EXPECT_TRUE(std::isnan(run.page_sum[0]) && std::isnan(run.page_sum[1]));
  EXPECT_EQ(run.sum[1], 0.0f);
}

TEST_P(SoftmaxKernel, PlusInfinityGivesNan) {
  std::vector<float> row(32, 0.0f);
  row[20] = kInf;
  const SoftmaxRun run = RunSoftmax(*GetParam(), {row}, 16);
  EXPECT_EQ(run.max[0], kInf);
  EXPECT_TRUE(std::isnan(run.sum[0]));
}

// --- the others ---

class VectorKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, VectorKernel, testing::ValuesIn(AllTables()), TableName);

TEST_P(VectorKernel, PageMassIsTheSumTimesTheExponential) {
  TestRandom random(2);
  for (const size_t count : {0, 1, 3, 15, 16, 17, 31, 33, 65}) {
    std::vector<float> max(count), sum(count);
    for (size_t i = 0; i < count; ++i) {
      max[i] = -30.0f * random.Uniform();
      sum[i] = 64.0f * random.Uniform();
      if (i % 5 == 4) max[i] = -kInf, sum[i] = 0.0f;  // a page without tokens
    }
    GuardedBuffer<float> mass(count);
    GetParam()->page_mass(max.data(), sum.data(), count, 1.5f, mass.data());
    ASSERT_TRUE(mass.ZonesIntact());
    for (size_t i = 0; i < count; ++i) {
      const double exact = sum[i] * std::exp(static_cast<double>(max[i] - 1.5f));
      ASSERT_NEAR(mass[i], exact, 5 * kUnitRoundoff * exact) << i << " of " << count;
    }
  }
}

TEST_P(VectorKernel, PageMassIsZeroWithoutTokensAndNanWithNan) {
  // At every position, since the last few go another way than whole vectors.
  for (size_t i = 0; i < 33; ++i) {
    std::vector<float> max(33, 0.0f), sum(33, 1.0f), mass(33);
    sum[i] = kNan;
    GetParam()->page_mass(max.data(), sum.data(), 33, 0.0f, mass.data());
    for (size_t j = 0; j < 33; ++j) ASSERT_EQ(std::isnan(mass[j]), j == i) << i;
    sum[i] = 0.0f;
    max.assign(33, -kInf);
    GetParam()->page_mass(max.data(), sum.data(), 33, -kInf, mass.data());
    ASSERT_EQ(mass[i], 0.0f) << "page " << i << " of a row that saw no token";
  }
}

TEST_P(VectorKernel, AddScaledRoundsAtMostTwice) {
  TestRandom random(3);
  for (const size_t count : {0, 1, 15, 16, 17, 31, 33, 65, 80, 256}) {
    const std::vector<float> from = random.Gaussians(count);
    const std::vector<float> into = random.Gaussians(count);
    GuardedBuffer<float> sum(count);
    sum.Assign(into);
    GetParam()->add_scaled(sum.data(), from.data(), count, 0.3f);
    ASSERT_TRUE(sum.ZonesIntact());
    for (size_t i = 0; i < count; ++i) {
      const double term = static_cast<double>(from[i]) * 0.3f;
      ASSERT_NEAR(sum[i], into[i] + term, 2 * kUnitRoundoff * (std::abs(into[i]) + std::abs(term)));
    }
  }
}

// Prompts merge splits one by one as they go, decoding all at the end: the bits must be the same.
TEST_P(VectorKernel, MergedSumsAreTheSameBitsTermByTerm) {
  TestRandom random(4);
  for (const size_t count : {0, 1, 15, 16, 17, 64, 96, 128, 200, 256}) {
    std::vector<std::vector<float>> parts;
    for (int p = 0; p < 5; ++p) parts.push_back(random.Gaussians(count));
    const std::vector<MergeTerm> terms = {{parts[0].data(), 0.0f, 1.0f},
                                          {parts[1].data(), 1.0f, 0.3f},
                                          {nullptr, 0.7f, 0.5f},
                                          {parts[3].data(), 0.6f, 1.0f},
                                          {parts[4].data(), 1.0f, 0.0f}};
    const std::vector<float> before = random.Gaussians(count);
    GuardedBuffer<float> whole(count), single(count);
    whole.Assign(before);
    single.Assign(before);
    GetParam()->merge_sums(whole.data(), count, terms);
    for (const MergeTerm& term : terms) GetParam()->merge_sums(single.data(), count, {&term, 1});
    ASSERT_TRUE(whole.ZonesIntact());
    ASSERT_TRUE(SameBits(whole.data(), single.data(), count)) << count;
    for (size_t i = 0; i < count; ++i) {
      const double exact = (parts[0][i] + 0.3 * parts[1][i]) * 0.7 * 0.6 + parts[3][i];
      const double size = std::abs(parts[0][i]) + std::abs(parts[1][i]) + std::abs(parts[3][i]);
      ASSERT_NEAR(whole[i], exact, 8 * kUnitRoundoff * size) << count;
    }
  }
}

}  // namespace kernels_test
}  // namespace varve
