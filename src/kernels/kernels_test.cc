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
namespace {

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
  std::vector<float> weights;
  std::vector<float> running_max;
  std::vector<float> page_sum;
  std::vector<float> rescale;
  std::vector<float> weight_max;
};

// Columns from num_tokens on go in as `rest`, which must not matter.
SoftmaxRun RunSoftmax(const Kernels& kernels, const std::vector<std::vector<float>>& rows,
                      int page_tokens, const std::vector<float>& running_max, float rest) {
  const size_t num_rows = rows.size();
  GuardedBuffer<float> scores(num_rows * page_tokens);
  GuardedBuffer<float> max(num_rows), sum(num_rows), rescale(num_rows), weight_max(num_rows);
  scores.Fill(rest);
  for (size_t r = 0; r < num_rows; ++r) {
    std::copy(rows[r].begin(), rows[r].end(), scores.data() + r * page_tokens);
  }
  max.Assign(running_max);
  kernels.softmax({scores.data(), static_cast<int>(num_rows), page_tokens,
                   static_cast<int>(rows[0].size()), max.data(), sum.data(), rescale.data(),
                   weight_max.data()});
  for (const auto* buffer : {&scores, &max, &sum, &rescale, &weight_max})
    EXPECT_TRUE(buffer->ZonesIntact());
  const auto copy = [](GuardedBuffer<float>& b) {
    return std::vector<float>(b.data(), b.data() + b.size());
  };
  return {copy(scores), copy(max), copy(sum), copy(rescale), copy(weight_max)};
}

class SoftmaxKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, SoftmaxKernel, testing::ValuesIn(AllTables()), TableName);

TEST_P(SoftmaxKernel, AgreesWithDoubleAtEveryLengthAndRunningMax) {
  // exp within 2 ulp (Highway's states 1); the difference to the maximum rounds before it, which at
  // |x| = 100 moves exp by 100 * 2^-24 relative. The sum adds one rounding a token.
  constexpr double kExpTolerance = 4 * kUnitRoundoff;
  TestRandom random(1);
  for (const int page_tokens : {16, 32, 64, 128}) {
    for (const int num_tokens : {1, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128}) {
      if (num_tokens > page_tokens) continue;
      std::vector<std::vector<float>> rows(3, std::vector<float>(num_tokens));
      for (auto& row : rows) {
        for (float& x : row) x = 20.0f * random.Gaussian();
      }
      // First page; maximum rises; maximum stays above everything.
      const std::vector<float> before = {-kInf, -200.0f, 150.0f};
      const SoftmaxRun run = RunSoftmax(*GetParam(), rows, page_tokens, before, kNan);
      for (int r = 0; r < 3; ++r) {
        const float page_max = *std::max_element(rows[r].begin(), rows[r].end());
        const float max = std::max(before[r], page_max);
        ASSERT_EQ(run.running_max[r], max);
        ASSERT_EQ(run.rescale[r], before[r] == max ? 1.0f : std::exp(before[r] - max));
        double sum = 0.0;
        for (int t = 0; t < page_tokens; ++t) {
          const float weight = run.weights[r * page_tokens + t];
          if (t >= num_tokens) {
            ASSERT_EQ(FloatBits(weight), 0u) << "column " << t << " of " << num_tokens;
            continue;
          }
          const double exact = std::exp(static_cast<double>(rows[r][t] - max));
          ASSERT_NEAR(weight, exact, kExpTolerance * exact + std::numeric_limits<float>::min());
          ASSERT_LE(weight, run.weight_max[r]);
          sum += weight;
        }
        ASSERT_NEAR(run.page_sum[r], sum, page_tokens * kUnitRoundoff * sum);
        ASSERT_NEAR(run.weight_max[r], std::exp(static_cast<double>(page_max - max)),
                    kExpTolerance * run.weight_max[r] + std::numeric_limits<float>::min());
      }
    }
  }
}

TEST_P(SoftmaxKernel, ARowOfMinusInfinityHasNoWeightAndChangesNothing) {
  const std::vector<std::vector<float>> rows(2, std::vector<float>(17, -kInf));
  const SoftmaxRun run = RunSoftmax(*GetParam(), rows, 32, {-kInf, 3.0f}, 1.0f);
  for (float weight : run.weights) EXPECT_EQ(weight, 0.0f);
  EXPECT_EQ(run.page_sum, (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(run.running_max, (std::vector<float>{-kInf, 3.0f}));
  EXPECT_EQ(run.rescale, (std::vector<float>{1.0f, 1.0f}));
  EXPECT_EQ(run.weight_max, (std::vector<float>{0.0f, 0.0f}));
}

TEST_P(SoftmaxKernel, AMaskedTokenAmongOthersHasWeightZero) {
  const SoftmaxRun run = RunSoftmax(*GetParam(), {{1.0f, -kInf, 1.0f}}, 16, {-kInf}, kNan);
  EXPECT_EQ(run.weights[0], 1.0f);
  EXPECT_EQ(run.weights[1], 0.0f);
  EXPECT_EQ(run.page_sum[0], 2.0f);
}

TEST_P(SoftmaxKernel, ANanScoreAnywhereShowsInItsRowsSumAndInNoOther) {
  for (const int at : {0, 1, 15, 16, 30}) {
    std::vector<std::vector<float>> rows(3, std::vector<float>(31, 0.5f));
    rows[1][at] = kNan;
    const SoftmaxRun run = RunSoftmax(*GetParam(), rows, 32, {-kInf, -kInf, -kInf}, 0.0f);
    EXPECT_TRUE(std::isnan(run.page_sum[1])) << at;
    EXPECT_EQ(run.page_sum[0], 31.0f);
    EXPECT_EQ(run.page_sum[2], 31.0f);
    EXPECT_EQ(run.running_max[1], 0.5f) << "a NaN is no maximum";
  }
}

TEST_P(SoftmaxKernel, ARowOfNanOnTheFirstPageShowsInTheSum) {
  // What a query that is not finite gives: no maximum at all, yet it must not pass for "masked".
  const SoftmaxRun run =
      RunSoftmax(*GetParam(), {std::vector<float>(17, kNan), {std::vector<float>(17, -kInf)}}, 32,
                 {-kInf, -kInf}, 0.0f);
  EXPECT_TRUE(std::isnan(run.page_sum[0]));
  EXPECT_EQ(run.page_sum[1], 0.0f);
}

TEST_P(SoftmaxKernel, PlusInfinityGivesNanOnceAndLeavesLaterPagesAlone) {
  const SoftmaxRun first = RunSoftmax(*GetParam(), {{0.0f, kInf, 1.0f}}, 16, {2.0f}, 0.0f);
  EXPECT_EQ(first.running_max[0], kInf);
  EXPECT_EQ(first.rescale[0], 0.0f);
  EXPECT_TRUE(std::isnan(first.page_sum[0]));
  const SoftmaxRun later = RunSoftmax(*GetParam(), {{0.0f, 1.0f}}, 16, first.running_max, 0.0f);
  EXPECT_EQ(later.running_max[0], kInf);
  EXPECT_EQ(later.page_sum[0], 0.0f);
  EXPECT_EQ(later.rescale[0], 1.0f);
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

TEST_P(VectorKernel, ScaleAndAddScaledRoundAtMostTwice) {
  TestRandom random(3);
  for (const size_t count : {0, 1, 15, 16, 17, 31, 33, 65, 80, 256}) {
    const std::vector<float> from = random.Gaussians(count);
    const std::vector<float> into = random.Gaussians(count);
    GuardedBuffer<float> scaled(count), sum(count);
    scaled.Assign(from);
    sum.Assign(into);
    GetParam()->scale(scaled.data(), count, 0.3f);
    GetParam()->add_scaled(sum.data(), from.data(), count, 0.3f);
    ASSERT_TRUE(scaled.ZonesIntact() && sum.ZonesIntact());
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(scaled[i], from[i] * 0.3f);
      const double term = static_cast<double>(from[i]) * 0.3f;
      ASSERT_NEAR(sum[i], into[i] + term, 2 * kUnitRoundoff * (std::abs(into[i]) + std::abs(term)));
    }
  }
}

}  // namespace
}  // namespace varve
