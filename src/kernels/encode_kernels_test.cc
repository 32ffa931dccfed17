// The encoders of every table give the bytes of the scalar one: a page must not depend on the
// machine that sealed it. What the scalar bytes are is tested by ggml_golden_test.cc.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_tables.h"
#include "kernels/kernel_testing.h"
#include "kernels/strip_oracle.h"

namespace varve {
namespace encode_kernels_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

class EncodeKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, EncodeKernel, testing::ValuesIn(AllTables()), TableName);

float BlockLimit(BlockType type) { return 65504.0f * (type == BlockType::kQ8 ? 127.0f : 8.0f); }

// Blocks whose largest magnitude is shared, at any two places, by both signs.
void AppendTies(std::vector<float>& values) {
  for (const auto& [i, j] :
       {std::pair{0, 1}, {1, 0}, {3, 19}, {19, 3}, {0, 31}, {31, 0}, {15, 16}}) {
    for (int k = 0; k < kBlockValues; ++k) {
      values.push_back(k == i ? 2.0f : k == j ? -2.0f : 0.125f * static_cast<float>(k % 7 - 3));
    }
  }
}

// Values that fall on or beside the rounding boundaries of the codes, in steps of the scale.
void AppendBoundaries(std::vector<float>& values, float step, int levels) {
  for (int block = 0; block < 8; ++block) {
    values.push_back(step * static_cast<float>(block % 2 ? -levels : levels));
    for (int k = 1; k < kBlockValues; ++k) {
      const float half =
          step * (static_cast<float>((block * 31 + k) % (2 * levels) - levels) + 0.5f);
      values.push_back(k % 3 == 0 ? half : std::nextafter(half, k % 3 == 1 ? kInf : -kInf));
    }
  }
}

// One block each, all values 0.5 but one.
void AppendSingles(std::vector<float>& values, BlockType type) {
  const float limit = BlockLimit(type);
  for (const float odd : {0.0f, -0.0f, kNan, -kNan, kInf, -kInf, 1e30f, -1e30f, limit, -limit,
                          std::nextafter(limit, kInf), std::nextafter(-limit, -kInf),
                          std::nextafter(limit, 0.0f), kDenormal, -kDenormal, 3.4e38f, -3.4e38f}) {
    for (const int at : {0, 3, 17, 31}) {
      for (int k = 0; k < kBlockValues; ++k) values.push_back(k == at ? odd : 0.5f);
    }
  }
}

std::vector<float> AwkwardBlocks(BlockType type) {
  std::vector<float> values;
  TestRandom random(4);
  AppendTies(values);
  AppendSingles(values, type);
  for (const float step : {1.0f, 0.1f, 1e-6f, 3e-8f, 1e-30f, 60000.0f}) {
    AppendBoundaries(values, step, type == BlockType::kQ8 ? 127 : 8);
  }
  // Every magnitude from denormal to overflow: scales that vanish, subnormal f16 scales, inverse
  // scales that overflow.
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (int k = 0; k < kBlockValues; ++k)
      values.push_back(std::ldexp(random.Gaussian() / 4, exponent));
  }
  for (const float same :
       {0.0f, -0.0f, kDenormal, -kDenormal, 1.0f, -1.0f, kNan, kInf, -kInf, 1e30f}) {
    values.insert(values.end(), kBlockValues, same);
  }
  const std::vector<float> plain = random.Gaussians(size_t{500} * kBlockValues);
  values.insert(values.end(), plain.begin(), plain.end());
  return values;
}

TEST_P(EncodeKernel, QuantizeBlocksGivesTheScalarBytesAndCount) {
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    const std::vector<float> values = AwkwardBlocks(type);
    const int t = static_cast<int>(type);
    const size_t code_bytes = BlockCodeBytes(type);
    for (size_t b = 0; b < values.size() / kBlockValues; ++b) {
      const std::vector<float> block(values.begin() + b * kBlockValues,
                                     values.begin() + (b + 1) * kBlockValues);
      uint16_t scale;
      uint8_t codes[32];
      const uint64_t replaced = ScalarKernels().quantize_blocks[t](block.data(), 1, &scale, codes);
      GuardedBuffer<uint16_t> got_scale(1);
      GuardedBuffer<uint8_t> got_codes(code_bytes);
      ASSERT_EQ(GetParam()->quantize_blocks[t](block.data(), 1, got_scale.data(), got_codes.data()),
                replaced)
          << "block " << b;
      ASSERT_EQ(got_scale[0], scale) << "block " << b << ", first value " << block[0];
      ASSERT_EQ(std::memcmp(got_codes.data(), codes, code_bytes), 0) << "block " << b;
      ASSERT_TRUE(got_scale.ZonesIntact() && got_codes.ZonesIntact());
    }
  }
}

TEST_P(EncodeKernel, QuantizeBlocksTakesManyBlocksAtOnce) {
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    const std::vector<float> values = AwkwardBlocks(type);
    const int t = static_cast<int>(type);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, values.size() / kBlockValues}) {
      const std::vector<float> input(values.begin(), values.begin() + count * kBlockValues);
      std::vector<uint16_t> scales(count);
      std::vector<uint8_t> codes(count * BlockCodeBytes(type));
      GuardedBuffer<uint16_t> got_scales(count);
      GuardedBuffer<uint8_t> got_codes(codes.size());
      const uint64_t replaced =
          ScalarKernels().quantize_blocks[t](input.data(), count, scales.data(), codes.data());
      EXPECT_EQ(
          GetParam()->quantize_blocks[t](input.data(), count, got_scales.data(), got_codes.data()),
          replaced);
      EXPECT_TRUE(std::equal(scales.begin(), scales.end(), got_scales.data()));
      EXPECT_TRUE(std::equal(codes.begin(), codes.end(), got_codes.data()));
      EXPECT_TRUE(got_scales.ZonesIntact() && got_codes.ZonesIntact());
    }
  }
}

TEST_P(EncodeKernel, QuantizeBlocksCountsWhatItReplacesAndStoresTheLimit) {
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    std::vector<float> block(kBlockValues, 0.0f);
    block[2] = kNan;
    block[7] = kInf;
    block[20] = -1e30f;
    block[30] = BlockLimit(type);
    uint16_t scale;
    uint8_t codes[32];
    EXPECT_EQ(GetParam()->quantize_blocks[static_cast<int>(type)](block.data(), 1, &scale, codes),
              3u);
    EXPECT_EQ(std::abs(F16ToF32(scale)), 65504.0f);
    if (type == BlockType::kQ8) {
      EXPECT_EQ(codes[2], 0);
      EXPECT_EQ(static_cast<int8_t>(codes[7]), 127);
      EXPECT_EQ(static_cast<int8_t>(codes[20]), -127);
    } else {  // the scale is negative: +limit has code -8 + 8, -limit would be +8 and stops at 7
      EXPECT_EQ(codes[2] & 15, 8);
      EXPECT_EQ(codes[7] & 15, 0);
      EXPECT_EQ(codes[4] >> 4, 15);
    }
  }
}

TEST_P(EncodeKernel, PrepareBlockQueryGivesTheScalarBytes) {
  TestRandom random(5);
  for (const int dim : {32, 64, 96, 128, 256, 512}) {
    for (const float size : {1.0f, 1e-3f, 1e30f, 1e-30f, 1e-36f, 1e-41f, 0.0f, 1e38f}) {
      for (const float odd : {1.0f, 0.0f, -0.0f, kNan, kInf, -kInf, 3.4e38f, kDenormal}) {
        std::vector<float> query(dim);
        for (float& x : query) x = size * std::clamp(random.Gaussian(), -3.0f, 3.0f);
        query[random.Bits() % dim] = odd;
        GuardedBuffer<std::byte> want(BlockQueryBytes(dim)), got(BlockQueryBytes(dim));
        ScalarKernels().prepare_block_query(query.data(), dim, want.data());
        GetParam()->prepare_block_query(query.data(), dim, got.data());
        // All but the padding; NaN scales compare by bits too, both are the quiet NaN of C++.
        const size_t used = BlockQueryCodesAt(dim) + 2 * static_cast<size_t>(dim);
        ASSERT_EQ(std::memcmp(want.data(), got.data(), used), 0)
            << dim << ' ' << size << ' ' << odd;
        ASSERT_TRUE(got.ZonesIntact());
      }
    }
  }
}

TEST_P(EncodeKernel, ABlockQueryIsTheQueryWithinHalfALevel) {
  TestRandom random(6);
  const int dim = 96;
  for (int round = 0; round < 50; ++round) {
    const std::vector<float> query = random.Gaussians(dim);
    std::vector<std::byte> prepared(BlockQueryBytes(dim));
    GetParam()->prepare_block_query(query.data(), dim, prepared.data());
    const float* scale = reinterpret_cast<const float*>(prepared.data());
    const int8_t* hi = reinterpret_cast<const int8_t*>(prepared.data() + BlockQueryCodesAt(dim));
    const int8_t* lo = hi + dim;
    double worst = 0.0;
    for (int d = 0; d < dim; ++d) {
      ASSERT_GE(hi[d], -127);
      const double level = query[d] / static_cast<double>(scale[d / kBlockValues]);
      const double error = std::abs(level - (256 * hi[d] + lo[d]));
      // Half a level, plus three roundings of numbers below 2^15.
      ASSERT_LE(error, 0.5 + 3 * 0x1p15 * kUnitRoundoff);
      worst = std::max(worst, error);
    }
    ASSERT_GT(worst, 0.3) << "finer than the format allows";
  }
}

// Every class of f32: values around each f16, midpoints, subnormals, overflow, NaN with payloads.
std::vector<float> AwkwardFloats() {
  std::vector<float> values;
  for (uint32_t h = 0; h < 0x10000; h += 7) {
    const float x = F16ToF32(static_cast<uint16_t>(h));
    const float next = F16ToF32(static_cast<uint16_t>(h + 1));
    for (const float y :
         {x, x + (next - x) / 2, std::nextafter(x, kInf), std::nextafter(x, -kInf)}) {
      values.push_back(y);
    }
  }
  for (const uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFFC12345u, 0x7FFFFFFFu, 0x7F802000u}) {
    float x;
    std::memcpy(&x, &bits, 4);
    values.push_back(x);
  }
  TestRandom random(7);
  for (int i = 0; i < 4000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random.Bits());
    float x;
    std::memcpy(&x, &bits, 4);
    values.push_back(x);
  }
  for (const float x :
       {65504.0f, 65519.9f, 65520.0f, -65520.0f, 1e30f, 2.98e-8f, 2.99e-8f, kDenormal}) {
    values.push_back(x);
  }
  return values;
}

TEST_P(EncodeKernel, NarrowingIsThePortableOne) {
  const std::vector<float> values = AwkwardFloats();
  GuardedBuffer<uint16_t> f16(values.size()), bf16(values.size());
  GetParam()->narrow_f16(values.data(), values.size(), f16.data());
  GetParam()->narrow_bf16(values.data(), values.size(), bf16.data());
  EXPECT_TRUE(f16.ZonesIntact() && bf16.ZonesIntact());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(f16[i], F32ToF16(values[i])) << values[i] << " bits " << FloatBits(values[i]);
    ASSERT_EQ(bf16[i], F32ToBF16(values[i])) << values[i] << " bits " << FloatBits(values[i]);
  }
}

TEST_P(EncodeKernel, WideningIsExactForEveryHalf) {
  std::vector<uint16_t> bits(0x10000);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  for (const size_t count : {bits.size(), bits.size() - 1, size_t{33}, size_t{1}}) {
    GuardedBuffer<float> f16(count), bf16(count);
    GetParam()->widen_f16(bits.data(), count, f16.data());
    GetParam()->widen_bf16(bits.data(), count, bf16.data());
    ASSERT_TRUE(f16.ZonesIntact() && bf16.ZonesIntact());
    for (size_t i = 0; i < count; ++i) {
      const float want = F16ToF32(bits[i]);  // a signalling NaN may come back quiet
      ASSERT_TRUE(std::isnan(want) ? std::isnan(f16[i]) : FloatBits(f16[i]) == FloatBits(want))
          << i;
      ASSERT_EQ(FloatBits(bf16[i]), FloatBits(BF16ToF32(bits[i]))) << i;
    }
  }
}

TEST_P(EncodeKernel, NarrowingStopsAtTheCount) {
  TestRandom random(8);
  for (size_t count = 0; count < 70; ++count) {
    const std::vector<float> values = random.Gaussians(count);
    GuardedBuffer<uint16_t> out(count);
    GetParam()->narrow_f16(values.data(), count, out.data());
    ASSERT_TRUE(out.ZonesIntact());
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(out[i], F32ToF16(values[i])) << i << " of " << count;
  }
}

TEST_P(EncodeKernel, HadamardGivesTheScalarBits) {
  TestRandom random(9);
  for (const int block : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    for (const int num_rows : {1, 2, 5}) {
      const int dim = block * (num_rows == 2 ? 3 : 1);
      std::vector<float> want = random.Gaussians(static_cast<size_t>(num_rows) * dim);
      want[0] = -0.0f;
      want.back() = 1e-40f;
      GuardedBuffer<float> got(want.size());
      got.Assign(want);
      ScalarKernels().hadamard(want.data(), num_rows, dim, block);
      GetParam()->hadamard(got.data(), num_rows, dim, block);
      ASSERT_TRUE(got.ZonesIntact());
      ASSERT_TRUE(SameBits(want.data(), got.data(), want.size())) << "block " << block;
    }
  }
}

TEST_P(EncodeKernel, HadamardIsTheWalshMatrix) {
  // Element (i, j) has the sign of the parity of i & j; every column, so any error of a lane shows.
  const int block = 64;
  for (int j = 0; j < block; ++j) {
    std::vector<float> row(block, 0.0f);
    row[j] = 1.0f;
    GetParam()->hadamard(row.data(), 1, block, block);
    for (int i = 0; i < block; ++i) {
      ASSERT_EQ(row[i], __builtin_parity(i & j) ? -0.125f : 0.125f) << i << ' ' << j;
    }
  }
}

}  // namespace encode_kernels_test
}  // namespace varve
