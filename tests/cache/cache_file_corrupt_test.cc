// Whatever the bytes of a .varve file are: a message, never a crash.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cache/cache_impl.h"
#include "file/cache_file_reader.h"
#include "tests/cache/damaged_file_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace cache_file_corrupt_test {

constexpr const char* kPlan = "q8_0,evict=demote,budget=1MiB,sink=32,recent=32,trigger=64,exact=0";

CacheShape TinyShape() { return ShapeOf({.layers = 2, .kv_heads = 1, .group = 1, .page = 32}); }

// Two sequences that share pages, with scores.
const std::vector<std::byte>& GoodFile() {
  static const std::vector<std::byte> bytes = [] {
    const TempFolder folder;
    const std::string path = folder.File("cache.varve");
    const RetentionWork work(TinyShape(), 200);
    RetentionRun run(TinyShape(), kPlan, work);
    const SequenceId a = *run.cache->CreateSequence();
    run.Feed(a, 110);
    const SequenceId b = *run.cache->Fork(a);
    run.Feed(a, 144);
    SaveOptions options;
    options.sequences = {{a, {1, 2, 3}}, {b, {4}}};
    options.model_name = "tiny";
    EXPECT_OK(run.cache->Save(path, options));
    return ReadFileBytes(path);
  }();
  return bytes;
}

Status OpenStatus(const std::vector<std::byte>& bytes) {
  return CacheFile::FromMemory(bytes, "f").status();
}

void ExpectRefused(const std::vector<std::byte>& bytes, const std::string& message) {
  const Status status = OpenStatus(bytes);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "f: " + message);
}

TEST(CacheFileCorrupt, EveryByteOfHeaderIndexAndTablesIsGuarded) {
  std::vector<std::byte> bytes = GoodFile();
  ASSERT_OK(OpenStatus(bytes));
  const size_t head = GetRecord<FileHeader>(bytes.data()).payload_offset;
  ASSERT_EQ(head, 4096u);
  for (size_t at = 0; at < head; ++at) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      bytes[at] ^= static_cast<std::byte>(change);
      const Status status = OpenStatus(bytes);
      ASSERT_FALSE(status.ok()) << "byte " << at << " ^ " << change;
      ASSERT_TRUE(status.message().starts_with("f: ")) << status.message();
      bytes[at] ^= static_cast<std::byte>(change);
    }
  }
}

TEST(CacheFileCorrupt, EveryByteOfThePagesIsGuarded) {
  std::vector<std::byte> bytes = GoodFile();
  const std::shared_ptr<const CacheFile> file = *CacheFile::FromMemory(bytes, "f");
  for (size_t i = 0; i < file->pages().size(); ++i) {
    const PageRecord& page = file->pages()[i];
    std::vector<std::byte> to(page.raw_bytes);
    ASSERT_OK(file->ReadPage(i, to.data()));
    for (size_t at = 0; at < page.stored_bytes; at += i < 2 ? 1 : 97) {
      bytes[page.offset + at] ^= std::byte{1};
      ASSERT_EQ(file->ReadPage(i, to.data()).code(), StatusCode::kDataLoss);
      bytes[page.offset + at] ^= std::byte{1};
    }
  }
}

TEST(CacheFileCorrupt, EveryLengthButTheRightOneIsRefused) {
  const std::vector<std::byte>& good = GoodFile();
  for (size_t size = 0; size < good.size(); size += size < 4200 ? 1 : 61) {
    // A buffer of its own, so that a sanitizer sees what is read behind it.
    const std::vector<std::byte> bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(OpenStatus(bytes).ok()) << size;
  }
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 4096);
  ExpectRefused(longer, "file_bytes " + std::to_string(good.size()) +
                            " is not the size of the file, " + std::to_string(longer.size()));
}

TEST(CacheFileCorrupt, AFileThatIsShortenedWhileItIsInUseIsDataLoss) {
  const TempFolder folder;
  const std::string path = folder.File("short.varve");
  WriteFileBytes(path, GoodFile());
  const std::unique_ptr<Cache> cache = MakeCache(TinyShape(), kPlan);
  const auto loaded = cache->Load(path, {});
  ASSERT_OK(loaded.status());
  std::filesystem::resize_file(path, 4096);  // all pages are gone
  std::vector<float> rows(200 * 64);
  const Status read =
      cache->ReadRows((*loaded)[0].sequence, 0, 0, Part::kKey, 0, 100, rows.data()).status();
  EXPECT_EQ(read.code(), StatusCode::kDataLoss) << read.message();
  EXPECT_NE(read.message().find(path), std::string::npos) << read.message();
}

// Behind right checksums any byte may hold anything.
TEST(CacheFileCorrupt, LiesWithRightChecksumsAreSeenOrHarmless) {
  const std::vector<std::byte>& good = GoodFile();
  const SectionPlace last = FindSection(good, SectionKind::kPages);
  for (size_t at = 0; at < last.offset + last.bytes; at += kByteStride) {
    for (const int value : {0x00, 0x7F, 0xFF}) {
      if (good[at] == static_cast<std::byte>(value)) continue;
      std::vector<std::byte> bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      RepairChecksums(&bytes);
      UseDamagedFile(bytes, TinyShape(), kPlan);
    }
  }
}

template <typename Record>
std::vector<std::byte> Changed(SectionKind kind, size_t index,
                               const std::function<void(Record&)>& change) {
  return WithRecord<Record>(GoodFile(), kind, index, change);
}

std::vector<std::byte> ChangedHeader(const std::function<void(FileHeader&)>& change) {
  std::vector<std::byte> bytes = GoodFile();
  auto header = GetRecord<FileHeader>(bytes.data());
  change(header);
  std::vector<std::byte> fields;
  PutRecord(header, &fields);
  std::copy(fields.begin(), fields.end(), bytes.begin());
  RepairChecksums(&bytes);
  return bytes;
}

TEST(CacheFileCorrupt, HeaderFieldsAreNamed) {
  const auto expect = [](const std::function<void(FileHeader&)>& change, const char* message) {
    ExpectRefused(ChangedHeader(change), message);
  };
  expect([](FileHeader& h) { h.magic[0] = 'X'; }, "is not a .varve file");
  expect([](FileHeader& h) { h.version = 2; }, "version 2; this build reads version 1");
  expect([](FileHeader& h) { h.byte_order = 0x04030201; },
         "byte_order 0x04030201 is not 0x01020304");
  expect([](FileHeader& h) { h.header_bytes = 64; }, "header_bytes 64 is not 128");
  expect([](FileHeader& h) { h.num_sections = 65; }, "num_sections 65 > 64");
  expect([](FileHeader& h) { h.num_sections = 7; }, "section 0: offset 384 is not 352");
  expect([](FileHeader& h) { h.num_layers = 1025; }, "num_layers 1025 is outside 1 … 1024");
  expect([](FileHeader& h) { h.num_kv_heads = 0; }, "num_kv_heads 0 is outside 1 … 1024");
  expect([](FileHeader& h) { h.group_size = 65; }, "group_size 65 is outside 1 … 64");
  expect([](FileHeader& h) { h.key_dim = 1024; }, "key_dim 1024 is outside 16 … 512");
  expect([](FileHeader& h) { h.value_dim = 0xFFFFFFFF; },
         "value_dim 4294967295 is outside 16 … 512");
  expect([](FileHeader& h) { h.page_tokens = 17; }, "page_tokens 17 is not 16, 32, 64 or 128");
  expect([](FileHeader& h) { h.payload_offset = 8192; }, "payload_offset 8192 is not 4096");
  expect([](FileHeader& h) { h.num_sequences = 3; }, "num_sequences 3 is not 2, the records");
  expect([](FileHeader& h) { h.num_pages = 3; }, "num_pages 3 is not 12, the records");
  expect([](FileHeader& h) { h.reserved[2] = 1; }, "a reserved field of the header is not 0");
}

TEST(CacheFileCorrupt, SequenceAndTableFieldsAreNamed) {
  const auto sequence = [](const std::function<void(SequenceRecord&)>& change,
                           const char* message) {
    ExpectRefused(Changed<SequenceRecord>(SectionKind::kSequences, 1, change), message);
  };
  sequence([](SequenceRecord& r) { r.next_position = -1; },
           "sequence 1: next_position -1 is outside 0 … 1099511627776");
  sequence([](SequenceRecord& r) { r.next_position = 49; },
           "sequence 1, layer 0: the last page ends at 110 > next_position 49");
  sequence([](SequenceRecord& r) { r.first_token = ~uint64_t{0}; },
           "sequence 1: first_token 18446744073709551615 is not 3");
  sequence([](SequenceRecord& r) { r.num_tokens = ~uint64_t{0}; },
           "sequence 1: num_tokens 18446744073709551615 > 1, those left");
  sequence([](SequenceRecord& r) { r.num_tokens = 0; },
           "section tokens: 1 of 4 belong to no sequence");
  sequence([](SequenceRecord& r) { r.flags = 2; }, "sequence 1: flags 0x2 are not known here");
  sequence([](SequenceRecord& r) { r.tokens_restarted = 2; },
           "sequence 1: tokens_restarted 2 where the plan restarts no positions");
  const auto table = [](const std::function<void(TableRecord&)>& change, const char* message) {
    ExpectRefused(Changed<TableRecord>(SectionKind::kTables, 3, change), message);
  };
  table([](TableRecord& r) { r.first_entry = 0; }, "sequence 1, layer 1: first_entry 0 is not 14");
  table([](TableRecord& r) { r.num_entries = ~uint64_t{0}; },
        "sequence 1, layer 1: num_entries 18446744073709551615 > 4, those left");
  table([](TableRecord& r) { r.num_entries = 1; }, "section entries: 3 of 18 belong to no table");
  table([](TableRecord& r) { r.plan_bytes = ~uint64_t{0}; },
        "sequence 1, layer 1: plan_bytes 18446744073709551615 > 1099511627776");
  table([](TableRecord& r) { r.flags = 2; }, "sequence 1, layer 1: flags 0x2 are not known here");
  table([](TableRecord& r) { r.prompt_positions = 2; },
        "sequence 1, layer 1: prompt_positions 2 is not in 0 … 0 or not that of layer 0");
}

TEST(CacheFileCorrupt, EntryFieldsAreNamed) {
  const auto entry = [](const std::function<void(EntryRecord&)>& change, const char* message) {
    ExpectRefused(Changed<EntryRecord>(SectionKind::kEntries, 1, change), message);
  };
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  entry([](EntryRecord& r) { r.page = 12; }, "entry 1: page 12 >= 12, the pages");
  entry([](EntryRecord& r) { r.page = 9; }, "entry 1: page 9 is of layer 1, not 0");
  entry([](EntryRecord& r) { r.page = 0; },
        "entry 1: its page begins at 0 < 32, the end of the one before");
  entry([](EntryRecord& r) { r.rows = 0; }, "entry 1: rows 0 is outside 1 … 32");
  entry([](EntryRecord& r) { r.rows = 33; }, "entry 1: rows 33 is outside 1 … 32");
  entry([](EntryRecord& r) { r.live[0] |= uint64_t{1} << 32; },
        "entry 1: a live row behind the 32 rows");
  entry([](EntryRecord& r) { r.live[1] = uint64_t{1} << 63; },
        "entry 1: a live row behind the 32 rows");
  entry([](EntryRecord& r) { r.live[0] = 0; }, "entry 1: no live row");
  entry([](EntryRecord& r) { r.stage = -2; }, "entry 1: stage -2 is outside -1 … 5");
  entry([](EntryRecord& r) { r.stage = 6; }, "entry 1: stage 6 is outside -1 … 5");
  entry([](EntryRecord& r) { r.stage = -1; },
        "entry 1: stage -1 of layer 0 has the rungs f16 and f16, not q8_0 and q8_0");
  entry([](EntryRecord& r) { r.wish = 0; }, "entry 1: wish 0 is no stage that a policy could want");
  entry([](EntryRecord& r) { r.wish = 1 << 30; },
        "entry 1: wish 1073741824 is no stage that a policy could want");
  entry([](EntryRecord& r) { r.reserved = 1; }, "entry 1: reserved is not 0");
  entry([](EntryRecord& r) { r.bucket_sum = -1; }, "entry 1: bucket_sum -1 is outside its range");
  entry([](EntryRecord& r) { r.smooth = kNaN; }, "entry 1: smooth nan is outside its range");
  entry([](EntryRecord& r) { r.last = 1e30f; },
        "entry 1: last 1.0000000150474662e+30 is outside "
        "its range");
  entry([](EntryRecord& r) { r.frozen = -2; }, "entry 1: frozen -2 is outside its range");
  entry([](EntryRecord& r) { r.buckets[3] = -1; }, "entry 1: bucket -1 is outside its range");
  entry([](EntryRecord& r) { r.bucket_queries = -1; },
        "entry 1: bucket_queries -1 is outside its range");
  entry([](EntryRecord& r) { r.num_buckets = 0x7FFFFFFF; },
        "entry 1: num_buckets 2147483647 is outside its range");
}

TEST(CacheFileCorrupt, PageAndRungFieldsAreNamed) {
  const auto page = [](const std::function<void(PageRecord&)>& change, const char* message) {
    ExpectRefused(Changed<PageRecord>(SectionKind::kPages, 1, change), message);
  };
  page([](PageRecord& r) { r.offset += 4096; }, "page 1: offset 16384 is not 12288");
  page([](PageRecord& r) { r.stored_bytes = ~uint64_t{0}; },
       "page 1: stored_bytes 18446744073709551615 is not 4352");
  page([](PageRecord& r) { r.raw_bytes = 0; }, "page 1: raw_bytes 0 is not 4352");
  page([](PageRecord& r) { r.first_position = -1; },
       "page 1: first_position -1 is outside 0 … 1099511627776");
  page([](PageRecord& r) { r.layer = 2; }, "page 1: layer 2 > 1");
  page([](PageRecord& r) { r.layer = 1; }, "page 2: layer 0 < 1, the one before");
  page([](PageRecord& r) { r.state = 0; }, "page 1: state 0 is outside 1 … 3");
  page([](PageRecord& r) { r.encoding = 3; }, "page 1: encoding 3 is not known");
  page([](PageRecord& r) { r.rows = 33; }, "page 1: rows 33 is outside 1 … 32");
  page([](PageRecord& r) { r.tokens_per_row = 0; }, "page 1: tokens_per_row 0 is outside 1 … 1024");
  page([](PageRecord& r) { r.key_rung = 99; }, "page 1: key_rung 99 >= 2, the rungs");
  page([](PageRecord& r) { r.successor = 2; }, "page 1: successor 2 is no other page");
  page([](PageRecord& r) { r.successor = 99; }, "page 1: successor 99 is no other page");
  page([](PageRecord& r) { r.successor = 4; }, "page 1: successor 4 holds other rows");
  page([](PageRecord& r) { r.reserved = 1; }, "page 1: reserved is not 0");
  const auto rung = [](const std::function<void(RungRecord&)>& change, const char* message) {
    ExpectRefused(Changed<RungRecord>(SectionKind::kRungs, 0, change), message);
  };
  rung([](RungRecord& r) { r.name[0] = 'x'; },
       "rung 0: \"x8_0\" is not known to this build; known: f32 f16 bf16 q8_0 q8_0r q4_0 q4_0r t4 "
       "t3 t2 "
       "pqMxB (B 4 to 12) pq4 pq3 pq2");
  rung([](RungRecord& r) { r.name[15] = 'x'; }, "rung 0: its name has bytes behind its end");
  rung([](RungRecord& r) { r.key_strip_bytes = 1; }, "rung 0: key_strip_bytes 1 is not 2176");
  rung([](RungRecord& r) { r.value_strip_bytes = 1; }, "rung 0: value_strip_bytes 1 is not 2176");
  rung([](RungRecord& r) { r.reserved = 1; }, "rung 0: a reserved field is not 0");
  rung([](RungRecord& r) { r.codebook_hash = 1; },
       "rung 0: q8_0 has codebook_hash 0000000000000001");
}

TEST(CacheFileCorrupt, SectionsOfAnotherKindAreRefusedUnlessTheyMayBeIgnored) {
  std::vector<std::byte> bytes = GoodFile();
  const auto with_kind = [&](size_t index, uint32_t kind) {
    std::vector<std::byte> changed = bytes;
    const size_t at = FileHeader::kBytes + index * SectionRecord::kBytes;
    auto record = GetRecord<SectionRecord>(changed.data() + at);
    record.kind = kind;
    std::vector<std::byte> fields;
    PutRecord(record, &fields);
    std::copy(fields.begin(), fields.end(), changed.begin() + static_cast<ptrdiff_t>(at));
    RepairChecksums(&changed);
    return changed;
  };
  ExpectRefused(with_kind(1, 11), "section 1: kind 11 is not known to this build");
  ExpectRefused(with_kind(1, 9), "section dictionaries: record_bytes 1 is not 32");
  ExpectRefused(with_kind(1, 1), "section 1: a second one of kind plan");
  ExpectRefused(with_kind(1, kIgnorableSection | 11), "section model: missing");
}

TEST(CacheFileCorrupt, ScalesThatAttentionDoesNotExpectAreRefused) {
  std::vector<std::byte> bytes = GoodFile();
  const auto page = CacheFile::FromMemory(bytes, "f").value()->pages()[0];
  bytes[page.offset + 1] = std::byte{0x7C};  // the first key scale: infinity
  bytes[page.offset] = std::byte{0};
  RepairChecksums(&bytes);
  const std::shared_ptr<const CacheFile> file = *CacheFile::FromMemory(bytes, "f");
  std::vector<std::byte> to(page.raw_bytes);
  EXPECT_EQ(file->ReadPage(0, to.data()).message(),
            "f: page 0, layer 0, positions 0 … 31: KV head 0: rung q8_0: scale 0 is inf, not "
            "finite");
  bytes[page.offset + 1] = std::byte{0xBC};
  RepairChecksums(&bytes);
  EXPECT_EQ((*CacheFile::FromMemory(bytes, "f"))->ReadPage(0, to.data()).message(),
            "f: page 0, layer 0, positions 0 … 31: KV head 0: rung q8_0: scale 0 is -1.000000 < 0");
}

}  // namespace cache_file_corrupt_test
}  // namespace varve
