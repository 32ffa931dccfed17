#include "cli/fold/fold_command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "fold/compressor_format.h"
#include "tests/cache_file_testing.h"
#include "tests/gguf_testing.h"
#include "tests/pth_testing.h"
#include "tests/test_data.h"

namespace varve::cli {
namespace fold_command_test {

const std::string kFolder = TestDataPath("fold/");

std::string Printed(const FoldConvertOptions& options) {
  testing::internal::CaptureStdout();
  const Status status = ConvertCompressor(options);
  std::string text = testing::internal::GetCapturedStdout();
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

  // In another order: the file says it.
  options.prefix_order = "tv,tk,iv,ik";
  options.slot_order = "6,3,0";
  EXPECT_NE(Printed(options).find("not the default"), std::string::npos);
  const auto turned = LoadCompressor(options.output);
  ASSERT_TRUE(turned.ok()) << turned.status().message();
  EXPECT_TRUE(**turned == **compressor);

  // A list without the networks of images leaves them out.
  options.prefix_order = "compress_tk,compress_tv";
  options.slot_order.clear();
  EXPECT_EQ(Printed(options).find("not the default"), std::string::npos);
  const auto short_one = LoadCompressor(options.output);
  ASSERT_TRUE(short_one.ok()) << short_one.status().message();
  EXPECT_FALSE((*short_one)->has_image);
  EXPECT_TRUE((*short_one)->Mlp(1, CompressorPart::kTextValue) ==
              (*compressor)->Mlp(1, CompressorPart::kTextValue));
}

// A .pth of one layer whose networks call their linear layers as `slots` say.
std::string WritePth(const TempFolder& folder, const std::vector<std::string>& slots) {
  PickleBuilder pickle;
  std::vector<std::pair<std::string, std::vector<std::byte>>> storages;
  pickle.Op("}").Mark();
  for (const std::string prefix : {"compress_tk", "compress_tv"}) {
    for (size_t i = 0; i < slots.size(); ++i) {
      const int64_t cols = i == 0 ? 64 : 16;
      std::vector<float> values(static_cast<size_t>(16 * cols));
      for (size_t at = 0; at < values.size(); ++at)
        values[at] = static_cast<float>((at + 5 * storages.size()) % 9) / 8;
      const auto bytes = std::as_bytes(std::span(values));
      const std::string key = std::to_string(storages.size());
      storages.push_back({key, {bytes.begin(), bytes.end()}});
      pickle.Text(prefix + ".0." + slots[i] + ".weight");
      pickle.Tensor("FloatStorage", key, 16 * cols, 0, {16, cols}, {cols, 1});
    }
  }
  pickle.Op("u");
  std::string path = folder.File("slots.pth");
  WriteFileBytes(path, BuildPth(pickle.Build(), storages));
  return path;
}

TEST(FoldCommand, SlotsMayHaveOtherNamesAndBeFewer) {
  const TempFolder folder;
  FoldConvertOptions options;
  options.output = folder.File("a.bin");
  const auto convert = [&](const std::vector<std::string>& slots, const std::string& list) {
    options.input = WritePth(folder, slots);
    options.slot_order = list;
    Printed(options);
    const auto loaded = LoadCompressor(options.output);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.ok() ? **loaded : Compressor();
  };
  const Compressor three = convert({"0", "3", "6"}, "");
  EXPECT_EQ(three.num_slots, 3);
  EXPECT_EQ(three.factor, 4);
  EXPECT_TRUE(convert({"0", "2", "4"}, "0,2,4") == three);
  EXPECT_TRUE(convert({"2", "4", "10"}, "10,4,2") == three);  // numbers, not texts
  EXPECT_TRUE(convert({"up", "mid", "down"}, "up,mid,down") == three);
  const Compressor two = convert({"0", "3", "6"}, "0,3");
  EXPECT_EQ(two.num_slots, 2);
  EXPECT_TRUE(two.Mlp(0, CompressorPart::kTextKey).slots[1] ==
              three.Mlp(0, CompressorPart::kTextKey).slots[1]);
  options.slot_order = "0,1,2";
  EXPECT_EQ(ConvertCompressor(options).message(),
            options.input + ": compress_tk.0.2.weight is missing");
}

TEST(FoldCommand, TakesTheOriginalsCommandLine) {
  const TempFolder folder;
  for (const bool named : {true, false}) {
    CLI::App app;
    int exit_code = 0;
    AddFoldConvert(&app, &exit_code);
    const std::string input = kFolder + "nested_f16.pth";
    const std::string output = folder.File(named ? "named.bin" : "placed.bin");
    const std::string line = fmt::format(
        fmt::runtime(named ? "convert --input {} --output {}" : "convert {} {}"), input, output);
    testing::internal::CaptureStdout();
    app.parse(line + " --dtype fp16");
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(exit_code, 0);
  }
  EXPECT_FALSE(ReadFileBytes(folder.File("named.bin")).empty());
  EXPECT_EQ(ReadFileBytes(folder.File("named.bin")), ReadFileBytes(folder.File("placed.bin")));
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
  bad.slot_order = "0,3,6,9";
  EXPECT_EQ(message(bad), "slot order \"0,3,6,9\" has 4 slots, not 1 … 3");
  bad.slot_order = "0,3,3";
  EXPECT_EQ(message(bad), "slot order \"0,3,3\": \"3\" comes twice");
  bad = options;
  bad.prefix_order = "tk,tv,ik";
  EXPECT_EQ(
      message(bad),
      "--prefix-order \"tk,tv,ik\": name compress_tk and compress_tv, and either both or none "
      "of compress_ik and compress_iv");
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
