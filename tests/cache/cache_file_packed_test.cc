// Packed pages go into a .varve file and come out of it packed; whatever its bytes are, a message.

#include "file/cache_file_packed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/cache_impl.h"
#include "file/cache_file_reader.h"
#include "store/part_codec.h"
#include "tests/cache/damaged_file_testing.h"
#include "tests/cache/packing_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"
#include "varve/cache_file.h"

namespace varve {
namespace cache_file_packed_test {

CacheShape SmallShape() {
  return ShapeOf(
      {.layers = 2, .kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 32, .page = 64});
}

const RetentionWork& Work() {
  // V repeats every 40 tokens: rows for dictionaries.
  static const RetentionWork work = [] {
    RetentionWork made(SmallShape(), 900);
    for (std::vector<float>& values : made.values) {
      for (size_t i = 40 * 64; i < values.size(); ++i) values[i] = values[i - 40 * 64];
    }
    return made;
  }();
  return work;
}

constexpr const char* kPacking = ",pack=store,hot=16/64,bootstrap=16,step=16";

void FeedPacked(RetentionRun& run, SequenceId id, int64_t until) {
  run.after_step = [&run] { run.cache->WaitForPacking(); };
  run.Feed(id, until, 64);
}

class CacheFilePackedPlans : public testing::TestWithParam<const char*> {};

TEST_P(CacheFilePackedPlans, GoesOnBitForBitAndStaysPacked) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  const std::string raw_path = folder.File("raw.varve");
  const std::string plan = GetParam();
  RetentionRun run(SmallShape(), plan + kPacking, Work());
  RetentionRun raw(SmallShape(), plan, Work());
  const SequenceId a = *run.cache->CreateSequence();
  FeedPacked(run, a, 640);
  raw.Feed(*raw.cache->CreateSequence(), 640);
  const LosslessStats packed = run.cache->Report().lossless;
  ASSERT_GT(packed.pages_now, 5u);
  SaveOptions options;
  options.sequences = {{a, {1, 2}}};
  ASSERT_OK(run.cache->Save(path, options));
  ASSERT_OK(raw.cache->Save(raw_path, options));
  ASSERT_OK(VerifyCacheFile(path));
  EXPECT_LT(ReadFileBytes(path).size(), ReadFileBytes(raw_path).size() * 95 / 100);
  const CacheFileInfo info = *ReadCacheFileInfo(path);
  const auto listed = std::find_if(info.rungs.begin(), info.rungs.end(), [](const auto& rung) {
    return rung.state == PageState::kPacked;
  });
  ASSERT_NE(listed, info.rungs.end());
  EXPECT_EQ(listed->pages, packed.pages_now);
  EXPECT_GT(info.dictionaries, 0u);
  EXPECT_GT(info.dictionary_bytes, 0u);

  // With packing and without: what is packed is read as it is.
  run.outputs.clear();
  for (const std::string& other : {plan + kPacking, plan}) {
    RetentionRun loaded(SmallShape(), other, Work());
    Result<std::vector<SequenceTokens>> sequences = loaded.cache->Load(path, {});
    ASSERT_OK(sequences.status());
    const SequenceId id = (*sequences)[0].sequence;
    EXPECT_LT(loaded.cache->Report().bytes_unread, raw.cache->Stats().bytes_used);
    loaded.Begin(id, 1);
    loaded.Layer(0, id, 640, 1);
    loaded.Layer(1, id, 640, 1);
    ASSERT_OK(loaded.cache->EndStep());
    const CacheReport stats = loaded.cache->Report();
    EXPECT_EQ(stats.pages_unread, 0u);
    EXPECT_EQ(stats.lossless.pages_now, packed.pages_now);
    EXPECT_EQ(stats.lossless.packed_bytes_now, packed.packed_bytes_now);
    EXPECT_GT(stats.lossless.dictionary_bytes, 0u);
    EXPECT_LE(stats.lossless.dictionary_bytes, packed.dictionary_bytes + 4096);
    FeedPacked(loaded, id, 800);
    FeedPacked(run, a, 800);
    for (int layer = 0; layer < 2; ++layer)
      EXPECT_EQ((loaded.outputs[{id.value, layer}]), (run.outputs[{a.value, layer}]));
    EXPECT_EQ(ReadAll(*loaded.cache, id), ReadAll(*run.cache, a));
    // A cut through a page that has come packed.
    ASSERT_OK(loaded.cache->Truncate(id, 200));
    loaded.Feed(id, 300);
    EXPECT_EQ(*loaded.cache->NextPosition(id), 300);
  }
}

TEST(CacheFilePacked, GearFramesGoInAndComeOutAsTheyAre) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  const std::string plan = "pack=store,pack_codec=gear,hot=16/64,bootstrap=16,step=16";
  RetentionRun run(SmallShape(), plan, Work());
  const SequenceId a = *run.cache->CreateSequence();
  FeedPacked(run, a, 640);
  const LosslessStats packed = run.cache->Report().lossless;
  ASSERT_GT(packed.pages_now, 5u);
  EXPECT_EQ(packed.dictionary_bytes, 0u);
  SaveOptions options;
  options.sequences = {{a, {1, 2}}};
  ASSERT_OK(run.cache->Save(path, options));
  ASSERT_OK(VerifyCacheFile(path));
  EXPECT_EQ(ReadCacheFileInfo(path)->dictionaries, 0u);
  run.outputs.clear();
  FeedPacked(run, a, 800);
  // What comes after may be packed otherwise, or not at all.
  for (const std::string& other : {plan, std::string("pack=store,hot=16/64"), std::string("f16")}) {
    RetentionRun loaded(SmallShape(), other, Work());
    const auto sequences = loaded.cache->Load(path, {});
    ASSERT_OK(sequences.status());
    const SequenceId id = (*sequences)[0].sequence;
    FeedPacked(loaded, id, 641);
    EXPECT_EQ(loaded.cache->Report().lossless.packed_bytes_now, packed.packed_bytes_now);
    FeedPacked(loaded, id, 800);
    for (int layer = 0; layer < 2; ++layer)
      EXPECT_EQ((loaded.outputs[{id.value, layer}]), (run.outputs[{a.value, layer}]));
    EXPECT_EQ(ReadAll(*loaded.cache, id), ReadAll(*run.cache, a));
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, CacheFilePackedPlans,
                         testing::Values("f16", "bf16,open_rung=bf16", "f32,open_rung=f32",
                                         "0: f16; 1: bf16"));

TEST(CacheFilePacked, IsTheSameBytesFromPagesThatAreStillInAFile) {
  const TempFolder folder;
  const std::string first = folder.File("first.varve");
  const std::string second = folder.File("second.varve");
  RetentionRun run(SmallShape(), std::string("f16") + kPacking, Work());
  const SequenceId a = *run.cache->CreateSequence();
  FeedPacked(run, a, 640);
  ASSERT_OK(run.cache->Save(first, {}));
  RetentionRun loaded(SmallShape(), std::string("f16") + kPacking, Work());
  const SequenceId id = (*loaded.cache->Load(first, {}))[0].sequence;
  ASSERT_OK(loaded.cache->Save(second, {}));
  EXPECT_EQ(ReadFileBytes(first), ReadFileBytes(second));
  // Cut before anything has been read.
  ASSERT_OK(loaded.cache->Truncate(id, 200));
  ASSERT_OK(run.cache->Truncate(a, 200));
  EXPECT_EQ(ReadAll(*loaded.cache, id), ReadAll(*run.cache, a));
  loaded.Feed(id, 400);
  run.Feed(a, 400);
  EXPECT_EQ(ReadAll(*loaded.cache, id), ReadAll(*run.cache, a));
}

TEST(CacheFilePacked, DamageInMemoryIsNotPassedOn) {
  const TempFolder folder;
  NotingWork noting;
  RetentionRun run(SmallShape(), std::string("f16") + kPacking, Work(), {}, WithWork(&noting));
  const SequenceId a = *run.cache->CreateSequence();
  FeedPacked(run, a, 640);
  const PackedPage* packed = noting.PackedAt(1, 192);
  ASSERT_NE(packed, nullptr);
  packed->data[packed->bytes / 2] ^= std::byte{1};
  const Status status = run.cache->Save(folder.File("cache.varve"), {});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("layer 1, page at 192"), std::string::npos) << status.message();
}

TEST(CacheFilePacked, WritesADictionaryOnceAndWhatItExtendsFirst) {
  std::vector<uint16_t> rows(32 * 32);
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<uint16_t>(0x3C00 + i * 2654435761 % 1021);
  std::copy(rows.begin(), rows.begin() + 512, rows.begin() + 512);  // rows repeat
  const store::PartView part{PartShapeOf(*FindRung("f16"), Part::kValue, 32, 32),
                             reinterpret_cast<const std::byte*>(rows.data()), 0};
  const auto base = *store::BuildDictionary({&part, 1});
  const auto dictionary = *store::ExtendDictionary(base, {&part, 1});
  PackedStrips strips;
  strips.bytes = *store::Pack(part, dictionary.get());
  ASSERT_NE(store::ReadPackedInfo(strips.bytes)->dictionary_hash, 0u);
  strips.ends = {static_cast<uint32_t>(strips.bytes.size())};
  auto list = std::make_shared<PackDictionaries>();
  list->of_strip = {dictionary};
  strips.dictionaries = list;
  DictionaryWriter writer;
  ASSERT_OK(writer.Add(strips));
  ASSERT_OK(writer.Add(strips));
  const std::vector<std::byte> records = writer.TakeRecords();
  ASSERT_EQ(records.size(), 2 * DictionaryRecord::kBytes);
  EXPECT_EQ(GetRecord<DictionaryRecord>(records.data()).hash, base->hash());
  EXPECT_EQ(GetRecord<DictionaryRecord>(records.data() + DictionaryRecord::kBytes).hash,
            dictionary->hash());
}

// --- files that are not what they should be ---

constexpr const char* kTinyPlan = "f16,pack=store,hot=0/32,bootstrap=16,step=16";

CacheShape TinyShape() {
  return ShapeOf(
      {.layers = 2, .kv_heads = 1, .group = 1, .key_dim = 32, .value_dim = 32, .page = 32});
}

// Rows that come again: only those make packed pages name dictionaries.
RetentionWork RepeatingWork(const CacheShape& shape, int64_t tokens) {
  RetentionWork work(shape, tokens);
  for (auto* parts : {&work.keys, &work.values}) {
    for (std::vector<float>& rows : *parts) {
      const size_t row = rows.size() / static_cast<size_t>(tokens);
      for (size_t i = 5 * row; i < rows.size(); ++i) rows[i] = rows[i - 5 * row];
    }
  }
  return work;
}

const std::vector<std::byte>& GoodFile() {
  static const std::vector<std::byte> bytes = [] {
    const TempFolder folder;
    const std::string path = folder.File("cache.varve");
    const RetentionWork work = RepeatingWork(TinyShape(), 200);
    RetentionRun run(TinyShape(), kTinyPlan, work);
    const SequenceId a = *run.cache->CreateSequence();
    run.after_step = [&run] { run.cache->WaitForPacking(); };
    run.Feed(a, 200, 32);
    EXPECT_OK(run.cache->Save(path, {}));
    return ReadFileBytes(path);
  }();
  return bytes;
}

Status OpenStatus(const std::vector<std::byte>& bytes) {
  return CacheFile::FromMemory(bytes, "f").status();
}

void ExpectRefused(const std::vector<std::byte>& bytes, const std::string& message) {
  EXPECT_EQ(OpenStatus(bytes).message(), "f: " + message);
}

size_t FirstPacked(const CacheFile& file) {
  return static_cast<size_t>(std::find_if(file.pages().begin(), file.pages().end(),
                                          [](const PageRecord& page) { return page.IsPacked(); }) -
                             file.pages().begin());
}

TEST(CacheFilePackedCorrupt, EveryByteOfHeaderTablesAndDictionariesIsGuarded) {
  std::vector<std::byte> bytes = GoodFile();
  ASSERT_OK(OpenStatus(bytes));
  ASSERT_GT(FindSection(bytes, SectionKind::kDictionaries).bytes, 0u);
  const size_t head = GetRecord<FileHeader>(bytes.data()).payload_offset;
  for (size_t at = 0; at < head; ++at) {
    for (const int change : {0x01, 0xFF}) {
      bytes[at] ^= static_cast<std::byte>(change);
      const Status status = OpenStatus(bytes);
      ASSERT_FALSE(status.ok()) << "byte " << at << " ^ " << change;
      ASSERT_TRUE(status.message().starts_with("f: ")) << status.message();
      bytes[at] ^= static_cast<std::byte>(change);
    }
  }
}

TEST(CacheFilePackedCorrupt, EveryByteOfThePagesIsGuarded) {
  std::vector<std::byte> bytes = GoodFile();
  const std::shared_ptr<const CacheFile> file = *CacheFile::FromMemory(bytes, "f");
  size_t packed = 0;
  for (size_t i = 0; i < file->pages().size(); ++i) {
    const PageRecord& page = file->pages()[i];
    if (!page.IsPacked()) continue;
    std::vector<std::byte> to(page.raw_bytes);
    PackedStrips strips;
    ASSERT_OK(file->ReadPage(i, to.data()));
    for (size_t at = 0; at < page.stored_bytes; at += packed < 2 ? 1 : 97) {
      bytes[page.offset + at] ^= std::byte{1};
      ASSERT_EQ(file->ReadPackedPage(i, &strips).code(), StatusCode::kDataLoss);
      ASSERT_EQ(file->ReadPage(i, to.data()).code(), StatusCode::kDataLoss);
      bytes[page.offset + at] ^= std::byte{1};
    }
    ++packed;
  }
  EXPECT_GT(packed, 4u);
}

TEST(CacheFilePackedCorrupt, EveryLengthButTheRightOneIsRefused) {
  const std::vector<std::byte>& good = GoodFile();
  const size_t head = GetRecord<FileHeader>(good.data()).payload_offset;
  for (size_t size = 0; size < good.size(); size += size < head + 100 ? 1 : 61) {
    const std::vector<std::byte> bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(OpenStatus(bytes).ok()) << size;
  }
}

TEST(CacheFilePackedCorrupt, LiesWithRightChecksumsAreSeenOrHarmless) {
  const std::vector<std::byte>& good = GoodFile();
  const std::shared_ptr<const CacheFile> file = *CacheFile::FromMemory(good, "f");
  const PageRecord page = file->pages()[FirstPacked(*file)];
  const auto lie = [&](size_t at, std::initializer_list<int> values) {
    for (const int value : values) {
      if (good[at] == static_cast<std::byte>(value)) continue;
      std::vector<std::byte> bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      RepairChecksums(&bytes);
      UseDamagedFile(bytes, TinyShape(), "f16");
    }
  };
  const SectionPlace records = FindSection(good, SectionKind::kDictionaries);
  const SectionPlace data = FindSection(good, SectionKind::kDictionaryData);
  const SectionPlace pages = FindSection(good, SectionKind::kPages);
  for (size_t at = 128; at < 128 + 10 * SectionRecord::kBytes; ++at) lie(at, {0x00, 0xFF});
  for (size_t at = 0; at < records.bytes; at += kByteStride)
    lie(records.offset + at, {0x00, 0x7F, 0xFF});
  for (size_t at = 0; at < data.bytes; at += kByteStride) lie(data.offset + at, {0x00, 0xFF});
  for (size_t at = 0; at < pages.bytes; at += kByteStride)
    lie(pages.offset + at, {0x00, 0x02, 0xFF});
  for (size_t at = 0; at < page.stored_bytes; at += kByteStride)
    lie(page.offset + at, {0x00, 0xFF});
}

TEST(CacheFilePackedCorrupt, FieldsOfDictionariesAndPagesAreNamed) {
  const std::vector<std::byte>& good = GoodFile();
  const auto dictionary = [&](const std::function<void(DictionaryRecord&)>& change,
                              const std::string& message) {
    ExpectRefused(WithRecord<DictionaryRecord>(good, SectionKind::kDictionaries, 1, change),
                  "dictionary 1: " + message);
  };
  const SectionPlace data = FindSection(good, SectionKind::kDictionaryData);
  const auto at = [&](size_t index) {
    return GetRecord<DictionaryRecord>(good.data() +
                                       FindSection(good, SectionKind::kDictionaries).offset +
                                       index * DictionaryRecord::kBytes);
  };
  const DictionaryRecord second = at(1);
  dictionary(
      [](DictionaryRecord& r) { r.offset += 1; },
      "offset " + std::to_string(second.offset + 1) + " is not " + std::to_string(second.offset));
  dictionary([](DictionaryRecord& r) { r.bytes = ~uint64_t{0}; },
             "18446744073709551615 bytes > " + std::to_string(data.bytes - second.offset) +
                 ", those left");
  dictionary([](DictionaryRecord& r) { r.hash = 5; },
             fmt::format("hash 0000000000000005 is not {:016x}, its own", second.hash));
  const auto changed_data = [&](size_t where, std::byte value) {
    std::vector<std::byte> bytes = good;
    bytes[data.offset + second.offset + where] = value;
    RepairChecksums(&bytes);
    return OpenStatus(bytes).message();
  };
  EXPECT_EQ(changed_data(24, std::byte{7}),
            "f: dictionary 1: extends 0000000000000007, which is not before it");
  EXPECT_NE(changed_data(second.bytes - 1, std::byte{0x5A}).find("f: dictionary 1: dictionary: "),
            std::string::npos);
  const std::shared_ptr<const CacheFile> file = *CacheFile::FromMemory(good, "f");
  const size_t index = FirstPacked(*file);
  const auto page = [&](const std::function<void(PageRecord&)>& change,
                        const std::string& message) {
    ExpectRefused(WithRecord<PageRecord>(good, SectionKind::kPages, index, change),
                  fmt::format("page {}: ", index) + message);
  };
  page([](PageRecord& r) { r.state = kStateFull; }, "state 2 of a packed page is not 3");
  page([](PageRecord& r) { r.stored_bytes = 71; }, "stored_bytes 71 is outside 72 … 4168");
  page([](PageRecord& r) { r.stored_bytes = 4169; }, "stored_bytes 4169 is outside 72 … 4168");
  page([](PageRecord& r) { r.encoding = 1; },
       fmt::format("stored_bytes {} is not 4096", file->pages()[index].stored_bytes));
}

TEST(CacheFilePackedCorrupt, StripsThatDoNotFitAreNamed) {
  const std::vector<std::byte>& good = GoodFile();
  const std::shared_ptr<const CacheFile> file = *CacheFile::FromMemory(good, "f");
  const size_t index = FirstPacked(*file);
  const PageRecord page = file->pages()[index];
  const auto expect = [&](size_t where, int value, const std::string& message) {
    std::vector<std::byte> bytes = good;
    bytes[page.offset + where] = static_cast<std::byte>(value);
    RepairChecksums(&bytes);
    PackedStrips strips;
    const Status status = (*CacheFile::FromMemory(bytes, "f"))->ReadPackedPage(index, &strips);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(fmt::format("f: page {}, layer {}, positions {} … {}: {}",
                                                index, page.layer, page.first_position,
                                                page.first_position + 31, message)),
              std::string::npos)
        << status.message();
  };
  const size_t strips_bytes = page.stored_bytes - 8;
  expect(3, 0x7F, "end ");
  expect(4, static_cast<int>(strips_bytes % 256) ^ 1, "");
  expect(8, 99, "K of KV head 0: packed part: mode 99 is not in 16 … 23");
  expect(8 + 6, 16, "K of KV head 0: ");     // num_rows
  expect(8 + 24, 0xAB, "K of KV head 0: ");  // dictionary hash
  std::vector<std::byte> bytes = good;
  bytes[page.offset + 8 + 24] ^= std::byte{1};
  RepairChecksums(&bytes);
  PackedStrips strips;
  EXPECT_NE((*CacheFile::FromMemory(bytes, "f"))
                ->ReadPackedPage(index, &strips)
                .message()
                .find("is not in the file"),
            std::string::npos);
}

}  // namespace cache_file_packed_test
}  // namespace varve
