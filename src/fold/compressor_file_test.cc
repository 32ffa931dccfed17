// Compressor files: what is written comes back; whatever else the bytes are gives a message.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fold/compressor_format.h"
#include "fold/compressor_testing.h"
#include "kernels/content_hash.h"
#include "tests/cache_file_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace compressor_file_test {

using Bytes = std::vector<std::byte>;

Compressor SmallCompressor() {
  CompressorSpec spec;
  spec.num_heads = 4;
  return RandomCompressor(spec);
}

const Bytes& GoodFile() {
  static const Bytes bytes = SerializeCompressor(SmallCompressor());
  return bytes;
}

template <typename T>
Bytes With(size_t at, T value) {
  Bytes bytes = GoodFile();
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

void ExpectRefused(const Bytes& bytes, const std::string& message,
                   StatusCode code = StatusCode::kDataLoss) {
  const Status status = ParseCompressor(bytes, "f").status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.message(), "f: " + message);
}

// Of the first block: 16 x 32 f16 and a bias of 16.
constexpr size_t kFirstWeights = kCompressorHeaderBytes + kCompressorBlockHeaderBytes;
constexpr size_t kSecondBlock = kFirstWeights + 2 * (512 + 16);

TEST(CompressorFile, RoundTripsInEveryDtypeWithAndWithoutBiasAndImage) {
  for (const auto dtype : {CompressorDtype::kF16, CompressorDtype::kBF16, CompressorDtype::kF32}) {
    for (const bool has_image : {false, true}) {
      for (const bool has_bias : {false, true}) {
        CompressorSpec spec{dtype, 3, 5, 32, 5, 1, has_image, has_bias, 24, 9};
        const Compressor compressor = RandomCompressor(spec);
        const Bytes bytes = SerializeCompressor(compressor);
        const size_t blocks = has_image ? 12 : 6;
        EXPECT_EQ(bytes.size(), 44 + compressor.bytes() + 3 * blocks * 12);
        const Result<Compressor> back = ParseCompressor(bytes, "f");
        ASSERT_TRUE(back.ok()) << back.status().message();
        EXPECT_TRUE(*back == compressor);
      }
    }
  }
}

TEST(CompressorFile, IsSavedAndLoaded) {
  const TempFolder folder;
  const std::string path = folder.File("small.bin");
  ASSERT_TRUE(SaveCompressor(SmallCompressor(), path).ok());
  EXPECT_EQ(ReadFileBytes(path), GoodFile());
  const auto loaded = LoadCompressor(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(**loaded == SmallCompressor());
  EXPECT_EQ(LoadCompressor(folder.File("none")).status().code(), StatusCode::kNotFound);

  Compressor bad = SmallCompressor();
  bad.factor = 65;
  EXPECT_EQ(SaveCompressor(bad, path).message(), path + ": factor 65 is not in 2 … 64");
  CompressorOrder order;
  order.slots = {0, 1, 1};
  EXPECT_EQ(SaveCompressor(SmallCompressor(), path, order).message(),
            path + ": order: slot 3 does not come once among the slots");
  EXPECT_EQ(ReadFileBytes(path), GoodFile());
  EXPECT_EQ(SaveCompressor(SmallCompressor(), folder.File("no/such")).code(), StatusCode::kIoError);
}

// Other programs write and read these places.
TEST(CompressorFile, HasTheFormOfTheDocument) {
  const Bytes& bytes = GoodFile();
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  };
  EXPECT_EQ(std::memcmp(bytes.data(), "MCVK\x01\0\0\0\0\0\0\0", 12), 0);
  const uint32_t expected[] = {2, 4, 16, 32, 2, 2, 12, 0, 16, 32, 1};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(number(12 + 4 * i), expected[i]) << i;
  const Compressor compressor = SmallCompressor();
  const CompressorLinear& first = compressor.Mlp(0, CompressorPart::kTextKey).slots[0];
  EXPECT_EQ(std::memcmp(bytes.data() + kFirstWeights, first.weights.data(), 1024), 0);
  uint16_t bias = 0;
  std::memcpy(&bias, bytes.data() + kFirstWeights + 1024, sizeof(bias));
  EXPECT_EQ(F16ToF32(bias), first.bias[0]);
}

// As a program writes it that knows no metadata.
Bytes WithoutMetadata(Bytes bytes) {
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + 40, sizeof(size));
  const auto metadata = bytes.begin() + kCompressorHeaderBytes;
  bytes.erase(metadata, metadata + size);
  std::memset(bytes.data() + 40, 0, sizeof(size));
  return bytes;
}

Bytes WithMetadata(Bytes bytes, const std::string& text) {
  const auto size = static_cast<uint32_t>(text.size());
  std::memcpy(bytes.data() + 40, &size, sizeof(size));
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.begin() + kCompressorHeaderBytes, begin, begin + size);
  return bytes;
}

// Keys and values have the same shapes: only what the file says keeps them apart.
TEST(CompressorFile, KeysAndValuesInAnotherOrderAreNotSwapped) {
  const Compressor compressor = SmallCompressor();
  const Bytes bytes = SerializeCompressor(compressor, *ParseCompressorOrder("tv,tk", ""));
  const Result<Compressor> back = ParseCompressor(bytes, "f");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(*back == compressor);
  const Result<Compressor> swapped = ParseCompressor(WithoutMetadata(bytes), "f");
  ASSERT_TRUE(swapped.ok()) << swapped.status().message();
  EXPECT_TRUE(swapped->Mlp(0, CompressorPart::kTextKey) ==
              compressor.Mlp(0, CompressorPart::kTextValue));
}

TEST(CompressorFile, MetadataOfOursMustBeRight) {
  const auto refusal = [](const std::string& text) {
    return ParseCompressor(WithMetadata(GoodFile(), text), "f").status().message();
  };
  EXPECT_EQ(refusal("varve: parts=tk,tk"),
            "f: metadata: prefix order \"tk,tk\": \"tk\" comes twice");
  EXPECT_EQ(refusal("varve: slots=0,3,6,9"),
            "f: metadata: slot order \"0,3,6,9\" has 4 slots, not 1 … 3");
  EXPECT_EQ(refusal("varve: slots=0,3"), "f: weight_count_per_layer 12 is not 8 or 4 (text only)");
  // Words that a later version may add, and what others write.
  EXPECT_EQ(refusal("varve: trained=2025 parts=tk"), "");
  EXPECT_EQ(refusal("parts=tk,tk"), "");
  EXPECT_EQ(refusal("varve"), "");
}

// Files of the converter that the format comes from need not say them.
TEST(CompressorFile, SizesThatTheHeaderLeavesOpenFollowFromTheBlocks) {
  for (const auto& [head_dim, hidden_size] : {std::pair{0u, 0u}, {0u, 32u}, {16u, 0u}}) {
    Bytes bytes = With<uint32_t>(20, head_dim);
    std::memcpy(bytes.data() + 24, &hidden_size, sizeof(hidden_size));
    const Result<Compressor> back = ParseCompressor(bytes, "f");
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_TRUE(*back == SmallCompressor());
  }
  Bytes bytes = With<uint32_t>(20, 0);
  const uint32_t wrong = 64;
  std::memcpy(bytes.data() + 24, &wrong, sizeof(wrong));
  ExpectRefused(bytes, "hidden_size 64 is not compression_factor 2 * head_dim 16, 32");
  // What the blocks say is checked like what the header says.
  CompressorSpec spec;
  spec.head_dim = 24;
  bytes = SerializeCompressor(RandomCompressor(spec));
  std::memset(bytes.data() + 20, 0, 8);
  ExpectRefused(bytes, "head_dim 24 is not a multiple of 16");
}

TEST(CompressorFile, NetworksMayHaveFewerLayers) {
  for (const int num_slots : {1, 2, 3}) {
    for (const bool has_image : {false, true}) {
      CompressorSpec spec;
      spec.num_slots = num_slots;
      spec.has_image = has_image;
      spec.hidden = 24;
      const Compressor compressor = RandomCompressor(spec);
      ASSERT_TRUE(CheckCompressor(compressor).ok());
      for (const char* slots : {"0,3,6", "6,3,0"}) {
        const Bytes bytes = SerializeCompressor(compressor, *ParseCompressorOrder("", slots));
        const Result<Compressor> back = ParseCompressor(bytes, "f");
        ASSERT_TRUE(back.ok()) << back.status().message();
        EXPECT_TRUE(*back == compressor) << num_slots << has_image << slots;
      }
    }
  }
  Compressor compressor = SmallCompressor();
  compressor.num_slots = 2;
  EXPECT_EQ(CheckCompressor(compressor).message(),
            "layer 0: compress_tk.6 is there, but num_slots is 2");
  compressor.num_slots = 4;
  EXPECT_EQ(CheckCompressor(compressor).message(), "num_slots 4 is not in 1 … 3");
  const TempFolder folder;
  EXPECT_EQ(SaveCompressor(SmallCompressor(), folder.File("a"), *ParseCompressorOrder("", "0,3"))
                .message(),
            folder.File("a") + ": order: 2 slots, but the networks have 3");
}

TEST(CompressorFile, BlocksMayComeInAnotherOrder) {
  CompressorSpec spec;
  spec.hidden = 24;
  for (const bool has_image : {false, true}) {
    spec.has_image = has_image;
    const Compressor compressor = RandomCompressor(spec);
    const CompressorOrder order = *ParseCompressorOrder("iv,tv,ik,tk", "6,0,3");
    const Bytes bytes = SerializeCompressor(compressor, order);
    const std::string said = "varve: parts=iv,tv,ik,tk slots=6,0,3";
    EXPECT_EQ(bytes.size(), SerializeCompressor(compressor).size() + said.size());
    // The file says its order. A caller that says another one is refused.
    for (const auto& given : {std::optional<CompressorOrder>(), std::optional(order)}) {
      const Result<Compressor> back = ParseCompressor(bytes, "f", given);
      ASSERT_TRUE(back.ok()) << back.status().message();
      EXPECT_TRUE(*back == compressor);
    }
    EXPECT_EQ(
        ParseCompressor(bytes, "f", CompressorOrder()).status().message(),
        "f: its order of blocks is \"" + said + "\", not \"varve: parts=tk,tv,ik,iv slots=0,3,6\"");
    // Other programs say nothing: a reader must be told. Where shapes do not chain, it notices.
    const Bytes silent = WithoutMetadata(bytes);
    const Result<Compressor> told =
        ParseCompressor(silent, "f", *ParseCompressorOrder("iv/tv/ik/tk:6/0/3"));
    ASSERT_TRUE(told.ok()) << told.status().message();
    EXPECT_TRUE(*told == compressor);
    EXPECT_EQ(ParseCompressor(silent, "f").status().message(),
              "f: layer 0: compress_tk.0: cols 24 is not 32, factor * head_dim");
  }
  CompressorOrder order;
  order.parts[0] = CompressorPart::kImageKey;
  EXPECT_EQ(ParseCompressor(GoodFile(), "f", order).status().message(),
            "f: order: compress_tk does not come once among the parts");
}

TEST(CompressorFile, MetadataOfOthersIsSkipped) {
  Bytes bytes = With<uint32_t>(40, 5);
  bytes.insert(bytes.begin() + kCompressorHeaderBytes, 5, std::byte{0xEE});
  const Result<Compressor> back = ParseCompressor(bytes, "f");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(*back == SmallCompressor());
  ExpectRefused(With<uint32_t>(40, 0xFFFFFFFF),
                "metadata needs 4294967295 bytes, " +
                    std::to_string(GoodFile().size() - kCompressorHeaderBytes) + " are left");
}

TEST(CompressorFile, HashIsOfWhatItComputes) {
  Compressor compressor = SmallCompressor();
  const uint64_t hash = CompressorHash(compressor);
  compressor.num_heads = 0;
  EXPECT_EQ(CompressorHash(compressor), hash);
  const Bytes bytes = SerializeCompressor(compressor);
  EXPECT_EQ(HashBytes(bytes.data(), bytes.size()), hash);
  compressor.min_groups = 3;
  EXPECT_NE(CompressorHash(compressor), hash);
  compressor = SmallCompressor();
  compressor.layers[1][3].slots[2].weights[0] ^= std::byte{1};
  EXPECT_NE(CompressorHash(compressor), hash);
}

TEST(CompressorFile, AnotherKindOfFileIsNamed) {
  Bytes zip = GoodFile();
  std::memcpy(zip.data(), "PK\x03\x04", 4);
  ExpectRefused(zip,
                "is a zip, as PyTorch writes (.pth), not a compressor: `varve fold convert` makes "
                "one of it",
                StatusCode::kInvalidArgument);
  const std::string no_magic = "is no compressor: it does not begin with the magic of one";
  ExpectRefused(With<uint8_t>(0, 'K'), no_magic, StatusCode::kInvalidArgument);
  ExpectRefused({}, no_magic, StatusCode::kInvalidArgument);
  ExpectRefused(With<uint32_t>(4, 2), "version 2 is not 1", StatusCode::kUnimplemented);
}

TEST(CompressorFile, EveryWrongFieldOfTheHeaderIsNamed) {
  ExpectRefused(With<uint16_t>(8, 3), "dtype 3 is not in 0 … 2");
  ExpectRefused(With<uint16_t>(10, 1), "reserved 1 is not in 0 … 0");
  ExpectRefused(With<uint32_t>(12, 0), "num_layers 0 is not in 1 … 1024");
  ExpectRefused(With<uint32_t>(12, 0xFFFFFFFF), "num_layers 4294967295 is not in 1 … 1024");
  ExpectRefused(With<uint32_t>(12, 1024),
                "num_layers 1024 of 12 blocks need 147456 bytes and more, " +
                    std::to_string(GoodFile().size() - kCompressorHeaderBytes) + " are left");
  ExpectRefused(With<uint32_t>(16, 1025), "num_heads 1025 is not in 0 … 1024");
  ExpectRefused(With<uint32_t>(20, 17), "head_dim 17 is not a multiple of 16");
  ExpectRefused(With<uint32_t>(20, 0x80000010), "head_dim 2147483664 is not in 16 … 512");
  ExpectRefused(With<uint32_t>(24, 33),
                "hidden_size 33 is not compression_factor 2 * head_dim 16, 32");
  ExpectRefused(With<uint32_t>(28, 1), "compression_factor 1 is not in 2 … 64");
  ExpectRefused(With<uint32_t>(28, 0x10000002), "compression_factor 268435458 is not in 2 … 64");
  ExpectRefused(With<uint32_t>(32, 0x80000000), "min_seq_len 2147483648 is not in 0 … 16777216");
  ExpectRefused(
      With<uint32_t>(36, 0),
      "weight_count_per_layer 0 is not 12 or 6 (text only), nor 8, 4 or 2 of shorter networks");
  ExpectRefused(
      With<uint32_t>(36, 13),
      "weight_count_per_layer 13 is not 12 or 6 (text only), nor 8, 4 or 2 of shorter networks");
}

TEST(CompressorFile, EveryWrongFieldOfABlockIsNamed) {
  const std::string first = "layer 0: compress_tk.0: ";
  const std::string second = "layer 0: compress_tk.3: ";
  const std::string left = std::to_string(GoodFile().size() - kFirstWeights);
  ExpectRefused(With<uint32_t>(44, 0), first + "rows 0 is not in 1 … 32768");
  ExpectRefused(With<uint32_t>(44, 0xFFFFFFFF), first + "rows 4294967295 is not in 1 … 32768");
  ExpectRefused(With<uint32_t>(48, 0x80000000), first + "cols 2147483648 is not in 1 … 32768");
  ExpectRefused(With<uint32_t>(52, 2), first + "has_bias 2 is not in 0 … 1");
  ExpectRefused(With<uint32_t>(44, 32768),
                first + "weights needs 2097152 bytes, " + left + " are left");
  ExpectRefused(With<uint32_t>(kSecondBlock, 0), second + "rows 0 is not in 1 … 32768");
  // Without its bias, the bias is what the next block is read from.
  EXPECT_FALSE(ParseCompressor(With<uint32_t>(52, 0), "f").ok());
}

TEST(CompressorFile, ShapesThatDoNotChainAreRefused) {
  // 8 x 64 has as many weights as 16 x 32; only the bias is shorter, so it is left out.
  CompressorSpec spec;
  spec.has_bias = false;
  Bytes bytes = SerializeCompressor(RandomCompressor(spec));
  const uint32_t shape[] = {8, 64};
  std::memcpy(bytes.data() + kCompressorHeaderBytes, shape, sizeof(shape));
  ExpectRefused(bytes, "layer 0: compress_tk.0: cols 64 is not 32, factor * head_dim");
  bytes = SerializeCompressor(RandomCompressor(spec));
  const uint32_t second_shape[] = {32, 8};
  const size_t second = kFirstWeights + 1024;
  std::memcpy(bytes.data() + second, second_shape, sizeof(second_shape));
  ExpectRefused(bytes, "layer 0: compress_tk.3: cols 8 is not 16, the rows of the block before");
  Compressor narrow = RandomCompressor(spec);
  SplitMix64 random(1);
  narrow.layers[1][1].slots[2] = RandomLinear(spec.dtype, 8, 16, false, random);
  ExpectRefused(SerializeCompressor(narrow), "layer 1: compress_tv.6: rows 8 is not head_dim 16");
}

TEST(CompressorFile, NumbersAreFinite) {
  ExpectRefused(With<uint16_t>(kFirstWeights + 6, 0x7C00),
                "layer 0: compress_tk.0: weight 3 is not finite");
  ExpectRefused(With<uint16_t>(kFirstWeights + 1024 + 2, 0xFC00),
                "layer 0: compress_tk.0: bias 1 is -inf, not finite");
}

TEST(CompressorFile, EveryLengthButTheRightOneIsRefused) {
  CompressorSpec spec;
  spec.num_layers = 1;
  spec.has_image = false;
  const Bytes good = SerializeCompressor(RandomCompressor(spec));
  for (size_t size = 0; size < good.size(); ++size) {
    // A buffer of its own, so that a sanitizer sees what is read behind it.
    const Bytes bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    const Status status = ParseCompressor(bytes, "f").status();
    ASSERT_EQ(status.code(), size < 4 ? StatusCode::kInvalidArgument : StatusCode::kDataLoss)
        << size << ": " << status.message();
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  ExpectRefused(longer, "1 bytes follow its end");
}

// The format has no checksum: a wrong byte is seen, or is another compressor.
TEST(CompressorFile, LiesAreSeenOrHarmless) {
  for (size_t at = 0; at < GoodFile().size(); at += at < 60 ? 1 : 13) {
    for (const int value : {0, 1, 0x7F, 0xFF}) {
      const Result<Compressor> back = ParseCompressor(With(at, static_cast<uint8_t>(value)), "f");
      if (back.ok()) {
        ASSERT_TRUE(CheckCompressor(*back).ok()) << at;
      } else {
        ASSERT_TRUE(back.status().message().starts_with("f: ")) << back.status().message();
      }
    }
  }
}

}  // namespace compressor_file_test
}  // namespace varve
