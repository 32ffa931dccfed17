#include "runtime/torch/zip_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/cache_file_testing.h"
#include "tests/pth_testing.h"
#include "tests/test_data.h"

namespace varve {
namespace zip_reader_test {

using Bytes = std::vector<std::byte>;

std::vector<ZipPart> TwoParts() {
  std::vector<ZipPart> parts(2);
  parts[0].name = "a/data.pkl";
  parts[0].content = ToBytes("the pickle");
  parts[1].name = "a/data/0";
  parts[1].content = ToBytes("numbers");
  return parts;
}

std::string ContentOf(const ZipReader& zip, std::string_view name) {
  const ZipEntry* entry = zip.Find(name);
  if (entry == nullptr) return "(none)";
  const auto content = zip.Read(*entry);
  if (!content.ok()) return content.status().message();
  return std::string(reinterpret_cast<const char*>(content->data()), content->size());
}

void ExpectRefused(const Bytes& bytes, const std::string& message,
                   StatusCode code = StatusCode::kDataLoss) {
  const Status status = ZipReader::Open(bytes, "f").status();
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), "f: " + message);
}

void ExpectRefused(const std::function<void(std::vector<ZipPart>&)>& change,
                   const std::string& message, StatusCode code = StatusCode::kDataLoss) {
  std::vector<ZipPart> parts = TwoParts();
  change(parts);
  ExpectRefused(BuildZip(parts), message, code);
}

template <typename T>
Bytes With(Bytes bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

TEST(ZipReader, ReadsWithAndWithoutZip64AndComment) {
  for (const bool zip64 : {false, true}) {
    for (const char* comment : {"", "a comment", "PK\x05\x06 in a comment of some length"}) {
      std::vector<ZipPart> parts = TwoParts();
      parts[1].zip64 = zip64;
      const Bytes bytes = BuildZip(parts, {zip64, comment});
      const Result<ZipReader> zip = ZipReader::Open(bytes, "f");
      ASSERT_TRUE(zip.ok()) << zip.status().message();
      EXPECT_EQ(zip->entries().size(), 2u);
      EXPECT_EQ(ContentOf(*zip, "a/data.pkl"), "the pickle");
      EXPECT_EQ(ContentOf(*zip, "a/data/0"), "numbers");
      EXPECT_EQ(ContentOf(*zip, "a/data/1"), "(none)");
    }
  }
}

TEST(ZipReader, ReadsWhatPyTorchWrites) {
  const Bytes bytes = ReadFileBytes(TestDataPath("fold/views_f32.pth"));
  const Result<ZipReader> zip = ZipReader::Open(bytes, "f");
  ASSERT_TRUE(zip.ok()) << zip.status().message();
  EXPECT_EQ(ContentOf(*zip, "views_f32/byteorder"), "little");
  for (const ZipEntry& entry : zip->entries()) EXPECT_TRUE(zip->Read(entry).ok()) << entry.name;
}

TEST(ZipReader, CrcIsThatOfZip) {
  EXPECT_EQ(ZipCrc(ToBytes("123456789")), 0xCBF43926u);
  EXPECT_EQ(ZipCrc({}), 0u);
}

TEST(ZipReader, WhatIsNotReadIsNamed) {
  ExpectRefused(Bytes(), "is no zip: it has 0 bytes", StatusCode::kInvalidArgument);
  ExpectRefused(Bytes(100), "is no zip: it has no end record", StatusCode::kInvalidArgument);
  ExpectRefused([](auto& parts) { parts[1].method = 8; },
                "entry a/data/0 is compressed (method 8), not stored", StatusCode::kUnimplemented);
  ExpectRefused([](auto& parts) { parts[1].flags = 1; }, "entry a/data/0 is encrypted",
                StatusCode::kUnimplemented);
  const Bytes good = BuildZip(TwoParts(), {false, ""});
  ExpectRefused(With<uint16_t>(good, good.size() - 18, 1), "is one of several disks",
                StatusCode::kUnimplemented);
}

TEST(ZipReader, EntriesThatLieAreRefused) {
  ExpectRefused([](auto& parts) { parts[1].name = "a/data.pkl"; },
                "entry a/data.pkl is there twice");
  ExpectRefused([](auto& parts) { parts[0].packed_bytes = 9; },
                "entry a/data.pkl is stored in 9 bytes, not its 10");
  ExpectRefused([](auto& parts) { parts[0].bytes = 0xFFFFFFF0; },
                "entry a/data.pkl: its 4294967280 bytes do not fit the 263 that are left");
  ExpectRefused(
      [](auto& parts) {
        parts[0].bytes = 20;
        parts[0].local_bytes = 20;
      },
      "entry a/data.pkl overlaps entry a/data/0");
  ExpectRefused(
      [](auto& parts) {
        parts[1].bytes = 8;
        parts[1].local_bytes = 8;
      },
      "entry a/data/0 overlaps the directory");
  ExpectRefused([](auto& parts) { parts[1].local_bytes = 6; },
                "entry a/data/0: its header and the directory disagree");
  ExpectRefused([](auto& parts) { parts[1].local_name = "a/data/1"; },
                "entry a/data/0: its header has another name");
  ExpectRefused([](auto& parts) { parts[1].header_at = 5; },
                "entry a/data/0: header at 5 has no signature");
  ExpectRefused(
      [](auto& parts) {
        parts[1].zip64 = true;
        parts[1].header_at = 0xFFFFFFFFFFFFFFFF;
      },
      "entry a/data/0: header at 18446744073709551615 does not fit 331 bytes");
  // The same bytes under two names.
  ExpectRefused(
      [](auto& parts) {
        parts[1] = parts[0];
        parts[1].name = "a/data.pkm";
        parts[1].header_at = 0;
      },
      "entry a/data.pkm: its header has another name");
}

TEST(ZipReader, ChecksumsAreChecked) {
  std::vector<ZipPart> parts = TwoParts();
  parts[1].crc = 0x12345678;
  const Bytes bytes = BuildZip(parts);
  const Result<ZipReader> zip = ZipReader::Open(bytes, "f");
  ASSERT_TRUE(zip.ok()) << zip.status().message();
  EXPECT_TRUE(ContentOf(*zip, "a/data/0")
                  .starts_with("f: entry a/data/0: CRC-32 12345678 is not that of its bytes, "));
}

TEST(ZipReader, DirectoriesThatLieAreRefused) {
  const Bytes small = BuildZip(TwoParts(), {false, ""});
  const size_t end = small.size() - 22;
  ExpectRefused(With<uint32_t>(small, end + 16, 0x7FFFFFFF),
                "directory of 110 bytes at 2147483647 does not fit before its end record at 205");
  ExpectRefused(With<uint32_t>(small, end + 12, 111),
                "directory of 111 bytes at 95 does not fit before its end record at 205");
  ExpectRefused(With<uint16_t>(small, end + 10, 3), "directory of 110 bytes cannot have 3 entries");
  ExpectRefused(With<uint16_t>(small, end + 10, 1), "54 bytes follow the entries of the directory");
  ExpectRefused(With<uint32_t>(small, 95, 0), "entry 0 of the directory has no signature");
  ExpectRefused(With<uint16_t>(small, 95 + 28, 0xFFFF),
                "entry 0: directory: name needs 65535 bytes, 64 are left");
  const Bytes large = BuildZip(TwoParts());
  const size_t record = large.size() - 22 - 20 - 56, locator = large.size() - 22 - 20;
  ExpectRefused(With<uint64_t>(large, record + 32, 1),
                "its end record and its zip64 end record disagree");
  ExpectRefused(With<uint32_t>(large, record, 0), "zip64 end record at 205 has no signature");
  ExpectRefused(With<uint64_t>(large, locator + 8, 0xFFFFFFFFFFFFFFF0),
                "zip64 end record at 18446744073709551600 does not fit before its locator at 261");
  // Where the small record refers to the large one.
  Bytes huge = With<uint16_t>(large, large.size() - 12, 0xFFFF);
  EXPECT_TRUE(ZipReader::Open(huge, "f").ok());
  huge = With<uint64_t>(huge, record + 32, 0xFFFFFFFFFFFF);
  ExpectRefused(huge, "directory of 110 bytes cannot have 281474976710655 entries");
}

TEST(ZipReader, EveryTruncationIsRefusedAndEveryByteMayLie) {
  const Bytes good = BuildZip(TwoParts());
  for (size_t size = 0; size < good.size(); ++size) {
    const Bytes bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(ZipReader::Open(bytes, "f").ok()) << size;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int value : {0, 1, 0x7F, 0xFF}) {
      const Bytes bytes = With(good, at, static_cast<uint8_t>(value));
      const Result<ZipReader> zip = ZipReader::Open(bytes, "f");
      if (!zip.ok()) continue;
      for (const ZipEntry& entry : zip->entries()) (void)zip->Read(entry).ok();
    }
  }
}

}  // namespace zip_reader_test
}  // namespace varve
