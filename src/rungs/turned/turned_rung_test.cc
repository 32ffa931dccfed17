// What turned codes promise about content: bytes, the error of the quantizer from both sides, keys
// that survive large constant channels, and what becomes of values that do not fit. Promises that
// all rungs make are in rung_test.cc and rung_attention_test.cc.

#include "rungs/turned/turned_rung.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "rungs/rotation.h"
#include "rungs/rung_testing.h"

namespace varve {
namespace turned_rung_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Turned : public EveryRung {
 protected:
  int bits() const { return GetParam()[1] - '0'; }
  // Of Gaussian values, by the Lloyd-Max quantizer. Rows of few values do better: each is divided
  // by its own rms, which bounds its largest.
  double QuantizerError() const { return bits() == 4 ? 0.0095 : bits() == 3 ? 0.03455 : 0.1175; }
};
INSTANTIATE_TEST_SUITE_P(Rungs, Turned, testing::Values("t4", "t3", "t2"), RungName);

// Squared error over all rows, relative to what is left of them without their mean.
double RelativeError(const std::vector<float>& rows, const StoredRows& stored, bool centred) {
  const int dim = stored.shape.dim;
  const size_t num_rows = rows.size() / dim;
  double error = 0.0, energy = 0.0;
  for (int d = 0; d < dim; ++d) {
    double mean = 0.0;
    for (size_t t = 0; centred && t < num_rows; ++t) mean += rows[t * dim + d];
    mean /= static_cast<double>(num_rows);
    for (size_t t = 0; t < num_rows; ++t) {
      error += std::pow(double{stored.decoded[t * dim + d]} - rows[t * dim + d], 2);
      energy += std::pow(rows[t * dim + d] - mean, 2);
    }
  }
  return error / energy;
}

TEST_P(Turned, BytesAreCodesAScalePerRowAndTheMeanOfKeys) {
  for (const int page_tokens : {16, 64, 128}) {
    for (const int dim : {64, 96, 128, 256}) {
      const StripShape shape{0, 0, dim, page_tokens};
      const size_t codes = static_cast<size_t>(page_tokens) * dim * bits() / 8;
      EXPECT_EQ(rung().StripBytes(Part::kValue, shape), codes + 2 * page_tokens);
      EXPECT_EQ(rung().StripBytes(Part::kKey, shape), codes + 2 * page_tokens + 2 * dim);
    }
  }
  const StripShape shape{0, 0, 128, 64};
  const size_t both = rung().StripBytes(Part::kKey, shape) + rung().StripBytes(Part::kValue, shape);
  EXPECT_EQ(8.0 * static_cast<double>(both) / (2 * 64 * 128), bits() + 0.25);
}

TEST_P(Turned, GaussianRowsHaveTheErrorOfTheQuantizer) {
  TestRandom random(81);
  for (const int dim : {64, 96, 128, 256}) {
    std::vector<float> rows = random.Gaussians(size_t{128} * dim);
    // Rows of any size: each has its scale.
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] *= std::ldexp(1.0f, static_cast<int>(i / dim % 9) - 4);
    const StoredRows value = Store(rung(), Part::kValue, dim, 128, rows);
    const double error = RelativeError(rows, value, false);
    EXPECT_LT(error, 1.03 * QuantizerError()) << dim;
    EXPECT_GT(error, 0.9 * QuantizerError()) << dim;
    const std::vector<float> keys = random.Gaussians(size_t{128} * dim);
    const StoredRows key = Store(rung(), Part::kKey, dim, 128, keys);
    const double key_error = RelativeError(keys, key, true);
    EXPECT_LT(key_error, 1.03 * QuantizerError()) << dim;
    EXPECT_GT(key_error, 0.9 * QuantizerError()) << dim;
  }
}

TEST_P(Turned, OutlierChannelsOfValuesCostNoMoreThanGaussianOnes) {
  // Every eighth channel is 8 times as large: turned, the row is Gaussian again.
  TestRandom random(82);
  std::vector<float> rows = random.Gaussians(size_t{64} * 128);
  for (size_t i = 0; i < rows.size(); i += 8) rows[i] *= 8.0f;
  const StoredRows value = Store(rung(), Part::kValue, 128, 64, rows);
  EXPECT_NEAR(RelativeError(rows, value, false), QuantizerError(), 0.15 * QuantizerError());
}

TEST_P(Turned, KeysWithHugeConstantChannelsStayAccurate) {
  TestRandom random(83);
  for (const int dim : {64, 96, 128}) {
    for (const int num_rows : {64, 33}) {
      std::vector<float> rows = random.Gaussians(static_cast<size_t>(num_rows) * dim);
      for (int t = 0; t < num_rows; ++t) {
        rows[static_cast<size_t>(t) * dim + 5] += 300.0f;
        rows[static_cast<size_t>(t) * dim + 40] -= 41.3f;
      }
      const StoredRows key = Store(rung(), Part::kKey, dim, 64, rows);
      const double error = RelativeError(rows, key, true);
      // Half a step of f16 at 300 is 1/8: what the rounded mean leaves in that channel.
      EXPECT_LT(error, 1.06 * QuantizerError()) << dim << ' ' << num_rows;
      EXPECT_GT(error, 0.87 * QuantizerError()) << dim << ' ' << num_rows;
      // Without a mean the offset is part of every row.
      const StoredRows value = Store(rung(), Part::kValue, dim, 64, rows);
      EXPECT_GT(RelativeError(rows, value, true), 20 * error) << dim << ' ' << num_rows;
    }
  }
}

TEST_P(Turned, AStripOfOneRowIsItsMean) {
  TestRandom random(84);
  std::vector<float> row = random.Gaussians(128);
  row[17] = 300.0f;
  const StoredRows key = Store(rung(), Part::kKey, 128, 64, row);
  for (int d = 0; d < 128; ++d)
    EXPECT_NEAR(key.value(0, d), row[d], 0x1p-11 * std::abs(row[d]) + 0.01) << d;
  // Exactly, where f16 holds the row.
  for (float& x : row) x = F16ToF32(F32ToF16(x));
  const StoredRows exact = Store(rung(), Part::kKey, 128, 64, row);
  for (int d = 0; d < 128; ++d) EXPECT_EQ(exact.value(0, d), row[d]) << d;
}

TEST_P(Turned, MissingKeysReadAsTheMeanAndDoNotChangeIt) {
  TestRandom random(85);
  std::vector<float> rows = random.Gaussians(size_t{7} * 64);
  for (float& x : rows) x += 10.0f;
  const StoredRows key = Store(rung(), Part::kKey, 64, 32, rows);
  for (int d = 0; d < 64; ++d) {
    double mean = 0.0;
    for (int t = 0; t < 7; ++t) mean += rows[static_cast<size_t>(t) * 64 + d] / 7;
    for (int t = 7; t < 32; ++t) ASSERT_NEAR(key.value(t, d), mean, 0.01) << t << ' ' << d;
  }
  const StoredRows none = Store(rung(), Part::kKey, 64, 32, {});
  for (const float x : none.decoded) ASSERT_EQ(x, 0.0f);
}

TEST_P(Turned, ConstantRowsAreExact) {
  // Values that f16 holds: the mean is the row, nothing is left to code.
  const StoredRows key = Store(rung(), Part::kKey, 96, 64, std::vector<float>(64 * 96, -2.5f));
  for (const float x : key.decoded) ASSERT_EQ(x, -2.5f);
  const StoredRows zero = Store(rung(), Part::kValue, 96, 64, std::vector<float>(64 * 96, 0.0f));
  for (const float x : zero.decoded) ASSERT_EQ(x, 0.0f);
}

TEST_P(Turned, WhatDoesNotFitIsCountedOnceAndNothingBecomesNan) {
  TestRandom random(86);
  const StripShape shape{0, 0, 128, 16};
  for (const Part part : {Part::kKey, Part::kValue}) {
    for (const float odd : {kNan, kInf, -kInf, 1e30f, 65536.0f}) {
      std::vector<float> rows = random.Gaussians(size_t{16} * 128);
      rows[128 + 3] = odd;
      std::vector<std::byte> strip(rung().StripBytes(part, shape));
      EXPECT_EQ(rung().Encode(part, shape, rows.data(), 16, strip.data()), 1u) << odd;
      EXPECT_EQ(rung().CheckStrip(part, shape, strip.data()).ToString(), "ok");
      std::vector<float> decoded(rows.size());
      rung().Decode(part, shape, strip.data(), 0, 16, decoded.data());
      for (const float x : decoded) ASSERT_TRUE(std::isfinite(x)) << odd;
      if (part == Part::kValue) {
        EXPECT_NEAR(decoded[3], rows[3], 2.0f) << odd;  // another row
      }
    }
  }
}

TEST_P(Turned, AScaleBeyondF16IsCutAndItsRowCounted) {
  // One row far from all others: its distance from the mean is almost twice the largest f16.
  const StripShape shape{0, 0, 64, 64};
  std::vector<float> rows(64 * 64, 65504.0f);
  std::fill_n(rows.begin(), 64, -65504.0f);
  std::vector<std::byte> strip(rung().StripBytes(Part::kKey, shape));
  const uint64_t replaced = rung().Encode(Part::kKey, shape, rows.data(), 64, strip.data());
  std::vector<float> decoded(rows.size());
  rung().Decode(Part::kKey, shape, strip.data(), 0, 64, decoded.data());
  for (const float x : decoded) ASSERT_TRUE(std::isfinite(x));
  EXPECT_EQ(rung().CheckStrip(Part::kKey, shape, strip.data()).ToString(), "ok");
  // A scale is 0.82, 0.59 and 0.41 standard deviations, and those of the row are 129000.
  EXPECT_EQ(replaced, bits() == 2 ? 0u : 64u);
}

TEST_P(Turned, StripsThatNoEncoderWritesAreRefused) {
  const StripShape shape{0, 0, 64, 16};
  TestRandom random(87);
  const auto message = [&](Part part, size_t offset, uint16_t bits) {
    StoredRows stored = Store(rung(), part, 64, 16, random.Gaussians(size_t{16} * 64));
    std::memcpy(&stored.strip[offset], &bits, 2);
    const Status status = rung().CheckStrip(part, shape, stored.strip.data());
    EXPECT_EQ(status.code(), status.ok() ? StatusCode::kOk : StatusCode::kDataLoss);
    return status.message();
  };
  const std::string prefix = "rung " + GetParam() + ": ";
  EXPECT_EQ(message(Part::kKey, 2 * 9, 0x7C00), prefix + "mean 9 is inf, not finite");
  EXPECT_EQ(message(Part::kKey, 2 * 63, 0xFE00), prefix + "mean 63 is -nan, not finite");
  EXPECT_EQ(message(Part::kKey, 2 * 63, 0xFBFF), "");
  EXPECT_EQ(message(Part::kKey, 128 + 2 * 15, 0xBC00), prefix + "scale 15 is -1 < 0");
  EXPECT_EQ(message(Part::kValue, 0, 0x7C00), prefix + "scale 0 is inf, not finite");
  EXPECT_EQ(message(Part::kValue, 2 * 15, 0x7BFF), "");
}

TEST_P(Turned, CodesReturnFromTheirCells) {
  TestRandom random(88);
  for (const Part part : {Part::kKey, Part::kValue}) {
    for (const auto& [dim, page_tokens] : {std::pair{32, 16}, {96, 32}, {128, 64}, {64, 128}}) {
      const StripShape shape{0, 0, dim, page_tokens};
      const int num_rows = page_tokens - 3;
      std::vector<uint8_t> codes(static_cast<size_t>(num_rows) * dim);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random.Bits() & ((1 << bits()) - 1));
      GuardedBuffer<std::byte> strip(rung().StripBytes(part, shape));
      PackTurnedCodes(bits(), part, shape, codes.data(), num_rows, strip.data());
      EXPECT_TRUE(strip.ZonesIntact());
      std::vector<uint8_t> back(static_cast<size_t>(page_tokens) * dim);
      UnpackTurnedCodes(bits(), part, shape, strip.data(), 0, page_tokens, back.data());
      EXPECT_TRUE(std::equal(codes.begin(), codes.end(), back.begin()));
      for (size_t i = codes.size(); i < back.size(); ++i) ASSERT_EQ(back[i], 0);
    }
  }
}

TEST(TurnedStrip, CodesLieWhereTheFormatSays) {
  // docs/format/pages.md: T = 64, D = 128, one channel of row 21 has the highest code.
  const StripShape shape{0, 0, 128, 64};
  const auto bytes_of = [&](int bits, Part part, int channel = 77) {
    std::vector<uint8_t> codes(64 * 128, 0);
    codes[21 * 128 + channel] = static_cast<uint8_t>((1 << bits) - 1);
    std::vector<std::byte> strip(
        TurnedStripBytes(bits, part == Part::kKey, shape.dim, shape.page_tokens), std::byte{0});
    PackTurnedCodes(bits, part, shape, codes.data(), 64, strip.data());
    std::string text;
    for (size_t i = 0; i < strip.size(); ++i) {
      if (strip[i] != std::byte{0})
        text += std::to_string(i) + ":" + std::to_string(std::to_integer<int>(strip[i])) + " ";
    }
    return text;
  };
  // K: cell 1 * 4 + 2, plane 13 / 4 = 3, place 4 * 5 + 1. V: cell 2 * 4 + 1, plane 2 * 1 + 0, place
  // 4 * 13 + 1.
  EXPECT_EQ(bytes_of(4, Part::kKey), std::to_string(384 + 6 * 256 + 64 + 21) + ":240 ");
  EXPECT_EQ(bytes_of(2, Part::kKey), std::to_string(384 + 6 * 128 + 21) + ":192 ");
  EXPECT_EQ(bytes_of(3, Part::kKey), std::to_string(384 + 6 * 192 + 64 + 21) + ":56 ");
  EXPECT_EQ(bytes_of(4, Part::kValue), std::to_string(128 + 9 * 256 + 64 + 53) + ":15 ");
  EXPECT_EQ(bytes_of(2, Part::kValue), std::to_string(128 + 9 * 128 + 53) + ":48 ");
  EXPECT_EQ(bytes_of(3, Part::kValue), std::to_string(128 + 9 * 192 + 64 + 53) + ":7 ");
  // Channel 89 of K is in plane 25 / 4 = 6, channel 93 in plane 7.
  EXPECT_EQ(bytes_of(3, Part::kKey, 89), std::to_string(384 + 6 * 192 + 21) + ":192 " +
                                             std::to_string(384 + 6 * 192 + 64 + 21) + ":64 ");
  EXPECT_EQ(bytes_of(3, Part::kKey, 93), std::to_string(384 + 6 * 192 + 64 + 21) + ":128 " +
                                             std::to_string(384 + 6 * 192 + 128 + 21) + ":192 ");
}

TEST(TurnedLevels, AreOddSymmetricAndInOrder) {
  const auto check = [](const auto& bytes, int bits) {
    for (int code = 0; code < 1 << bits; ++code) {
      EXPECT_LT(bytes[code], 128);
      EXPECT_EQ(2 * bytes[code] - kTurnedOffset,
                -(2 * bytes[(1 << bits) - 1 - code] - kTurnedOffset));
      if (code > 0) {
        EXPECT_GT(bytes[code], bytes[code - 1]);
      }
    }
    for (int i = 0; i < 64; ++i) EXPECT_EQ(bytes[i], bytes[i % (1 << bits)]);
  };
  check(kTurnedBytes<4>, 4);
  check(kTurnedBytes<3>, 3);
  check(kTurnedBytes<2>, 2);
}

}  // namespace turned_rung_test
}  // namespace varve
