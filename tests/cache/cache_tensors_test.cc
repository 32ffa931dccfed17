// Tensors in f16 and bf16, and on devices that there are not.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "tests/cache_testing.h"
#include "varve/step.h"

namespace varve {
namespace cache_tensors_test {

constexpr CacheShape kShape{
    .num_layers = 1, .num_kv_heads = 2, .group_size = 2, .key_dim = 32, .value_dim = 48};
constexpr int kTokens = 40;
constexpr int kHeads = 4;

uint16_t ToBits(DType dtype, float value) {
  return dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
}
float ToFloat(DType dtype, uint16_t bits) {
  return dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

// [tokens, heads, dim] as 16-bit numbers with room between heads and tokens, and the same as dense
// f32.
struct Pair {
  Pair(DType dtype, int tokens, int heads, int dim, unsigned seed)
      : head_stride(dim + 3), token_stride(heads * head_stride + 5) {
    bits.resize(static_cast<size_t>(tokens) * static_cast<size_t>(token_stride));
    for (int token = 0; token < tokens; ++token) {
      for (int head = 0; head < heads; ++head) {
        for (int i = 0; i < dim; ++i) {
          seed = seed * 1664525u + 1013904223u;
          const float value = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
          const uint16_t narrow = ToBits(dtype, value);
          bits[static_cast<size_t>(token * token_stride + head * head_stride + i)] = narrow;
          dense.push_back(ToFloat(dtype, narrow));
        }
      }
    }
  }
  ptrdiff_t head_stride;
  ptrdiff_t token_stride;
  std::vector<uint16_t> bits;
  std::vector<float> dense;
};

class CacheTensors : public testing::TestWithParam<DType> {
 protected:
  CacheTensors() {
    CacheOptions options;
    options.plan = *ParsePlan("open_rung=f32");
    options.num_threads = 1;
    cache_ = Cache::Create(kShape, std::move(options)).value();
  }
  std::unique_ptr<Cache> cache_;
};
INSTANTIATE_TEST_SUITE_P(Types, CacheTensors, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& test) {
                           return test.param == DType::kF16 ? std::string("F16") : "BF16";
                         });

TEST_P(CacheTensors, NarrowTensorsGiveTheResultOfTheSameValuesInF32) {
  const DType dtype = GetParam();
  const Pair keys(dtype, kTokens, kShape.num_kv_heads, kShape.key_dim, 1);
  const Pair values(dtype, kTokens, kShape.num_kv_heads, kShape.value_dim, 2);
  const Pair queries(dtype, kTokens, kHeads, kShape.key_dim, 3);
  Pair output(dtype, kTokens, kHeads, kShape.value_dim, 4);
  std::vector<float> expected(output.dense.size());

  const SequenceId plain = *cache_->CreateSequence();
  const SequenceId narrow = *cache_->CreateSequence();
  const std::vector<StepEntry> entries = {{plain, kTokens}, {narrow, kTokens}};
  Result<Step> step = Step::Begin(*cache_, entries);
  ASSERT_OK(step.status());
  ASSERT_OK(step->Append(0, plain, {keys.dense.data(), kTokens}, {values.dense.data(), kTokens}));
  ASSERT_OK(step->Append(
      0, narrow, {keys.bits.data(), kTokens, keys.token_stride, keys.head_stride, dtype},
      {values.bits.data(), kTokens, values.token_stride, values.head_stride, dtype}));
  AttendRequest in_f32;
  in_f32.sequence = plain;
  in_f32.num_queries = kTokens;
  in_f32.queries = queries.dense.data();
  in_f32.output = expected.data();
  AttendRequest in_bits = in_f32;
  in_bits.sequence = narrow;
  in_bits.queries = queries.bits.data();
  in_bits.query_token_stride = queries.token_stride;
  in_bits.query_head_stride = queries.head_stride;
  in_bits.query_dtype = dtype;
  in_bits.output = output.bits.data();
  in_bits.output_token_stride = output.token_stride;
  in_bits.output_head_stride = output.head_stride;
  in_bits.output_dtype = dtype;
  const std::vector<uint16_t> before = output.bits;
  const std::vector<AttendRequest> requests = {in_bits, in_f32};
  ASSERT_OK(step->Attend(0, requests));
  ASSERT_OK(step->Commit());

  std::vector<bool> written(output.bits.size());
  for (int token = 0; token < kTokens; ++token) {
    for (int head = 0; head < kHeads; ++head) {
      for (int i = 0; i < kShape.value_dim; ++i) {
        const auto at =
            static_cast<size_t>(token * output.token_stride + head * output.head_stride + i);
        const auto dense = (static_cast<size_t>(token) * kHeads + head) * kShape.value_dim + i;
        ASSERT_EQ(output.bits[at], ToBits(dtype, expected[dense])) << token << " " << head;
        written[at] = true;
      }
    }
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (written[i]) continue;
    ASSERT_EQ(output.bits[i], before[i]) << "between rows, at " << i;
  }
}

TEST_P(CacheTensors, ConversionBuffersAreKeptAndCounted) {
  const DType dtype = GetParam();
  const Pair keys(dtype, kTokens, kShape.num_kv_heads, kShape.value_dim, 1);
  const SequenceId id = *cache_->CreateSequence();
  const uint64_t before = cache_->Stats().bytes_scratch;
  for (int i = 0; i < 2; ++i) {
    Result<Step> step = Step::Begin(*cache_, id, 8);
    const RowsView rows{keys.bits.data(), 8, 0, 0, dtype};
    ASSERT_OK(step->Append(0, id, rows, rows));
    ASSERT_OK(step->Commit());
    EXPECT_EQ(cache_->Stats().bytes_scratch - before, 8 * 2 * (32 + 48) * sizeof(float));
  }
}

TEST_F(CacheTensors, AnotherDeviceOrTypeIsRefusedAndRollsTheStepBack) {
  const std::vector<float> data(kHeads * 48);
  std::vector<float> out(kHeads * 48);
  const SequenceId id = *cache_->CreateSequence();
  const RowsView rows{data.data(), 1};
  RowsView elsewhere = rows;
  elsewhere.device = Device::kCuda;
  RowsView odd = rows;
  odd.dtype = static_cast<DType>(9);

  Result<Step> step = Step::Begin(*cache_, id, 1);
  Status status = step->Append(0, id, rows, elsewhere);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "Append: values.device 1 is not 0 (CPU), or that of the cache, 0");
  step = Step::Begin(*cache_, id, 1);
  ASSERT_OK(step.status());
  EXPECT_EQ(step->Append(0, id, odd, rows).message(),
            "Append: keys.dtype 9 is not 0 (f32), 1 (f16) or 2 (bf16)");
  step = Step::Begin(*cache_, id, 1);
  ASSERT_OK(step->Append(0, id, rows, rows));
  AttendRequest request;
  request.sequence = id;
  request.queries = data.data();
  request.output = out.data();
  request.device = Device::kCuda;
  EXPECT_EQ(step->Attend(0, {&request, 1}).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(*cache_->NextPosition(id), 0);
}

// Where there is a back end but no GPU, something else is missing.
TEST(CacheDevice, OneWithoutABackEndIsRefusedAsSuch) {
  EXPECT_TRUE(HasBackend(Device::kCpu));
  EXPECT_FALSE(HasBackend(static_cast<Device>(2)));
  const CacheShape shape{
      .num_layers = 1, .num_kv_heads = 2, .group_size = 2, .key_dim = 64, .value_dim = 64};
  CacheOptions options;
  options.device = Device::kCuda;
  options.device_index = 77;
  const Status status = Cache::Create(shape, options).status();
  const std::string lacks = "this build has no CUDA";
  EXPECT_EQ(status.message().find(lacks) == std::string::npos, HasBackend(Device::kCuda))
      << status.message();
  EXPECT_EQ(status.code(),
            HasBackend(Device::kCuda) ? StatusCode::kNotFound : StatusCode::kUnimplemented);
}

TEST_F(CacheTensors, WhatIsWrongInF32IsWrongInF16) {
  const std::vector<uint16_t> data(2 * 48);
  const SequenceId id = *cache_->CreateSequence();
  const RowsView rows{data.data(), 1, 0, 0, DType::kF16};
  RowsView two = rows;
  two.num_tokens = 2;
  RowsView none = rows;
  none.data = nullptr;
  EXPECT_EQ(cache_->Append(0, id, rows, rows).message(), "Append: no step is open");
  for (const auto& [keys, message] :
       {std::pair{two, "Append: keys.num_tokens 2 != values.num_tokens 1"},
        std::pair{none, "Append: keys.data is null"}}) {
    Result<Step> step = Step::Begin(*cache_, id, 1);
    EXPECT_EQ(step->Append(0, id, keys, rows).message(), message);
  }
}

}  // namespace cache_tensors_test
}  // namespace varve
