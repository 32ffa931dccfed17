// Codebook files: what is written comes back; whatever else the bytes are gives a message.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "kernels/content_hash.h"
#include "rungs/pq/codebook_format.h"
#include "rungs/pq/codebook_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace codebook_file_test {

using Bytes = std::vector<std::byte>;

const Bytes& GoodFile() {
  static const Bytes bytes = SerializeCodebook(SmallCodebook());
  return bytes;
}

// "tiny" and "noise, 3 tokens" are 19 bytes.
constexpr size_t kRecordsAt = kCodebookHeaderBytes + 24;

void Repair(Bytes& bytes) {
  const size_t body = bytes.size() - sizeof(uint64_t);
  const uint64_t checksum = HashBytes(bytes.data(), body);
  std::memcpy(bytes.data() + body, &checksum, sizeof(checksum));
}

// The file with a number at a place, and the checksum right again.
template <typename T>
Bytes With(size_t at, T value) {
  Bytes bytes = GoodFile();
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  Repair(bytes);
  return bytes;
}

void ExpectRefused(const Bytes& bytes, const std::string& message,
                   StatusCode code = StatusCode::kDataLoss) {
  const Status status = ParseCodebook(bytes, "f").status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(status.message(), "f: " + message);
}

TEST(CodebookFile, RoundTrips) {
  const Codebook codebook = SmallCodebook();
  const Result<Codebook> back = ParseCodebook(GoodFile(), "f");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(*back == codebook);
  EXPECT_EQ(SerializeCodebook(*back), GoodFile());
}

TEST(CodebookFile, IsSavedAndLoaded) {
  const TempFolder folder;
  const std::string path = folder.File("tiny.codebook");
  ASSERT_TRUE(SaveCodebook(SmallCodebook(), path).ok());
  EXPECT_EQ(ReadFileBytes(path), GoodFile());
  const auto loaded = LoadCodebook(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(**loaded == SmallCodebook());
  EXPECT_EQ(LoadCodebook(folder.File("none")).status().code(), StatusCode::kNotFound);

  Codebook bad = SmallCodebook();
  bad.tables[0].bits = 13;
  const Status refused = SaveCodebook(bad, path);
  EXPECT_EQ(refused.message(), path + ": table 0: bits 13 is not in 4 … 12");
  EXPECT_EQ(ReadFileBytes(path), GoodFile());
  EXPECT_EQ(SaveCodebook(SmallCodebook(), "/dev/full").message(),
            "/dev/full: cannot be written: No space left on device");
  EXPECT_EQ(SaveCodebook(SmallCodebook(), folder.File("no/such")).code(), StatusCode::kIoError);
}

// Readers of other versions depend on these places.
TEST(CodebookFile, HasTheFormOfTheDocument) {
  const Bytes& bytes = GoodFile();
  EXPECT_EQ(std::memcmp(bytes.data(), "VCODE\r\n\x1A\x01\0\0\0\x04\x03\x02\x01\x40\0\0\0\x03", 21),
            0);
  EXPECT_EQ(std::memcmp(bytes.data() + 64, "tinynoise, 3 tokens\0\0\0\0\0\0\0\0\0\x02", 29), 0);
  size_t size = kRecordsAt + 3 * kTableRecordBytes + 8;
  for (const CodebookTable& table : SmallCodebook().tables) size += table.bytes();
  EXPECT_EQ(bytes.size(), size);
  const Bytes tables(bytes.begin() + kRecordsAt, bytes.end() - 8);
  EXPECT_EQ(CodebookHash(SmallCodebook()), HashBytes(tables.data(), tables.size()));
}

TEST(CodebookFile, HashIsOfTheTablesAndNotOfTheNames) {
  Codebook codebook = SmallCodebook();
  const uint64_t hash = CodebookHash(codebook);
  codebook.model_name = "another";
  codebook.trained_on.clear();
  codebook.model_fingerprint = 0;
  EXPECT_EQ(CodebookHash(codebook), hash);
  codebook.tables[2].centroids.back() ^= 3;
  EXPECT_NE(CodebookHash(codebook), hash);
}

TEST(CodebookFile, EveryLengthButTheRightOneIsRefused) {
  const Bytes& good = GoodFile();
  for (size_t size = 0; size < good.size(); ++size) {
    // A buffer of its own, so that a sanitizer sees what is read behind it; with a checksum that is
    // right where there is room for one.
    Bytes bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(ParseCodebook(bytes, "f").ok()) << size;
    if (size < kCodebookHeaderBytes + 8) continue;
    const uint64_t said = size;
    std::memcpy(bytes.data() + 24, &said, sizeof(said));
    Repair(bytes);
    const Status status = ParseCodebook(bytes, "f").status();
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size << ": " << status.message();
  }
  Bytes longer = good;
  longer.resize(good.size() + 8);
  ExpectRefused(longer, "file_bytes " + std::to_string(good.size()) +
                            " is not the size of the file, " + std::to_string(longer.size()));
  const uint64_t said = longer.size();
  std::memcpy(longer.data() + 24, &said, sizeof(said));
  Repair(longer);
  ExpectRefused(longer, "8 bytes follow its end");
}

TEST(CodebookFile, EveryByteIsGuarded) {
  Bytes bytes = GoodFile();
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{0x10};
    ASSERT_FALSE(ParseCodebook(bytes, "f").ok()) << at;
    bytes[at] ^= std::byte{0x10};
  }
}

TEST(CodebookFile, EveryWrongFieldOfTheHeaderIsNamed) {
  ExpectRefused(With<uint8_t>(0, 'W'), "is no codebook: it does not begin with the magic of one",
                StatusCode::kInvalidArgument);
  ExpectRefused({}, "is no codebook: it does not begin with the magic of one",
                StatusCode::kInvalidArgument);
  ExpectRefused(With<uint32_t>(8, 2), "version 2 is not 1", StatusCode::kUnimplemented);
  ExpectRefused(With<uint32_t>(12, 0x04030201), "byte_order 0x04030201 is not 0x01020304");
  ExpectRefused(With<uint32_t>(16, 72), "header_bytes 72 is not in 64 … 64");
  ExpectRefused(With<uint32_t>(20, 0), "num_tables 0 is not in 1 … 64");
  ExpectRefused(With<uint32_t>(20, 0xFFFFFFFF), "num_tables 4294967295 is not in 1 … 64");
  ExpectRefused(With<uint64_t>(24, 1),
                "file_bytes 1 is not the size of the file, " + std::to_string(GoodFile().size()));
  ExpectRefused(With<uint32_t>(40, 0), "num_layers 0 is not in 1 … 1024");
  ExpectRefused(With<uint32_t>(44, 0x80000001), "num_kv_heads 2147483649 is not in 1 … 1024");
  ExpectRefused(With<uint32_t>(48, 257), "model_name_bytes 257 is not in 0 … 256");
  ExpectRefused(With<uint32_t>(52, 1025), "trained_on_bytes 1025 is not in 0 … 1024");
  ExpectRefused(With<uint64_t>(56, 7), "header: reserved is 7, not 0");
  ExpectRefused(With<uint8_t>(64 + 20, 1), "padding behind names is not 0");
  Bytes bytes = GoodFile();
  bytes.back() ^= std::byte{1};
  const Status status = ParseCodebook(bytes, "f").status();
  EXPECT_EQ(status.message().find("f: checksum "), 0u) << status.message();
}

TEST(CodebookFile, EveryWrongFieldOfATableIsNamed) {
  constexpr size_t kSecond = kRecordsAt + kTableRecordBytes;
  ExpectRefused(With<uint32_t>(kSecond, 2), "table 1: part 2 is not in 0 … 1");
  ExpectRefused(With<uint32_t>(kSecond + 4, 3), "table 1: grain 3 is not in 0 … 2");
  ExpectRefused(With<uint32_t>(kSecond + 8, 0), "table 1: dim 0 is not in 16 … 512");
  ExpectRefused(With<uint32_t>(kSecond + 12, 0), "table 1: num_subspaces 0 is not in 1 … 32");
  ExpectRefused(With<uint32_t>(kSecond + 16, 13), "table 1: bits 13 is not in 4 … 12");
  ExpectRefused(With<uint32_t>(kSecond + 20, 3), "table 1: unknown flags is 2, not 0");
  ExpectRefused(With<uint32_t>(kSecond + 20, 0),
                "table 1: bytes 6176 is not the 2080 of its shape");
  ExpectRefused(With<uint64_t>(kSecond + 24, std::numeric_limits<uint64_t>::max()),
                "table 1: bytes 18446744073709551615 is not the 6176 of its shape");
  ExpectRefused(With<uint64_t>(kSecond + 32, 1), "table 1: reserved is 1, not 0");
  // Shapes that need more than there is, or the same part and size twice.
  ExpectRefused(With<uint32_t>(kRecordsAt + 16, 12),
                "table 0: bytes 1152 is not the 262272 of its shape");
  Bytes more = With<uint32_t>(kRecordsAt + 16, 12);
  const uint64_t bytes = 262272;
  std::memcpy(more.data() + kRecordsAt + 24, &bytes, sizeof(bytes));
  Repair(more);
  const Status status = ParseCodebook(more, "f").status();
  EXPECT_EQ(status.message().find("f: centroids needs 262144 bytes, "), 0u) << status.message();
}

TEST(CodebookFile, ValuesAreChecked) {
  constexpr size_t kData = kRecordsAt + 3 * kTableRecordBytes;
  ExpectRefused(With<float>(kData + 8, std::numeric_limits<float>::quiet_NaN()),
                "table 0: scale 2 is nan, not in 1e-16 … 16");
  ExpectRefused(With<float>(kData, -1.0f), "table 0: scale 0 is -1, not in 1e-16 … 16");
  ExpectRefused(With<uint8_t>(kData + 128, 0), "table 0: centroid byte 0 is 0, not in 1 … 255");
  const size_t rotation = kData + 1152 + 32 + 2048;
  ExpectRefused(With<uint16_t>(rotation, 0x7C00),
                "table 1: rotation of group 0: value 0 is inf, not finite");
}

// Behind a right checksum any byte may hold anything: then it is seen, or harmless.
TEST(CodebookFile, LiesWithARightChecksumAreSeenOrHarmless) {
  for (size_t at = 0; at + 8 < GoodFile().size(); at += at < 300 ? 1 : 7) {
    for (const int value : {0, 1, 0x7F, 0xFF}) {
      const Result<Codebook> codebook = ParseCodebook(With(at, static_cast<uint8_t>(value)), "f");
      if (codebook.ok()) {
        ASSERT_TRUE(CheckCodebook(*codebook).ok()) << at;
      } else {
        ASSERT_TRUE(codebook.status().message().starts_with("f: ")) << codebook.status().message();
      }
    }
  }
}

}  // namespace codebook_file_test
}  // namespace varve
