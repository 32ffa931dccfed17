#include "runtime/gguf/gguf_file.h"

#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>

#include "tests/gguf_testing.h"

namespace varve {
namespace gguf_file_test {

using FilePtr = std::shared_ptr<const GgufFile>;

FilePtr OpenBytes(const std::vector<std::byte>& bytes) {
  Result<FilePtr> file = GgufFile::FromMemory(bytes, "test.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? *file : nullptr;
}

TEST(GgufFile, AFileThatIsShortenedWhileItIsOpenIsFoundOut) {
  TempFolder folder;
  const std::string path = folder.File("short.gguf");
  GgufBuilder().TensorF32("weights", {1 << 16}, std::vector<float>(1 << 16, 1.0f)).Write(path);
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE((*file)->CheckWhole().ok());
  std::filesystem::resize_file(path, 4096);
  const std::span<const std::byte> data = (*file)->FindTensor("weights")->data;
  EXPECT_EQ(data[data.size() - 1], std::byte{0});
  const Status status = (*file)->CheckWhole();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(path), std::string::npos);
}

TEST(GgufFile, ReadsScalarsOfEveryType) {
  const std::vector<std::byte> bytes = GgufBuilder()
                                           .Int("u8", 200, GgufType::kU8)
                                           .Int("i8", -100, GgufType::kI8)
                                           .Int("u16", 60000, GgufType::kU16)
                                           .Int("i16", -30000, GgufType::kI16)
                                           .Int("u32", 4000000000, GgufType::kU32)
                                           .Int("i32", -2000000000, GgufType::kI32)
                                           .Int("u64", INT64_MAX, GgufType::kU64)
                                           .Int("i64", INT64_MIN, GgufType::kI64)
                                           .Float("f32", 0.5)
                                           .Float("f64", 0.1, GgufType::kF64)
                                           .Bool("yes", true)
                                           .Bool("no", false)
                                           .String("text", "Grüße")
                                           .String("empty", "")
                                           .Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  const std::pair<const char*, int64_t> integers[] = {
      {"u8", 200},         {"i8", -100},         {"u16", 60000},     {"i16", -30000},
      {"u32", 4000000000}, {"i32", -2000000000}, {"u64", INT64_MAX}, {"i64", INT64_MIN}};
  for (const auto& [key, wanted] : integers) {
    EXPECT_EQ(*file->GetInt(key, INT64_MIN, INT64_MAX), wanted) << key;
    EXPECT_EQ(*file->GetFloat(key), static_cast<double>(wanted)) << key;
  }
  EXPECT_EQ(*file->GetFloat("f32"), 0.5);
  EXPECT_EQ(*file->GetFloat("f64"), 0.1);
  EXPECT_TRUE(*file->GetBool("yes"));
  EXPECT_FALSE(*file->GetBool("no"));
  EXPECT_EQ(*file->GetString("text"), "Grüße");
  EXPECT_EQ(*file->GetString("empty"), "");
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->file_bytes(), bytes.size());
  EXPECT_EQ(file->name(), "test.gguf");
  EXPECT_EQ(file->keys().size(), 14u);
  EXPECT_EQ(file->keys()[2], "u16");
}

TEST(GgufFile, ReadsArraysOfEveryNumberType) {
  GgufBuilder builder;
  const GgufType integer_types[] = {GgufType::kU8,  GgufType::kI8,  GgufType::kU16, GgufType::kI16,
                                    GgufType::kU32, GgufType::kI32, GgufType::kU64, GgufType::kI64};
  for (const GgufType type : integer_types) {
    builder.Ints(std::to_string(static_cast<int>(type)), {1, 0, 100}, type);
  }
  builder.Floats("floats", {1.5f, -0.0f}).Strings("strings", {"a", "", "▁the"});
  builder.Ints("none", {}).Strings("no strings", {});
  const std::vector<std::byte> bytes = builder.Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  for (const GgufType type : integer_types) {
    const std::string key = std::to_string(static_cast<int>(type));
    EXPECT_EQ(*file->GetInts(key), (std::vector<int32_t>{1, 0, 100})) << key;
    EXPECT_EQ(*file->GetFloats(key), (std::vector<float>{1, 0, 100})) << key;
  }
  EXPECT_EQ(*file->GetFloats("floats"), (std::vector<float>{1.5f, -0.0f}));
  EXPECT_EQ(*file->GetStrings("strings"), (std::vector<std::string_view>{"a", "", "▁the"}));
  EXPECT_TRUE(file->GetInts("none")->empty());
  EXPECT_TRUE(file->GetStrings("no strings")->empty());
}

TEST(GgufFile, DoublesBeyondFloatBecomeInfinite) {
  std::vector<std::byte> value(4 + 8 + 3 * 8);
  const auto put = [&](size_t at, auto number) {
    std::memcpy(value.data() + at, &number, sizeof(number));
  };
  put(0, static_cast<uint32_t>(GgufType::kF64));
  put(4, uint64_t{3});
  put(12, 1e300);
  put(20, -1e300);
  put(28, std::nan(""));
  const std::vector<std::byte> bytes = GgufBuilder().Raw("doubles", 9, value).Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  const std::vector<float> floats = *file->GetFloats("doubles");
  EXPECT_EQ(floats[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(floats[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(floats[2]));
}

TEST(GgufFile, NestedArraysAreKeptAsBytes) {
  // [[7, 8], []] of u8.
  const unsigned char stored[] = {9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,        // array of 2 arrays
                                  0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 8,  // 2 of u8
                                  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};       // 0 of u8
  const std::vector<std::byte> bytes =
      GgufBuilder().Raw("nested", 9, std::as_bytes(std::span(stored))).Int("after", 5).Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  const GgufValue* nested = file->Find("nested");
  ASSERT_NE(nested, nullptr);
  EXPECT_EQ(nested->type, GgufType::kArray);
  EXPECT_EQ(nested->element_type, GgufType::kArray);
  EXPECT_EQ(nested->count, 2u);
  EXPECT_EQ(nested->bytes.size(), sizeof(stored) - 12);
  EXPECT_EQ(*file->GetInt("after", 0, 9), 5);
  EXPECT_EQ(file->GetInts("nested").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->GetFloats("nested").status().code(), StatusCode::kInvalidArgument);
}

TEST(GgufFile, KeysMayHaveOddNames) {
  const std::string odd_keys[] = {"",     "a\nb",     std::string("nul\0inside", 10),
                                  "ключ", "\xff\xfe", std::string(65535, 'k')};
  GgufBuilder builder;
  int64_t number = 0;
  for (const std::string& key : odd_keys) builder.Int(key, number++);
  const std::vector<std::byte> bytes = builder.Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  number = 0;
  for (const std::string& key : odd_keys) EXPECT_EQ(*file->GetInt(key, 0, 9), number++);
  EXPECT_EQ(file->Find("nul"), nullptr);
}

TEST(GgufFile, AWrongTypeIsAnErrorThatNamesKeyValueAndWish) {
  const std::vector<std::byte> bytes = GgufBuilder()
                                           .Int("number", 70000)
                                           .String("text", "a\x1b[31m\"b")
                                           .Ints("list", {1, 2, 3})
                                           .Ints("wide", {1, 1LL << 40}, GgufType::kI64)
                                           .Int("huge", -1, GgufType::kU64)
                                           .Bool("flag", true)
                                           .Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  const auto message = [](const auto& result) {
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    return result.status().message();
  };
  EXPECT_EQ(message(file->GetInt("number", 1, 1024)),
            "test.gguf: key \"number\": u32 70000, expected an integer from 1 to 1024");
  EXPECT_EQ(message(file->GetInt("text", 1, 1024)),
            "test.gguf: key \"text\": string \"a\\x1b[31m\\x22b\", expected an integer from 1 to "
            "1024");
  EXPECT_EQ(message(file->GetInt("huge", 0, INT64_MAX)),
            "test.gguf: key \"huge\": u64 18446744073709551615, expected an integer from 0 to "
            "9223372036854775807");
  EXPECT_EQ(message(file->GetInts("wide")),
            "test.gguf: key \"wide\": element 1 does not fit into 32 bits");
  EXPECT_EQ(message(file->GetString("list")),
            "test.gguf: key \"list\": array of 3 i32 values, expected a string");
  EXPECT_EQ(message(file->GetFloat("flag")),
            "test.gguf: key \"flag\": bool true, expected a number");
  EXPECT_EQ(message(file->GetInt("flag", 0, 1)),
            "test.gguf: key \"flag\": bool true, expected an integer from 0 to 1");
  EXPECT_EQ(message(file->GetBool("number")),
            "test.gguf: key \"number\": u32 70000, expected a bool");
  EXPECT_EQ(message(file->GetStrings("list")),
            "test.gguf: key \"list\": array of 3 i32 values, expected an array of strings");
  EXPECT_EQ(message(file->GetInts("number")),
            "test.gguf: key \"number\": u32 70000, expected an array of integers");
}

TEST(GgufFile, AMissingKeyGivesTheDefaultOrNotFound) {
  const std::vector<std::byte> bytes = GgufBuilder().Int("here", 3).Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->GetInt("gone", 0, 9).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(file->GetInt("gone", 0, 9).status().message(), "test.gguf: key \"gone\" is missing");
  EXPECT_EQ(file->GetStrings("gone").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(*file->GetIntOr("gone", 0, 9, -1), -1);
  EXPECT_EQ(*file->GetIntOr("here", 0, 9, -1), 3);
  EXPECT_EQ(file->GetIntOr("here", 5, 9, 7).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*file->GetFloatOr("gone", 0.25), 0.25);
  EXPECT_TRUE(*file->GetBoolOr("gone", true));
  EXPECT_EQ(file->GetBoolOr("here", true).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*file->GetStringOr("gone", "x"), "x");
}

TEST(GgufFile, ReadsTensorsOfEveryTypeInPlace) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder;
    builder.Version(version);
    for (int i = 0; i < kNumWeightTypes; ++i) {
      const auto type = static_cast<WeightType>(i);
      builder.Tensor("t" + std::to_string(i), {512, 3}, type, TensorBytes({512, 3}, type));
    }
    const std::vector<std::byte> bytes = builder.Build();
    const FilePtr file = OpenBytes(bytes);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->version(), version);
    ASSERT_EQ(file->tensors().size(), static_cast<size_t>(kNumWeightTypes));
    for (int i = 0; i < kNumWeightTypes; ++i) {
      const auto type = static_cast<WeightType>(i);
      Result<WeightMatrix> matrix = file->GetMatrix("t" + std::to_string(i), 3, 512);
      ASSERT_TRUE(matrix.ok()) << matrix.status().message();
      EXPECT_EQ(matrix->type, type);
      const std::vector<std::byte> wanted = TensorBytes({512, 3}, type);
      ASSERT_EQ(matrix->bytes(), wanted.size());
      EXPECT_EQ(std::memcmp(matrix->data, wanted.data(), wanted.size()), 0) << i;
      EXPECT_GE(matrix->data, bytes.data());
      EXPECT_LE(matrix->data + matrix->bytes(), bytes.data() + bytes.size());
    }
  }
}

TEST(GgufFile, TensorsLieAtTheAlignmentOfTheFile) {
  for (const uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    const std::vector<float> values = {1, 2, 3};
    const std::vector<std::byte> bytes = GgufBuilder()
                                             .Alignment(alignment)
                                             .TensorF32("a", {3}, values)
                                             .TensorF32("b", {3}, {4, 5, 6})
                                             .Build();
    const FilePtr file = OpenBytes(bytes);
    ASSERT_NE(file, nullptr);
    const GgufTensor* b = file->FindTensor("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(static_cast<size_t>(b->data.data() - bytes.data()) % alignment, 0u);
    float first = 0;
    std::memcpy(&first, b->data.data(), sizeof(first));
    EXPECT_EQ(first, 4);
  }
}

TEST(GgufFile, AMatrixHasTheShapeThatWasAskedFor) {
  const std::vector<std::byte> bytes = GgufBuilder()
                                           .TensorF32("vector", {6}, std::vector<float>(6))
                                           .TensorF32("matrix", {3, 2}, std::vector<float>(6))
                                           .TensorF32("flat", {3, 2, 1, 1}, std::vector<float>(6))
                                           .TensorF32("cube", {3, 2, 2}, std::vector<float>(12))
                                           .Build();
  const FilePtr file = OpenBytes(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->GetMatrix("vector", 1, 6).ok());
  EXPECT_TRUE(file->GetMatrix("matrix", 2, 3).ok());
  EXPECT_TRUE(file->GetMatrix("flat", 2, 3).ok());
  EXPECT_EQ(file->GetMatrix("matrix", 3, 2).status().message(),
            "test.gguf: tensor \"matrix\" is [3, 2], expected [2, 3] (columns first)");
  EXPECT_EQ(file->GetMatrix("vector", 2, 3).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->GetMatrix("cube", 4, 3).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->GetMatrix("cube", 2, 3).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file->GetMatrix("gone", 1, 6).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(file->FindTensor("gone"), nullptr);
}

TEST(GgufFile, OpensAFileAndOutlivesItsName) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  const GgufBuilder builder = GgufBuilder().String("name", "x").TensorF32("t", {2}, {1, 2});
  builder.Write(path);
  Result<FilePtr> file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->name(), path);
  EXPECT_EQ((*file)->file_bytes(), builder.Build().size());
  std::filesystem::remove(path);
  float values[2] = {};
  std::memcpy(values, (*file)->FindTensor("t")->data.data(), sizeof(values));
  EXPECT_EQ(values[1], 2);
}

TEST(GgufFile, WhatIsNoFileIsACleanError) {
  const TempFolder folder;
  const std::string fifo = folder.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  WriteBytes(folder.File("empty"), {});
  const auto error = [](const std::string& path) { return GgufFile::Open(path).status(); };
  EXPECT_EQ(error(folder.File("gone")).code(), StatusCode::kNotFound);
  EXPECT_EQ(error(folder.File("empty") + "/below").code(), StatusCode::kNotFound);
  EXPECT_EQ(error(folder.path()).message(), folder.path() + ": is a directory");
  EXPECT_EQ(error(fifo).message(), fifo + ": is not a file");
  EXPECT_EQ(error("/dev/zero").message(), "/dev/zero: is not a file");
  EXPECT_EQ(error(folder.File("empty")).message(), folder.File("empty") + ": is empty");
}

TEST(GgufFile, MemoryMustBeAligned) {
  std::vector<std::byte> bytes = GgufBuilder().Int("a", 1).Build();
  bytes.insert(bytes.begin(), std::byte{0});
  EXPECT_EQ(GgufFile::FromMemory(std::span(bytes).subspan(1), "test.gguf").status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace gguf_file_test
}  // namespace varve
