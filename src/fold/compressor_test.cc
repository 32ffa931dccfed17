#include "varve/compressor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "fold/compressor_format.h"
#include "fold/compressor_testing.h"

namespace varve {
namespace compressor_test {

void ExpectRefused(const CompressorSpec& spec, const std::function<void(Compressor&)>& change,
                   const std::string& message) {
  Compressor compressor = RandomCompressor(spec);
  change(compressor);
  const Status status = CheckCompressor(compressor);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
}

void ExpectRefused(const std::function<void(Compressor&)>& change, const std::string& message) {
  ExpectRefused(CompressorSpec(), change, message);
}

CompressorLinear& Slot(Compressor& compressor, size_t layer, size_t part, size_t slot) {
  return compressor.layers[layer][part].slots[slot];
}

TEST(Compressor, AllThatTheFormatCanSayIsValid) {
  for (const auto dtype : {CompressorDtype::kF16, CompressorDtype::kBF16, CompressorDtype::kF32}) {
    for (const bool has_image : {false, true}) {
      for (const bool has_bias : {false, true}) {
        for (const int hidden : {0, 1, 7, 100}) {
          CompressorSpec spec;
          spec.dtype = dtype;
          spec.has_image = has_image;
          spec.has_bias = has_bias;
          spec.hidden = hidden;
          const Status status = CheckCompressor(RandomCompressor(spec));
          EXPECT_TRUE(status.ok()) << status.message();
        }
      }
    }
  }
}

TEST(Compressor, NamesAndSizes) {
  EXPECT_STREQ(CompressorDtypeName(CompressorDtype::kBF16), "bf16");
  EXPECT_EQ(CompressorDtypeBytes(CompressorDtype::kBF16), 2u);
  EXPECT_EQ(CompressorDtypeBytes(CompressorDtype::kF32), 4u);
  EXPECT_STREQ(CompressorPartName(CompressorPart::kImageValue), "compress_iv");
  EXPECT_EQ(CompressorBlockName(CompressorPart::kTextKey, 2), "compress_tk.6");
  CompressorSpec spec;
  spec.has_image = false;
  // 2 layers of 2 networks: 16 x 32, 16 x 16 and 16 x 16, a bias of 16 each.
  EXPECT_EQ(RandomCompressor(spec).bytes(), 2u * 2u * (512u + 256u + 256u + 48u) * 2u);
}

TEST(Compressor, EveryFieldHasItsLimits) {
  ExpectRefused([](Compressor& c) { c.dtype = static_cast<CompressorDtype>(3); },
                "dtype 3 is not in 0 … 2");
  ExpectRefused([](Compressor& c) { c.layers.clear(); }, "num_layers 0 is not in 1 … 1024");
  ExpectRefused([](Compressor& c) { c.layers.resize(1025); }, "num_layers 1025 is not in 1 … 1024");
  ExpectRefused([](Compressor& c) { c.num_heads = -1; }, "num_heads -1 is not in 0 … 1024");
  ExpectRefused([](Compressor& c) { c.num_heads = 1025; }, "num_heads 1025 is not in 0 … 1024");
  ExpectRefused([](Compressor& c) { c.head_dim = 0; }, "head_dim 0 is not in 16 … 512");
  ExpectRefused([](Compressor& c) { c.head_dim = 528; }, "head_dim 528 is not in 16 … 512");
  ExpectRefused([](Compressor& c) { c.head_dim = 24; }, "head_dim 24 is not a multiple of 16");
  ExpectRefused([](Compressor& c) { c.factor = 1; }, "factor 1 is not in 2 … 64");
  ExpectRefused([](Compressor& c) { c.factor = 65; }, "factor 65 is not in 2 … 64");
  ExpectRefused([](Compressor& c) { c.min_groups = -1; }, "min_groups -1 is not in 0 … 16777216");
}

TEST(Compressor, ShapesChain) {
  ExpectRefused([](Compressor& c) { c.factor = 3; },
                "layer 0: compress_tk.0: cols 32 is not 48, factor * head_dim");
  ExpectRefused([](Compressor& c) { Slot(c, 1, 2, 1).cols = 8; },
                "layer 1: compress_ik.3: cols 8 is not 16, the rows of the block before");
  ExpectRefused([](Compressor& c) { Slot(c, 1, 3, 2).rows = 8; },
                "layer 1: compress_iv.6: rows 8 is not head_dim 16");
  ExpectRefused([](Compressor& c) { Slot(c, 0, 1, 0).rows = 0; },
                "layer 0: compress_tv.0: rows 0 is not in 1 … 32768");
  ExpectRefused([](Compressor& c) { Slot(c, 0, 1, 0).cols = 32769; },
                "layer 0: compress_tv.0: cols 32769 is not in 1 … 32768");
  ExpectRefused([](Compressor& c) { Slot(c, 0, 1, 0).weights.pop_back(); },
                "layer 0: compress_tv.0: weights have 1023 bytes, not 1024");
  ExpectRefused([](Compressor& c) { Slot(c, 0, 1, 0).bias.pop_back(); },
                "layer 0: compress_tv.0: bias has 15 values, not 16");
  ExpectRefused([](Compressor& c) { c.has_image = false; },
                "layer 0: compress_ik is there without has_image");
}

TEST(Compressor, NumbersAreFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto dtype : {CompressorDtype::kF16, CompressorDtype::kBF16, CompressorDtype::kF32}) {
    for (const float bad : {infinity, -infinity, std::nanf("")}) {
      CompressorSpec spec;
      spec.dtype = dtype;
      ExpectRefused(
          spec, [&](Compressor& c) { StoreWeight(dtype, bad, Slot(c, 1, 0, 1), 255); },
          "layer 1: compress_tk.3: weight 255 is not finite");
      Compressor compressor = RandomCompressor(spec);
      Slot(compressor, 0, 0, 0).bias[3] = bad;
      EXPECT_TRUE(
          CheckCompressor(compressor).message().starts_with("layer 0: compress_tk.0: bias 3 is "));
    }
  }
  ExpectRefused([](Compressor& c) { Slot(c, 0, 0, 0).bias[3] = 0.1f; },
                "layer 0: compress_tk.0: bias 3 is 0.1, no value of f16");
}

TEST(Compressor, OrdersAreRead) {
  EXPECT_TRUE(*ParseCompressorOrder("", "") == CompressorOrder());
  const auto order = ParseCompressorOrder("compress_iv,ik", "6,0,3");
  ASSERT_TRUE(order.ok()) << order.status().message();
  EXPECT_EQ(order->parts[0], CompressorPart::kImageValue);
  EXPECT_EQ(order->parts[1], CompressorPart::kImageKey);
  EXPECT_EQ(order->parts[2], CompressorPart::kTextKey);
  EXPECT_EQ(order->slots, (std::vector<int>{2, 0, 1}));
  const auto message = [](const char* parts, const char* slots) {
    return ParseCompressorOrder(parts, slots).status().message();
  };
  EXPECT_EQ(message("tk,tx", ""),
            "prefix order \"tk,tx\": \"tx\" is not one of compress_tk compress_tv compress_ik "
            "compress_iv");
  EXPECT_EQ(message("tk,compress_tk", ""),
            "prefix order \"tk,compress_tk\": \"compress_tk\" comes twice");
  EXPECT_EQ(message("", "0,3,5,9"), "slot order \"0,3,5,9\" has 4 slots, not 1 … 3");
  EXPECT_EQ(message("", "0,3,3"), "slot order \"0,3,3\": \"3\" comes twice");
  EXPECT_EQ(message("", "a.b"), "slot order \"a.b\": \"a.b\" is no name of a slot");
}

TEST(Compressor, SlotsAreNumbersThatAscendOrNamesInOrder) {
  const auto slots = [](const char* list) { return ParseCompressorOrder("", list)->slots; };
  EXPECT_EQ(slots("0,2,4"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(slots("10,2,4"), (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(slots("6,3"), (std::vector<int>{1, 0}));
  EXPECT_EQ(slots("up,down"), (std::vector<int>{0, 1}));
  EXPECT_EQ(*ParseSlotNames("10,2,4"), (std::vector<std::string>{"2", "4", "10"}));
  EXPECT_EQ(*ParseSlotNames("up,down"), (std::vector<std::string>{"up", "down"}));
}

TEST(Compressor, AClauseSaysPartsAndSlots) {
  EXPECT_TRUE(*ParseCompressorOrder("") == CompressorOrder());
  EXPECT_TRUE(*ParseCompressorOrder("tv/tk:6/3/0") == *ParseCompressorOrder("tv,tk", "6,3,0"));
  EXPECT_TRUE(*ParseCompressorOrder(":0/3") == *ParseCompressorOrder("", "0,3"));
  EXPECT_EQ(ParseCompressorOrder("tv/tx").status().message(),
            "prefix order \"tv/tx\": \"tx\" is not one of compress_tk compress_tv compress_ik "
            "compress_iv");
}

}  // namespace compressor_test
}  // namespace varve
