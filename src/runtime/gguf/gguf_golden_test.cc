// Files written by another implementation (tools/make_gguf_golden.py) are read as that
// implementation reads them.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include <gtest/gtest.h>

#include "runtime/gguf/gguf_file.h"
#include "tests/test_data.h"

namespace varve {
namespace gguf_golden_test {

using Json = nlohmann::ordered_json;
using FilePtr = std::shared_ptr<const GgufFile>;

std::string Path(const std::string& name) { return TestDataPath("gguf/" + name); }

Json ValueOf(const GgufFile& file, std::string_view key) {
  const GgufValue& value = *file.Find(key);
  if (value.type == GgufType::kString) return std::string(*file.GetString(key));
  if (value.type == GgufType::kBool) return *file.GetBool(key);
  if (value.type == GgufType::kF32 || value.type == GgufType::kF64) return *file.GetFloat(key);
  if (value.type != GgufType::kArray) return *file.GetInt(key, INT64_MIN, INT64_MAX);
  Json list = Json::array();
  if (value.element_type == GgufType::kString) {
    const Result<std::vector<std::string_view>> strings = file.GetStrings(key);
    for (const std::string_view text : *strings) list.push_back(std::string(text));
  } else if (value.element_type == GgufType::kF32) {
    const Result<std::vector<float>> numbers = file.GetFloats(key);
    for (const float number : *numbers) list.push_back(number);
  } else if (value.element_type == GgufType::kBool) {
    for (const std::byte flag : value.bytes) list.push_back(flag != std::byte{0});
  } else {
    const Result<std::vector<int32_t>> numbers = file.GetInts(key);
    for (const int32_t number : *numbers) list.push_back(number);
  }
  return list;
}

Json TypesOf(const GgufValue& value) {
  Json types = Json::array({static_cast<int>(value.type)});
  if (value.type == GgufType::kArray) types.push_back(static_cast<int>(value.element_type));
  return types;
}

std::string Hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

// The file in the form of the .json beside it.
Json Describe(const GgufFile& file) {
  Json keys = Json::array();
  for (const std::string_view key : file.keys()) {
    keys.push_back({{"key", std::string(key)},
                    {"types", TypesOf(*file.Find(key))},
                    {"value", ValueOf(file, key)}});
  }
  Json tensors = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back({{"name", std::string(tensor.name)},
                       {"dims", tensor.dims},
                       {"type", InfoOf(tensor.type).name},
                       {"data", Hex(tensor.data)}});
  }
  return {{"keys", keys}, {"tensors", tensors}};
}

void ExpectSame(const std::string& file_name, const std::string& json_name) {
  Result<FilePtr> file = GgufFile::Open(Path(file_name));
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::ifstream json_file(Path(json_name));
  const Json wanted = Json::parse(json_file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(wanted.is_object()) << json_name;
  const Json found = Describe(**file);
  for (const char* list : {"keys", "tensors"}) {
    ASSERT_GT(wanted[list].size(), 3u);
    ASSERT_EQ(found[list].size(), wanted[list].size());
    for (size_t i = 0; i < wanted[list].size(); ++i) EXPECT_EQ(found[list][i], wanted[list][i]);
  }
}

TEST(GgufGolden, EveryTypeReadsAsItsWriterReadsIt) { ExpectSame("types.gguf", "types.json"); }

TEST(GgufGolden, PartsReadAsTheirWriterReadsThem) {
  ExpectSame("split-00001-of-00003.gguf", "split.json");
}

}  // namespace gguf_golden_test
}  // namespace varve
