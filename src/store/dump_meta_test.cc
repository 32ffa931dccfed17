#include "store/dump_meta.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace varve::store {
namespace dump_meta_test {

nlohmann::json Good() {
  return {{"stage", "prefill"},        {"run_id", "r1"},      {"layer_id", 3},
          {"seq_start", 192},          {"seq_len", 64},       {"kv_heads", 2},
          {"head_dim", 128},           {"bytes_per_elem", 2}, {"k_file", "k_t192_256.bin"},
          {"v_file", "v_t192_256.bin"}};
}

TEST(DumpMeta, FilesOfTheOriginalAreRead) {
  const auto meta = ParseDumpMeta(Good().dump());
  ASSERT_TRUE(meta.ok()) << meta.status().message();
  EXPECT_EQ(meta->layer_id, 3);
  EXPECT_EQ(meta->seq_start, 192);
  EXPECT_EQ(meta->dtype, "f16");
  EXPECT_EQ(meta->file_bytes(), 64u * 2 * 128 * 2);
  nlohmann::json f32 = Good();
  f32["bytes_per_elem"] = 4;
  EXPECT_EQ(ParseDumpMeta(f32.dump())->dtype, "f32");
}

TEST(DumpMeta, ComesBackFromItsText) {
  DumpMeta meta = *ParseDumpMeta(Good().dump());
  meta.dtype = "bf16";
  EXPECT_EQ(*ParseDumpMeta(FormatDumpMeta(meta)), meta);
  meta.stage = "\xFF\xFE";
  EXPECT_TRUE(ParseDumpMeta(FormatDumpMeta(meta)).ok());
}

TEST(DumpMeta, FilesAreLookedForBesideTheMeta) {
  nlohmann::json text = Good();
  text["k_file"] = "/data/run/layer_3/k_t192_256.bin";
  EXPECT_EQ(ParseDumpMeta(text.dump())->k_file, "k_t192_256.bin");
  for (const char* name : {"", "..", "a/..", "dir/", "."}) {
    text["k_file"] = name;
    EXPECT_FALSE(ParseDumpMeta(text.dump()).ok()) << name;
  }
}

TEST(DumpMeta, EveryWrongFieldIsNamed) {
  const auto expect = [](const char* key, const nlohmann::json& value) {
    nlohmann::json text = Good();
    text[key] = value;
    const Status status = ParseDumpMeta(text.dump()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << key;
    EXPECT_NE(status.message().find(key), std::string::npos) << status.message();
  };
  for (const char* key : {"layer_id", "seq_start", "seq_len", "kv_heads", "head_dim",
                          "bytes_per_elem", "k_file", "v_file"}) {
    nlohmann::json text = Good();
    text.erase(key);
    EXPECT_NE(ParseDumpMeta(text.dump()).status().message().find(key), std::string::npos) << key;
    expect(key, nullptr);
    expect(key, nlohmann::json::array());
  }
  expect("layer_id", -1);
  expect("seq_start", -1);
  expect("seq_len", 0);
  expect("seq_len", 18446744073709551615u);
  expect("kv_heads", 1025);
  expect("head_dim", 513);
  expect("bytes_per_elem", 3);
  expect("seq_len", 1.5);
  expect("dtype", "f32");
  expect("dtype", "q8_0");
  expect("stage", 1);
  for (const char* text : {"", "{", "[]", "3", "null"}) EXPECT_FALSE(ParseDumpMeta(text).ok());
}

}  // namespace dump_meta_test
}  // namespace varve::store
