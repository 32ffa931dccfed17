// Linear layers: both ways of multiplying against double precision, the epilogue, and the promise
// that threads do not change a bit. Products in bf16 run where the processor has AVX512-BF16;
// without AMX its tiles are emulated.

#include "runtime/kernels/linear.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/kernel_testing.h"
#include "runtime/kernels/amx_tiles_testing.h"
#include "runtime/kernels/weights_testing.h"

namespace varve {
namespace linear_test {

// Where the processor has kernels for it.
bool IsInBf16(ProductPrecision precision, WeightType type, int num_tokens) {
  return precision == ProductPrecision::kBF16 && type != WeightType::kF32 &&
         num_tokens > LinearLayers::kMaxFewTokens;
}

// Products in bf16 round both operands to 8 bits: 2^-8 of each term, where all errors align.
// Integers round the inputs to 16 bits with few tokens and to 14 with many, of their block's
// largest.
double Tolerance(ProductPrecision precision, WeightType type, int num_tokens) {
  if (num_tokens <= LinearLayers::kMaxFewTokens) return IsInteger(type) ? 5e-5 : 1e-6;
  if (precision == ProductPrecision::kI16 && IsInteger(type)) return 2e-4;
  return IsInBf16(precision, type, num_tokens) ? 0x1p-8 : 1e-6;
}

class Linear : public testing::TestWithParam<std::tuple<int, int, ProductPrecision>> {
 protected:
  void SetUp() override {
    if (IsInBf16(precision(), type(), tokens()) && AmxKernelsForTests() == nullptr) {
      GTEST_SKIP() << kNoAmxKernels;
    }
  }
  WeightType type() const { return static_cast<WeightType>(std::get<0>(GetParam())); }
  int tokens() const { return std::get<1>(GetParam()); }
  ProductPrecision precision() const { return std::get<2>(GetParam()); }
  void ExpectProduct(int64_t rows, int64_t cols) const;
};

// Multiplies random rows and compares with double precision; in bf16 with that of rounded operands,
// too.
void Linear::ExpectProduct(int64_t rows, int64_t cols) const {
  const RandomMatrix matrix(type(), rows, cols, 1);
  const std::vector<float> x = TestRandom(2).Gaussians(tokens() * cols);
  const std::vector<float> rounded_x = RoundedToBf16(x);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, precision(), AmxKernelsForTests());
  GuardedBuffer<float> y(static_cast<size_t>(tokens() * rows));
  const LinearTask task = {.weights = &matrix.view(), .input = x.data(), .output = y.data()};
  linear.Run(tokens(), {&task, 1});
  EXPECT_TRUE(y.ZonesIntact());
  for (int t = 0; t < tokens(); ++t) {
    for (int64_t row = 0; row < rows; ++row) {
      const ExactDot exact = matrix.Dot(row, x.data() + t * cols);
      ASSERT_NEAR(y[t * rows + row], exact.value,
                  exact.magnitude * Tolerance(precision(), type(), tokens()) + 1e-30)
          << "token " << t << ", row " << row;
      if (!IsInBf16(precision(), type(), tokens())) continue;
      const ExactDot rounded = DotOf(RoundedToBf16(matrix.Row(row)), rounded_x.data() + t * cols);
      ASSERT_NEAR(y[t * rows + row], rounded.value, rounded.magnitude * 1e-6 + 1e-30)
          << "token " << t << ", row " << row;
    }
  }
}

TEST_P(Linear, IsTheProductWithinRounding) {
  ExpectProduct(83, std::max(InfoOf(type()).block_values, 96));
}

// More columns than a bf16 tile of weights has, and a last tile that they do not fill.
TEST_P(Linear, TakesRowsOfManyColumns) {
  ExpectProduct(37, InfoOf(type()).block_values == 1 ? 1000 : 1280);
}

std::string CaseName(const testing::TestParamInfo<std::tuple<int, int, ProductPrecision>>& info) {
  const auto [type, tokens, precision] = info.param;
  return std::string(InfoOf(static_cast<WeightType>(type)).name) + "_" + std::to_string(tokens) +
         "_" + NameOf(precision);
}

INSTANTIATE_TEST_SUITE_P(Few, Linear,
                         testing::Combine(testing::Range(0, kNumWeightTypes),
                                          testing::Values(1, 3, 4, 5, LinearLayers::kMaxFewTokens),
                                          testing::Values(ProductPrecision::kF32)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Many, Linear,
                         testing::Combine(testing::Range(0, kNumWeightTypes),
                                          testing::Values(LinearLayers::kMaxFewTokens + 1, 33, 64),
                                          testing::Values(ProductPrecision::kF32,
                                                          ProductPrecision::kBF16,
                                                          ProductPrecision::kI16)),
                         CaseName);

class LinearShape : public testing::TestWithParam<std::tuple<int, ProductPrecision>> {
 protected:
  void SetUp() override {
    if (IsInBf16(precision(), WeightType::kQ8_0, tokens()) && AmxKernelsForTests() == nullptr) {
      GTEST_SKIP() << kNoAmxKernels;
    }
  }
  int tokens() const { return std::get<0>(GetParam()); }
  ProductPrecision precision() const { return std::get<1>(GetParam()); }
};

TEST_P(LinearShape, BiasStridesAndResidualsGoWhereTheyBelong) {
  constexpr int kCols = 64, kRows = 21, kInputStride = 70, kOutputStride = 25;
  const RandomMatrix matrix(WeightType::kQ8_0, kRows, kCols, 1);
  const std::vector<float> x = TestRandom(2).Gaussians(tokens() * kInputStride);
  const std::vector<float> bias = TestRandom(3).Gaussians(kRows);
  const std::vector<float> before = TestRandom(4).Gaussians(tokens() * kOutputStride);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, precision(), AmxKernelsForTests());
  std::vector<float> plain = before;
  LinearTask task = {.weights = &matrix.view(),
                     .input = x.data(),
                     .input_stride = kInputStride,
                     .output = plain.data(),
                     .output_stride = kOutputStride};
  linear.Run(tokens(), {&task, 1});
  for (const bool with_bias : {false, true}) {
    for (const bool add : {false, true}) {
      std::vector<float> y = before;
      task.output = y.data();
      task.bias = with_bias ? bias.data() : nullptr;
      task.add = add;
      linear.Run(tokens(), {&task, 1});
      for (int t = 0; t < tokens(); ++t) {
        for (int column = 0; column < kOutputStride; ++column) {
          const int at = t * kOutputStride + column;
          float expected = before[at];
          if (column < kRows) {
            const float product = with_bias ? plain[at] + bias[column] : plain[at];
            expected = add ? before[at] + product : product;
          }
          ASSERT_EQ(y[at], expected) << "token " << t << ", column " << column;
        }
      }
    }
  }
}

TEST_P(LinearShape, EveryNumberOfThreadsGivesTheSameBits) {
  constexpr int kCols = 512;
  const RandomMatrix wide(WeightType::kQ8_0, 777, kCols, 1);
  const RandomMatrix narrow(WeightType::kF16, 65, kCols, 2);
  const RandomMatrix tail(WeightType::kQ6K, 5, kCols, 3);
  const std::vector<float> x = TestRandom(2).Gaussians(tokens() * kCols);
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    LinearLayers linear(*executor, precision(), AmxKernelsForTests());
    std::vector<float> y(static_cast<size_t>(tokens()) * (777 + 65 + 5));
    const LinearTask tasks[] = {
        {.weights = &wide.view(), .input = x.data(), .output = y.data()},
        {.weights = &narrow.view(), .input = x.data(), .output = y.data() + tokens() * 777},
        {.weights = &tail.view(), .input = x.data(), .output = y.data() + tokens() * 842},
    };
    for (int again = 0; again < 3; ++again) {
      linear.Run(tokens(), tasks);
      if (first.empty()) first = y;
      ASSERT_TRUE(SameBits(y.data(), first.data(), y.size())) << threads << " threads";
    }
  }
}

TEST_P(LinearShape, SeveralTasksAreTheSameAsOneAfterTheOther) {
  constexpr int kCols = 256;
  const RandomMatrix a(WeightType::kQ4K, 40, kCols, 1);
  const RandomMatrix b(WeightType::kBF16, 300, kCols, 2);
  const std::vector<float> x = TestRandom(2).Gaussians(tokens() * kCols);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, precision(), AmxKernelsForTests());
  std::vector<float> together(tokens() * 340), apart(tokens() * 340);
  const auto run = [&](std::vector<float>& y, bool at_once) {
    const LinearTask tasks[] = {
        {.weights = &a.view(), .input = x.data(), .output = y.data()},
        {.weights = &b.view(), .input = x.data(), .output = y.data() + tokens() * 40},
    };
    if (at_once) {
      linear.Run(tokens(), tasks);
    } else {
      linear.Run(tokens(), {tasks, 1});
      linear.Run(tokens(), {tasks + 1, 1});
    }
  };
  run(together, true);
  run(apart, false);
  EXPECT_EQ(together, apart);
}

INSTANTIATE_TEST_SUITE_P(Ways, LinearShape,
                         testing::Combine(testing::Values(1, 6, 9, 64),
                                          testing::Values(ProductPrecision::kF32,
                                                          ProductPrecision::kBF16,
                                                          ProductPrecision::kI16)));

TEST(LinearLayers, NothingToDoIsNothing) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, ProductPrecision::kF32);
  linear.Run(0, {});
  linear.Run(64, {});
  linear.Run(1, {});
}

TEST(LinearLayers, ProductsStartNoThreadsBesideThePool) {
  const auto threads_now = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const RandomMatrix matrix(WeightType::kQ8_0, 4096, 512, 1);
  const std::vector<float> x(256 * 512, 1.0f);
  std::vector<float> y(256 * 4096);
  const std::unique_ptr<Executor> executor = MakeThreadPool(3);
  const auto before = threads_now();
  for (const ProductPrecision precision :
       {ProductPrecision::kF32, ProductPrecision::kBF16, ProductPrecision::kI16}) {
    LinearLayers linear(*executor, precision, AmxKernelsForTests());
    const LinearTask task = {.weights = &matrix.view(), .input = x.data(), .output = y.data()};
    linear.Run(256, {&task, 1});
    EXPECT_EQ(threads_now(), before);
  }
}

// As Linux tells it, of the processor that this program was compiled for: an emulated one sees the
// file of its host.
bool ProcessorHasAmx() {
#if defined(__x86_64__) && defined(__linux__)
  std::ifstream file("/proc/cpuinfo");
  const std::string flags(std::istreambuf_iterator<char>(file), {});
  return flags.find(" amx_bf16") != std::string::npos &&
         flags.find(" amx_tile") != std::string::npos &&
         flags.find(" avx512_bf16") != std::string::npos;
#else
  return false;
#endif
}

// A machine with AMX that multiplies in f32 would pass every other test.
TEST(LinearLayers, Bf16IsBf16WhereTheProcessorHasAmx) {
  if (!ProcessorHasAmx()) GTEST_SKIP() << "this machine has no AMX-BF16";
  ASSERT_TRUE(CheckPrecision(ProductPrecision::kBF16).ok());
  const RandomMatrix matrix(WeightType::kQ8_0, 32, 64, 1);
  const std::vector<float> x = TestRandom(2).Gaussians(16 * 64);
  std::vector<float> exact(16 * 32), rounded(16 * 32);
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  LinearTask task = {.weights = &matrix.view(), .input = x.data(), .output = exact.data()};
  LinearLayers(*executor, ProductPrecision::kF32).Run(16, {&task, 1});
  task.output = rounded.data();
  LinearLayers(*executor, ProductPrecision::kBF16).Run(16, {&task, 1});
  EXPECT_NE(exact, rounded);
}

TEST(LinearLayers, AnInputThatChangedBetweenRunsIsReadAgain) {
  const RandomMatrix matrix(WeightType::kF16, 16, 64, 1);
  std::vector<float> x(9 * 64, 1.0f), first(9 * 16), second(9 * 16);
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  LinearLayers linear(*executor, ProductPrecision::kBF16, AmxKernelsForTests());
  LinearTask task = {.weights = &matrix.view(), .input = x.data(), .output = first.data()};
  linear.Run(9, {&task, 1});
  for (float& value : x) value = 2.0f;
  task.output = second.data();
  linear.Run(9, {&task, 1});
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(second[i], 2 * first[i]);
}

// Every task has given what it gives in a run of its own, to the last bit.
void ExpectSameAlone(Executor& executor, ProductPrecision precision, int num_tokens,
                     std::span<const LinearTask> tasks, int num_outputs) {
  std::vector<float> alone(num_outputs);
  for (size_t i = 0; i < tasks.size(); ++i) {
    LinearLayers linear(executor, precision);
    LinearTask same = tasks[i];
    same.output = alone.data();
    linear.Run(num_tokens, {&same, 1});
    EXPECT_TRUE(SameBits(tasks[i].output, alone.data(), num_outputs)) << i;
  }
}

// Rounded inputs are kept per address: neither another width nor another stride may meet them, and
// the next Run starts anew.
TEST(LinearLayers, TasksThatShareAnAddressShareNothingElse) {
  const RandomMatrix wide(WeightType::kQ8_0, 7, 128, 1);
  const RandomMatrix narrow(WeightType::kQ8_0, 7, 64, 2);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, ProductPrecision::kF32);
  for (const uint64_t seed : {3, 4}) {
    const std::vector<float> x = TestRandom(seed).Gaussians(5 * 128);
    std::vector<float> y(4 * 35);
    const LinearTask tasks[] = {
        {.weights = &wide.view(), .input = x.data(), .output = y.data()},
        {.weights = &narrow.view(), .input = x.data(), .output = y.data() + 35},
        {.weights = &narrow.view(), .input = x.data(), .input_stride = 128, .output = &y[70]},
        {.weights = &wide.view(), .input = x.data(), .output = y.data() + 105},
    };
    linear.Run(5, tasks);
    ExpectSameAlone(*executor, ProductPrecision::kF32, 5, tasks, 35);
  }
}

// Packed inputs too.
TEST(LinearLayers, TasksOfManyTokensShareAnInputOnlyIfItIsTheSame) {
  const RandomMatrix wide(WeightType::kQ4_0, 7, 256, 1);
  const RandomMatrix large(WeightType::kQ4K, 7, 256, 2);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, ProductPrecision::kI16);
  for (const uint64_t seed : {3, 4}) {
    const std::vector<float> x = TestRandom(seed).Gaussians(20 * 256);
    std::vector<float> y(3 * 140);
    const LinearTask tasks[] = {
        {.weights = &wide.view(), .input = x.data(), .output = y.data()},
        {.weights = &large.view(), .input = x.data(), .output = y.data() + 140},
        {.weights = &wide.view(), .input = x.data(), .output = y.data() + 280},
    };
    linear.Run(20, tasks);
    ExpectSameAlone(*executor, ProductPrecision::kI16, 20, tasks, 140);
  }
}

TEST(LinearLayers, PrecisionsHaveNames) {
  for (const ProductPrecision precision :
       {ProductPrecision::kF32, ProductPrecision::kBF16, ProductPrecision::kI16}) {
    EXPECT_EQ(FindPrecision(NameOf(precision)), precision);
  }
  EXPECT_EQ(FindPrecision("f16"), std::nullopt);
}

TEST(LinearLayers, ScratchIsBoundedByTilesNotByTheMatrix) {
  const RandomMatrix matrix(WeightType::kQ4_0, 4096, 1024, 1);  // 16 MiB as f32
  const std::vector<float> x(64 * 1024, 1.0f);
  std::vector<float> y(64 * 4096);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, ProductPrecision::kF32);
  const LinearTask task = {.weights = &matrix.view(), .input = x.data(), .output = y.data()};
  linear.Run(64, {&task, 1});
  EXPECT_GT(linear.scratch_bytes(), 0u);
  EXPECT_LT(linear.scratch_bytes(), size_t{3} << 20);
}

}  // namespace linear_test
}  // namespace varve
