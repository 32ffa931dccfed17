// Files that lie or break off: one per rejected field, and one small file cut at every length.

#include <cstring>

#include <gtest/gtest.h>

#include "runtime/gguf/gguf_file.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace gguf_corrupt_test {

Status ErrorOf(const std::vector<std::byte>& bytes) {
  return GgufFile::FromMemory(bytes, "bad.gguf").status();
}

template <typename T>
void Put(std::vector<std::byte>* bytes, size_t at, T value) {
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}

// Expects the error, word for word, after "bad.gguf: ".
void ExpectError(const std::vector<std::byte>& bytes, StatusCode code, const std::string& message) {
  const Status status = ErrorOf(bytes);
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.message(), "bad.gguf: " + message);
}

void ExpectLie(const GgufBuilder& builder, const std::string& message) {
  ExpectError(builder.Build(), StatusCode::kDataLoss, message);
}

// An array's bytes: element type and count as given, then the elements.
std::vector<std::byte> ArrayValue(uint32_t type, uint64_t count, size_t element_bytes) {
  std::vector<std::byte> value(12 + element_bytes);
  Put(&value, 0, type);
  Put(&value, 4, count);
  return value;
}

// Every kind of value and two tensors.
GgufBuilder SmallFile() {
  return GgufBuilder()
      .String("general.architecture", "llama")
      .Int("llama.block_count", 2)
      .Float("llama.rope.freq_base", 10000)
      .Bool("tokenizer.ggml.add_bos_token", true)
      .Strings("tokenizer.ggml.tokens", {"<unk>", "a", ""})
      .Floats("tokenizer.ggml.scores", {0, -1, -2})
      .Ints("tokenizer.ggml.token_type", {2, 1, 1})
      .Bools("flags", {true, false})
      .Raw("nested", 9,
           [] {
             std::vector<std::byte> nested = ArrayValue(9, 1, 0);
             const std::vector<std::byte> inner = ArrayValue(0, 3, 3);
             nested.insert(nested.end(), inner.begin(), inner.end());
             return nested;
           }())
      .TensorF32("output_norm.weight", {4}, {1, 2, 3, 4})
      .Tensor("output.weight", {32, 2}, WeightType::kQ8_0, TensorBytes({32, 2}, WeightType::kQ8_0));
}

TEST(GgufCorrupt, AFileThatBreaksOffAnywhereIsAnError) {
  const std::vector<std::byte> whole = SmallFile().Build();
  ASSERT_TRUE(ErrorOf(whole).ok()) << ErrorOf(whole).message();
  for (size_t length = 0; length < whole.size(); ++length) {
    // A copy of exactly this length: a read beyond it is a read beyond the heap block.
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(length));
    const Status status = ErrorOf(cut);
    EXPECT_FALSE(status.ok()) << length << " of " << whole.size() << " bytes";
    EXPECT_TRUE(status.message().starts_with("bad.gguf: ")) << status.message();
  }
}

TEST(GgufCorrupt, NoChangeOfOneByteCrashes) {
  const std::vector<std::byte> whole = SmallFile().Build();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = whole;
      changed[at] = static_cast<std::byte>(value);
      const Status status = ErrorOf(changed);
      EXPECT_NE(status.code(), StatusCode::kInternal);
    }
  }
}

TEST(GgufCorrupt, WhatIsNoGgufFileIsSaidWithItsFirstBytes) {
  ExpectError({}, StatusCode::kInvalidArgument,
              "not a GGUF file: begins with \"\", not with \"GGUF\"");
  std::vector<std::byte> bytes = SmallFile().Build();
  Put(&bytes, 0, uint32_t{0x04034b50});
  ExpectError(
      bytes, StatusCode::kInvalidArgument,
      "not a GGUF file: begins with \"PK\\x03\\x04\\x03\\x00\\x00\\x00\", not with \"GGUF\"");
}

TEST(GgufCorrupt, OtherVersionsAndByteOrdersAreNamed) {
  for (const uint32_t version : {0u, 1u, 4u, 0x10003u}) {
    ExpectError(GgufBuilder().Version(version).Build(), StatusCode::kUnimplemented,
                "GGUF version " + std::to_string(version) + "; versions 2 and 3 are read");
  }
  ExpectError(GgufBuilder().Version(0x03000000).Build(), StatusCode::kUnimplemented,
              "a big-endian file; only little-endian is read");
}

TEST(GgufCorrupt, CountsBeyondTheFileAreRefusedBeforeTheyAllocate) {
  std::vector<std::byte> bytes = GgufBuilder().Int("a", 1).Build();
  Put(&bytes, 16, UINT64_MAX);
  ExpectError(bytes, StatusCode::kDataLoss,
              "metadata_kv_count 18446744073709551615 > 1, which is what 17 bytes can hold");
  Put(&bytes, 16, uint64_t{1});
  Put(&bytes, 8, UINT64_MAX);
  ExpectError(bytes, StatusCode::kDataLoss,
              "tensor_count 18446744073709551615 > 0, which is what 17 bytes can hold");
  ExpectLie(GgufBuilder().Raw("a", 9, ArrayValue(4, UINT64_MAX / 4, 64)),
            "key \"a\": 4611686018427387903 u32 values of 4 bytes > 64 bytes left in the file");
  ExpectLie(GgufBuilder().Raw("a", 9, ArrayValue(8, UINT64_MAX, 8)),
            "the file ends in the length of string 1 of 18446744073709551615 of key \"a\", at byte "
            "57");
  ExpectLie(GgufBuilder().Raw("a", 9, ArrayValue(9, UINT64_MAX, 12)),
            "the file ends in the element type of key \"a\", at byte 61");
}

TEST(GgufCorrupt, LengthsBeyondTheFileAreRefused) {
  std::vector<std::byte> value(8 + 4);
  Put(&value, 0, UINT64_MAX);
  ExpectLie(GgufBuilder().Raw("a", 8, value),
            "key \"a\": length 18446744073709551615 of string 0 of 1 > 4 bytes left in the file");
  std::vector<std::byte> bytes = GgufBuilder().Int("a", 1).Build();
  Put(&bytes, 24, uint64_t{65536});
  ExpectError(bytes, StatusCode::kDataLoss, "key 0 of 1: name length 65536 > 65535");
  Put(&bytes, 24, uint64_t{60000});
  ExpectError(bytes, StatusCode::kDataLoss, "the file ends in the name of key 0 of 1, at byte 41");
}

TEST(GgufCorrupt, TypesOfMetadataThatDoNotExistAreRefused) {
  ExpectLie(GgufBuilder().Raw("a", 13, std::vector<std::byte>(8)), "key \"a\": type 13 > 12");
  ExpectLie(GgufBuilder().Raw("a", 9, ArrayValue(99, 1, 8)), "key \"a\": element type 99 > 12");
  ExpectLie(GgufBuilder().Int("a", 2, GgufType::kBool), "key \"a\": bool 0 of 1 is 2, not 0 or 1");
  ExpectLie(GgufBuilder().Ints("a", {0, 1, 255}, GgufType::kBool),
            "key \"a\": bool 2 of 3 is 255, not 0 or 1");
}

TEST(GgufCorrupt, ArraysNestOnlySoDeep) {
  const auto nested = [](int depth) {
    std::vector<std::byte> value;
    for (int i = 1; i < depth; ++i) {
      const std::vector<std::byte> outer = ArrayValue(9, 1, 0);
      value.insert(value.end(), outer.begin(), outer.end());
    }
    const std::vector<std::byte> innermost = ArrayValue(0, 1, 1);
    value.insert(value.end(), innermost.begin(), innermost.end());
    return value;
  };
  EXPECT_TRUE(ErrorOf(GgufBuilder().Raw("a", 9, nested(8)).Build()).ok());
  ExpectLie(GgufBuilder().Raw("a", 9, nested(9)), "key \"a\": arrays nested more than 8 deep");
  EXPECT_FALSE(ErrorOf(GgufBuilder().Raw("a", 9, nested(100000)).Build()).ok());
}

TEST(GgufCorrupt, NamesAreThereOnce) {
  ExpectLie(GgufBuilder().Int("b", 1).Int("a", 1).Int("c", 1).Int("a", 2),
            "key \"a\" is there more than once");
  ExpectLie(GgufBuilder().TensorF32("t", {1}, {1}).TensorF32("t", {1}, {1}),
            "tensor \"t\" is there more than once");
}

TEST(GgufCorrupt, TheAlignmentIsAPowerOfTwo) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 21}) {
    ExpectLie(GgufBuilder().Int("general.alignment", alignment),
              "key \"general.alignment\": u32 " + std::to_string(alignment) +
                  " is not a power of two from 8 to 1048576");
  }
  ExpectLie(GgufBuilder().String("general.alignment", "32"),
            "key \"general.alignment\": string \"32\" is not a power of two from 8 to 1048576");
}

TEST(GgufCorrupt, DimensionsAreOneToFourAndPositive) {
  ExpectLie(GgufBuilder().RawTensor("t", {}, 0, std::vector<std::byte>(64)),
            "tensor \"t\": 0 dimensions, not 1 to 4");
  ExpectLie(GgufBuilder().RawTensor("t", {1, 1, 1, 1, 1}, 0, std::vector<std::byte>(64)),
            "tensor \"t\": 5 dimensions, not 1 to 4");
  ExpectLie(GgufBuilder().RawTensor("t", {4, 0}, 0, std::vector<std::byte>(64)),
            "tensor \"t\": dims[1] 0 is not 1 to 2^63 - 1");
  ExpectLie(GgufBuilder().RawTensor("t", {-1}, 0, std::vector<std::byte>(64)),
            "tensor \"t\": dims[0] 18446744073709551615 is not 1 to 2^63 - 1");
}

TEST(GgufCorrupt, SizesThatOverflowAreRefused) {
  ExpectLie(GgufBuilder().RawTensor("t", {INT64_MAX}, 0, std::vector<std::byte>(64)),
            "tensor \"t\": [9223372036854775807] F32 > 128 bytes of the file");
  // 2^32 · 2^32 · 4 is 0 in 64 bits.
  const int64_t wide = int64_t{1} << 32;
  ExpectLie(GgufBuilder().RawTensor("t", {wide, wide}, 0, std::vector<std::byte>(64)),
            "tensor \"t\": [4294967296, 4294967296] F32 > 160 bytes of the file");
  ExpectLie(GgufBuilder().RawTensor("t", {1, wide, wide, 1}, 0, std::vector<std::byte>(64)),
            "tensor \"t\": [1, 4294967296, 4294967296, 1] F32 > 160 bytes of the file");
}

TEST(GgufCorrupt, RowsAreWholeBlocks) {
  ExpectLie(GgufBuilder().RawTensor("t", {33}, 8, std::vector<std::byte>(68)),
            "tensor \"t\": dims[0] 33 is not a multiple of 32, the block of Q8_0");
  ExpectLie(GgufBuilder().RawTensor("t", {128}, 12, std::vector<std::byte>(144)),
            "tensor \"t\": dims[0] 128 is not a multiple of 256, the block of Q4_K");
  ExpectLie(GgufBuilder().RawTensor("t", {96}, 23, std::vector<std::byte>(136)),
            "tensor \"t\": dims[0] 96 is not a multiple of 256, the block of IQ4_XS");
}

TEST(GgufCorrupt, TensorTypesThatAreNotReadAreNamedWithThoseThatAre) {
  const std::string readable =
      " is not read; these are: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K Q2_K Q3_K "
      "IQ4_NL IQ4_XS";
  const std::pair<uint32_t, const char*> types[] = {{4, "unknown"}, {9, "Q8_1"},   {18, "IQ3_XXS"},
                                                    {21, "IQ3_S"},  {39, "MXFP4"}, {77, "unknown"}};
  for (const auto& [number, name] : types) {
    ExpectError(GgufBuilder().RawTensor("t", {256}, number, std::vector<std::byte>(64)).Build(),
                StatusCode::kUnimplemented,
                "tensor \"t\": type " + std::to_string(number) + " (" + name + ")" + readable);
  }
}

TEST(GgufCorrupt, OffsetsAreAlignedAndInsideTheFile) {
  const std::vector<std::byte> data(64);
  ExpectLie(GgufBuilder().RawTensor("t", {8}, 0, data, 8),
            "tensor \"t\": offset 8 is not a multiple of the alignment 32");
  EXPECT_TRUE(ErrorOf(GgufBuilder().RawTensor("t", {8}, 0, data, 32).Build()).ok());
  ExpectLie(GgufBuilder().RawTensor("t", {9}, 0, data, 32),
            "tensor \"t\": offset 32 and 36 bytes > 64 bytes of tensor data");
  ExpectLie(GgufBuilder().RawTensor("t", {8}, 0, data, 96),
            "tensor \"t\": offset 96 and 32 bytes > 64 bytes of tensor data");
  ExpectLie(GgufBuilder().RawTensor("t", {8}, 0, data, UINT64_MAX - 31),
            "tensor \"t\": offset 18446744073709551584 and 32 bytes > 64 bytes of tensor data");
}

TEST(GgufCorrupt, TensorsDoNotShareBytes) {
  const std::vector<std::byte> data(64);
  ExpectLie(GgufBuilder().RawTensor("a", {16}, 0, data, 0).RawTensor("b", {8}, 0, {}, 32),
            "tensor \"b\": offset 32 lies inside tensor \"a\"");
  ExpectLie(GgufBuilder().RawTensor("a", {8}, 0, data, 0).RawTensor("b", {8}, 0, {}, 0),
            "tensor \"b\": offset 0 lies inside tensor \"a\"");
  // The order of the directory is free, and so are gaps.
  EXPECT_TRUE(
      ErrorOf(GgufBuilder().RawTensor("a", {8}, 0, data, 32).RawTensor("b", {4}, 0, {}, 0).Build())
          .ok());
}

}  // namespace gguf_corrupt_test
}  // namespace varve
