// Names of pq rungs, and what a rung says of itself: bytes without a codebook, and what a codebook
// lacks.

#include "rungs/pq/pq_name.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "rungs/pq/pq_rung.h"
#include "rungs/pq/pq_testing.h"

namespace varve {
namespace pq_name_test {

TEST(PqName, SaysSubspacesAndBits) {
  for (const int subspaces : {1, 3, 64, 512}) {
    for (int bits = 4; bits <= 12; ++bits) {
      const PqSize size = {subspaces, bits};
      EXPECT_EQ(PqName(size), "pq" + std::to_string(subspaces) + "x" + std::to_string(bits));
      EXPECT_EQ(ParsePqName(PqName(size), 128), size);
      EXPECT_TRUE(IsPqName(PqName(size)));
    }
  }
}

TEST(PqName, AliasesAreBitsPerValueInPairsOfChannels) {
  for (const int dim : {16, 64, 80, 128, 512}) {
    EXPECT_EQ(ParsePqName("pq4", dim), (PqSize{dim / 2, 8}));
    EXPECT_EQ(ParsePqName("pq3", dim), (PqSize{dim / 2, 6}));
    EXPECT_EQ(ParsePqName("pq2", dim), (PqSize{dim / 2, 4}));
    // The bits that the alias says, and 16 for the gain.
    for (const int bits : {2, 3, 4}) {
      const RungDescriptor& rung = *FindRung("pq" + std::to_string(bits), dim);
      EXPECT_EQ(8 * rung.StripBytes(Part::kKey, {0, 0, dim, 64}),
                64u * static_cast<size_t>(bits * dim + 16));
    }
  }
}

TEST(PqName, IsNothingElse) {
  for (const char* name : {"",
                           "p",
                           "pq",
                           "pq1",
                           "pq5",
                           "pq4x",
                           "pqx8",
                           "pqx",
                           "pq0x8",
                           "pq513x8",
                           "pq64x3",
                           "pq64x13",
                           "pq064x8",
                           "pq64x08",
                           "pq64x8 ",
                           " pq64x8",
                           "pq64x8r",
                           "pq-1x8",
                           "pq+1x8",
                           "PQ64x8",
                           "pq64X8",
                           "pq64x8x8",
                           "pq99999999999x8",
                           "pq64x99999999999",
                           "q4_0",
                           "f16"}) {
    EXPECT_FALSE(ParsePqName(name, 128).has_value()) << name;
    EXPECT_FALSE(IsPqName(name)) << name;
  }
}

TEST(PqRungChecks, ADescriptorCountsAndChecksBytesWithoutACodebook) {
  const RungDescriptor& rung = PqDescriptorOf({16, 5});
  EXPECT_EQ(rung.name, "pq16x5");
  EXPECT_TRUE(rung.needs_codebook());
  EXPECT_EQ(&rung, FindRung("pq16x5"));
  EXPECT_EQ(rung.CheckDim(48).ToString(), "ok");
  EXPECT_EQ(rung.StripBytes(Part::kKey, {0, 0, 48, 64}), 64u * 2 + 64u * 16 * 5 / 8);
  std::vector<std::byte> strip(rung.StripBytes(Part::kKey, {0, 0, 48, 64}));
  EXPECT_EQ(rung.CheckStrip(Part::kKey, {0, 0, 48, 64}, strip.data()).ToString(), "ok");
}

TEST(PqRungChecks, DimensionsMustBeDivisible) {
  const RungDescriptor& rung = PqDescriptorOf({32, 8});
  for (const int dim : {32, 64, 96, 512}) EXPECT_EQ(rung.CheckDim(dim).ToString(), "ok") << dim;
  EXPECT_EQ(rung.CheckDim(48).message(), "rung pq32x8: 32 sub-spaces do not divide head_dim 48");
  EXPECT_EQ(rung.CheckDim(16).message(), "rung pq32x8: 32 sub-spaces do not divide head_dim 16");
  for (const int dim : {-16, 0, 8, 40, 528}) {
    EXPECT_EQ(rung.CheckDim(dim).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(rung.CheckDim(dim).message(), "rung pq32x8: head_dim " + std::to_string(dim) +
                                                " is not a multiple of 16 in 16 … 512");
  }
}

TEST(PqRungChecks, WhatACodebookLacksIsNamed) {
  CacheShape shape;
  shape.num_layers = shape.num_kv_heads = 1;
  shape.key_dim = 64;
  shape.value_dim = 32;
  const auto codebook =
      SharePqCodebook(shape, {{Part::kKey, {32, 4}}, {Part::kKey, {8, 5}}, {Part::kValue, {8, 5}}});
  const auto check = [&](const PqSize& size, Part part, int dim) {
    const RungDescriptor& rung = PqDescriptorOf(size);
    return rung.check_codebook(rung, *codebook, part, dim);
  };
  const PqRung both = MakePqRung({8, 5}, codebook);
  EXPECT_EQ(check({8, 5}, Part::kKey, 64).ToString(), "ok");
  EXPECT_EQ(check({8, 5}, Part::kValue, 32).ToString(), "ok");
  EXPECT_EQ(check({8, 5}, Part::kKey, 32).message(),
            "rung pq8x5: the codebook's K rows have 64 values, not 32");
  EXPECT_EQ(check({8, 5}, Part::kValue, 64).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(check({8, 5}, Part::kValue, 64).message(),
            "rung pq8x5: the codebook's V rows have 32 values, not 64");
  EXPECT_EQ(check({16, 6}, Part::kKey, 64).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(check({16, 6}, Part::kKey, 64).message(),
            "rung pq16x6: the codebook has no table of that size for K; it has pq32x4 pq8x5");
  EXPECT_EQ(check({16, 6}, Part::kValue, 32).message(),
            "rung pq16x6: the codebook has no table of that size for V; it has pq8x5");
  const PqRung keys = MakePqRung({32, 4}, codebook);
  EXPECT_EQ(check({32, 4}, Part::kValue, 32).code(), StatusCode::kFailedPrecondition);
  // What a table takes, once; rotations also in the layout of kernels.
  EXPECT_EQ(keys.TableBytes(Part::kKey), 4u * 32 + 64u * 16);
  EXPECT_EQ(keys.TableBytes(Part::kValue), 0u);
  EXPECT_EQ(both.TableBytes(Part::kValue), 4u * 8 + 32u * 32);
  const PqRung turned = MakePqRung(
      {8, 5}, SharePqCodebook(shape, {{Part::kKey, {8, 5}, CodebookGrain::kModel, true},
                                      {Part::kValue, {8, 5}, CodebookGrain::kModel, true}}));
  EXPECT_EQ(turned.TableBytes(Part::kKey), 4u * 8 + 64u * 32 + 2u * 2 * 64 * 64);
  EXPECT_EQ(turned.TableBytes(Part::kValue), 4u * 8 + 32u * 32 + 3u * 2 * 32 * 32);
}

TEST(PqRungChecks, AStripWithAGainThatNoEncoderWritesIsRefused) {
  const RungDescriptor& rung = PqDescriptorOf({8, 4});
  const StripShape shape = {0, 0, 16, 16};
  const auto message = [&](int token, uint16_t bits) {
    std::vector<std::byte> strip(rung.StripBytes(Part::kKey, shape), std::byte{0xFF});
    std::fill_n(strip.begin(), 32, std::byte{0});  // any code is one
    std::memcpy(strip.data() + 2 * token, &bits, 2);
    const Status status = rung.CheckStrip(Part::kKey, shape, strip.data());
    EXPECT_EQ(status.code(), status.ok() ? StatusCode::kOk : StatusCode::kDataLoss);
    return status.message();
  };
  EXPECT_EQ(message(3, F32ToF16(65504.0f)), "");
  EXPECT_EQ(message(3, F32ToF16(-1.0f)), "rung pq8x4: gain 3 is -1 < 0");
  EXPECT_EQ(message(15, 0x7C00), "rung pq8x4: gain 15 is inf, not finite");
  EXPECT_EQ(message(0, 0xFC00), "rung pq8x4: gain 0 is -inf, not finite");
  EXPECT_NE(message(7, 0x7E00).find("gain 7 is nan, not finite"), std::string::npos);
  EXPECT_EQ(message(1, 0x8000), "rung pq8x4: gain 1 is -0 < 0");
}

TEST(PqMethods, BytesAreNotForcedOnWideCodesNorTablesOnManyRows) {
  const PqKernels& kernels = PqKernelsOf(ActiveKernels());
  {
    const ScopedPqMethods scope({PqKeyMethod::kBytes, PqValueMethod::kBytes});
    EXPECT_EQ(ChoosePqKeyMethod(kernels, 8, 100), PqKeyMethod::kBytes);
    EXPECT_EQ(ChoosePqKeyMethod(kernels, 9, 1), PqKeyMethod::kTables);
    EXPECT_EQ(ChoosePqValueMethod(kernels, 8, 2), PqValueMethod::kBytes);
    EXPECT_NE(ChoosePqValueMethod(kernels, 9, 2), PqValueMethod::kBytes);
  }
  {
    const ScopedPqMethods scope({PqKeyMethod::kTables, PqValueMethod::kCentroids});
    EXPECT_EQ(ChoosePqKeyMethod(kernels, 8, kMaxTableRows), PqKeyMethod::kTables);
    EXPECT_EQ(ChoosePqKeyMethod(kernels, 8, kMaxTableRows + 1), PqKeyMethod::kDecode);
    EXPECT_EQ(ChoosePqValueMethod(kernels, 12, 1), PqValueMethod::kCentroids);
  }
  EXPECT_EQ(ChoosePqKeyMethod(kernels, 12, 1), PqKeyMethod::kTables);
}

}  // namespace pq_name_test
}  // namespace varve
