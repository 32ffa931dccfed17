#include "cli/fold/fold_command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "fold/compressor_format.h"
#include "tests/cache_file_testing.h"
#include "tests/gguf_testing.h"
#include "tests/test_data.h"

namespace varve::cli {
namespace fold_command_test {

const std::string kFolder = TestDataPath("fold/");

std::string Printed(const FoldConvertOptions& options) {
  testing::internal::CaptureStdout();
  const Status status = ConvertCompressor(options);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

TEST(FoldCommand, ConvertsAndSaysWhatItIgnored) {
  const TempFolder folder;
  FoldConvertOptions options;
  options.input = kFolder + "nested_f16.pth";
  options.output = folder.File("a.bin");
  options.convert.num_heads = 2;
  const std::string text = Printed(options);
  EXPECT_NE(text.find("2 layers, 2 KV heads, head_dim 16"), std::string::npos) << text;
  EXPECT_NE(text.find("model_state_dict.compressor"), std::string::npos) << text;
  EXPECT_NE(text.find("attention.0.q_proj.weight"), std::string::npos) << text;
  const auto compressor = LoadCompressor(options.output);
  ASSERT_TRUE(compressor.ok()) << compressor.status().message();
  EXPECT_EQ((*compressor)->dtype, CompressorDtype::kF16);
  EXPECT_EQ((*compressor)->min_groups, 2);
  EXPECT_TRUE(IsCompressorFile(options.output));
  EXPECT_FALSE(IsCompressorFile(options.input));

  // In another order: the same for a reader that knows it.
  options.prefix_order = "tv,tk";
  options.slot_order = "6,3,0";
  EXPECT_NE(Printed(options).find("not the default"), std::string::npos);
  EXPECT_FALSE(LoadCompressor(options.output).ok());
  const auto turned = LoadCompressor(options.output, *ParseCompressorOrder("tv,tk", "6,3,0"));
  ASSERT_TRUE(turned.ok()) << turned.status().message();
  EXPECT_TRUE(**turned == **compressor);
}

TEST(FoldCommand, WhatCannotBeIsRefusedAndNothingIsWritten) {
  const TempFolder folder;
  FoldConvertOptions options;
  options.input = kFolder + "flat_bf16.pth";
  options.output = folder.File("a.bin");
  const auto message = [](const FoldConvertOptions& given) {
    return ConvertCompressor(given).message();
  };
  FoldConvertOptions bad = options;
  bad.dtype = "fp8";
  EXPECT_EQ(message(bad), "--dtype \"fp8\": not one of fp16 bf16 fp32");
  bad = options;
  bad.slot_order = "0,1,2";
  EXPECT_EQ(message(bad), "slot order \"0,1,2\": \"1\" is not one of 0 3 6");
  bad = options;
  bad.input = kFolder + "none.pth";
  EXPECT_EQ(message(bad), bad.input + ": no such file");
  bad = options;
  bad.input = kFolder + "flat_bf16.bin";
  EXPECT_EQ(message(bad), bad.input + ": is a compressor already, not a .pth");
  bad = options;
  bad.input = kFolder + "index.json";
  EXPECT_EQ(message(bad), bad.input + ": is no zip: it has no end record");
  EXPECT_TRUE(ReadFileBytes(options.output).empty());
  bad = options;
  bad.output = options.input;
  EXPECT_EQ(message(bad), bad.output + ": is the input");
}

TEST(FoldCommand, InspectWritesJson) {
  const TempFolder folder;
  FoldInspectOptions options;
  options.path = kFolder + "flat_bf16.bin";
  options.json = "-";
  testing::internal::CaptureStdout();
  const Status status = InspectCompressor(options);
  const auto json = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  ASSERT_TRUE(status.ok()) << status.message();
  const nlohmann::json& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("dtype"), "bf16");
  EXPECT_EQ(row.at("compression_factor"), 4);
  EXPECT_EQ(row.at("has_image"), false);
  EXPECT_EQ(row.at("blocks").size(), 6u);
  EXPECT_EQ(row.at("blocks").at(0).at("cols"), 64);
  options.path = kFolder + "flat_bf16.pth";
  EXPECT_NE(InspectCompressor(options).message().find("`varve fold convert`"), std::string::npos);
}

}  // namespace fold_command_test
}  // namespace varve::cli
