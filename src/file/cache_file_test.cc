// A cache that is saved and loaded goes on as if it had never stopped, bit for bit.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/cache/retention_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"
#include "varve/cache.h"
#include "varve/cache_file.h"

namespace varve {
namespace cache_file_test {

constexpr int64_t kTokens = 400;

CacheShape SmallShape() {
  return ShapeOf({.layers = 2, .kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 32});
}

const RetentionWork& Work() {
  static const RetentionWork work(SmallShape(), kTokens);
  return work;
}

std::vector<SequenceTokens> LoadAll(RetentionRun& run, const std::string& path) {
  Result<std::vector<SequenceTokens>> loaded = run.cache->Load(path, {});
  EXPECT_OK(loaded.status());
  return loaded.ok() ? *loaded : std::vector<SequenceTokens>();
}

template <typename Record>
size_t WrittenBytes() {
  std::vector<std::byte> bytes;
  PutRecord(Record(), &bytes);
  return bytes.size();
}

TEST(CacheFile, RecordsHaveTheSizeThatTheFormatSays) {
  EXPECT_EQ(WrittenBytes<FileHeader>(), FileHeader::kBytes);
  EXPECT_EQ(WrittenBytes<SectionRecord>(), SectionRecord::kBytes);
  EXPECT_EQ(WrittenBytes<RungRecord>(), RungRecord::kBytes);
  EXPECT_EQ(WrittenBytes<SequenceRecord>(), SequenceRecord::kBytes);
  EXPECT_EQ(WrittenBytes<TableRecord>(), TableRecord::kBytes);
  EXPECT_EQ(WrittenBytes<EntryRecord>(), EntryRecord::kBytes);
  EXPECT_EQ(WrittenBytes<PageRecord>(), PageRecord::kBytes);
  EXPECT_EQ(WrittenBytes<DictionaryRecord>(), DictionaryRecord::kBytes);
}

class CacheFilePlans : public testing::TestWithParam<const char*> {};

// One sequence and a fork that went its own way, with rows cut out: filling, full and sealed pages,
// live masks, scores, and decisions that wait.
TEST_P(CacheFilePlans, GoesOnBitForBit) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun original(SmallShape(), GetParam(), Work());
  const SequenceId a = *original.cache->CreateSequence();
  original.Feed(a, 180);
  const SequenceId b = *original.cache->Fork(a);
  ASSERT_OK(original.cache->EndPrompt(a));
  original.Feed(a, 208);  // here the policies below have just made a decision
  ASSERT_OK(original.cache->RemoveRange(b, 70, 75));
  ASSERT_OK(original.cache->Truncate(b, 171));
  original.Feed(b, 191, 3);
  ASSERT_OK(original.cache->Save(path, {}));
  original.log.events.clear();
  original.outputs.clear();

  RetentionRun loaded(SmallShape(), GetParam(), Work());
  const std::vector<SequenceTokens> sequences = LoadAll(loaded, path);
  ASSERT_EQ(sequences.size(), 2u);
  const std::pair<SequenceId, SequenceId> pairs[] = {{a, sequences[0].sequence},
                                                     {b, sequences[1].sequence}};
  EXPECT_EQ(loaded.cache->Stats().pages, original.cache->Stats().pages);
  EXPECT_EQ(loaded.cache->Stats().bytes_f16, original.cache->Stats().bytes_f16);
  EXPECT_EQ(loaded.cache->Report().retention.plan_bytes,
            original.cache->Report().retention.plan_bytes);
  for (const auto& [before, after] : pairs) {
    original.Feed(before, 300);
    loaded.Feed(after, 300);
  }
  EXPECT_EQ(EventTexts(loaded.log), EventTexts(original.log));
  for (const auto& [before, after] : pairs) {
    for (int layer = 0; layer < 2; ++layer) {
      const auto& expected = original.outputs[{before.value, layer}];
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ((loaded.outputs[{after.value, layer}]), expected) << "layer " << layer;
      EXPECT_EQ(loaded.PagesOf(after, layer), original.PagesOf(before, layer));
    }
    EXPECT_EQ(ReadAll(*loaded.cache, after), ReadAll(*original.cache, before));
  }
  EXPECT_EQ(loaded.cache->Stats().bytes_used, original.cache->Stats().bytes_used);
  EXPECT_EQ(loaded.cache->Report().pages_unread, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, CacheFilePlans,
    testing::Values("f16", "q8_0", "q4_0,open=20,exact=0", "k=q8_0,v=q4_0r,exact=0", "t4,exact=0",
                    "k=t3,v=t2,open=20,exact=0", "age=f16:23/t4:50/t2,exact=0", "f32,open_rung=f32",
                    "age=f16:23/q8_0:50/q4_0,exact=0",
                    "age=q8_0r:17/q4_0r,open=5,window=77,exact=0",
                    "bf16,open_rung=bf16,window=40,sink=20", "0: f16; 1: q4_0,window=33,exact=0",
                    "evict=h2o,ratio=2,sink=16,recent=32,trigger=64,every=16",
                    "evict=demote,ratio=1.2,sink=16,recent=32,trigger=64,every=16,exact=0",
                    "q8_0,evict=tova,ratio=4,sink=16,recent=32,trigger=64,every=16",
                    "evict=snapkv,ratio=3,sink=16,recent=32,trigger=64,every=16"));

TEST(CacheFile, KeepsWhatPagesShare) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "age=f16:64/q4_0,exact=0", Work());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 100);
  const SequenceId b = *run.cache->Fork(a);
  run.Feed(a, 180);  // has demoted pages that b still holds exact
  const CacheStats before = run.cache->Stats();
  ASSERT_OK(run.cache->Save(path, {}));
  RetentionRun loaded(SmallShape(), "age=f16:64/q4_0,exact=0", Work());
  const std::vector<SequenceTokens> sequences = LoadAll(loaded, path);
  EXPECT_EQ(loaded.cache->Stats().pages, before.pages);
  // The fork takes over what the first sequence has encoded.
  run.Feed(b, 180);
  loaded.Feed(sequences[1].sequence, 180);
  EXPECT_GT(loaded.cache->Report().pages_adopted, 0u);
  EXPECT_EQ(loaded.cache->Report().pages_adopted, run.cache->Report().pages_adopted);
  EXPECT_EQ(loaded.cache->Stats().pages, run.cache->Stats().pages);
}

TEST(CacheFile, KeepsWhatAPolicyWantsAndOtherHoldersHaveNotAgreedTo) {
  const char* plan = "evict=demote,ratio=1.2,sink=16,recent=32,trigger=64,every=16,exact=0";
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), plan, Work());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 100);
  const SequenceId b = *run.cache->Fork(a);
  run.Feed(a, 180);  // wants to demote pages on which b has not decided yet
  ASSERT_OK(run.cache->Save(path, {}));
  RetentionRun loaded(SmallShape(), plan, Work());
  const std::vector<SequenceTokens> sequences = LoadAll(loaded, path);
  const uint64_t before = run.cache->Report().retention.pages_demoted;
  run.Feed(b, 180);
  loaded.Feed(sequences[1].sequence, 180);
  EXPECT_GT(loaded.cache->Report().retention.pages_demoted, 0u);
  EXPECT_EQ(loaded.cache->Report().retention.pages_demoted,
            run.cache->Report().retention.pages_demoted - before);
  EXPECT_EQ(ReadAll(*loaded.cache, sequences[1].sequence), ReadAll(*run.cache, b));
}

TEST(CacheFile, PagesThatNobodyHasReadAgeAllTheSame) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "age=f16:64/q8_0:128/q4_0,exact=0", Work());
  run.attends = false;
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 120);
  ASSERT_OK(run.cache->Save(path, {}));
  RetentionRun loaded(SmallShape(), "age=f16:64/q8_0:128/q4_0,exact=0", Work());
  loaded.attends = false;
  const SequenceId id = LoadAll(loaded, path)[0].sequence;
  const uint64_t before = run.cache->Stats().pages_demoted;
  run.Feed(a, 220);
  loaded.Feed(id, 220);
  EXPECT_EQ(loaded.cache->Stats().pages_demoted, run.cache->Stats().pages_demoted - before);
  EXPECT_EQ(ReadAll(*loaded.cache, id), ReadAll(*run.cache, a));
}

TEST(CacheFile, ReadsALayerWhenItIsAskedFor) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "q8_0", Work());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 100);
  ASSERT_OK(run.cache->Save(path, {}));
  RetentionRun loaded(SmallShape(), "q8_0", Work());
  const SequenceId id = LoadAll(loaded, path)[0].sequence;
  CacheReport stats = loaded.cache->Report();
  EXPECT_EQ(stats.pages, 14u);
  EXPECT_EQ(stats.pages_unread, 14u);
  EXPECT_EQ(stats.bytes_unread, run.cache->Stats().bytes_used);
  EXPECT_EQ(stats.bytes_held, 0u);
  EXPECT_EQ(stats.bytes_used, 0u);
  EXPECT_TRUE(stats.rungs.empty());
  // A step writes to the last page of each layer.
  loaded.Begin(id, 1);
  EXPECT_EQ(loaded.cache->Report().pages_unread, 12u);
  loaded.Layer(0, id, 100, 1);
  EXPECT_EQ(loaded.cache->Report().pages_unread, 6u);
  loaded.Layer(1, id, 100, 1);
  EXPECT_EQ(loaded.cache->Report().pages_unread, 0u);
  ASSERT_OK(loaded.cache->EndStep());
  run.Feed(a, 101);
  EXPECT_EQ(loaded.cache->Stats().bytes_used, run.cache->Stats().bytes_used);
  EXPECT_EQ(loaded.cache->Stats().rungs.size(), run.cache->Stats().rungs.size());
}

TEST(CacheFile, TellsOfADamagedPageAndRollsBack) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "q8_0", Work());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 100);
  ASSERT_OK(run.cache->Save(path, {}));
  std::vector<std::byte> bytes = ReadFileBytes(path);
  // Page 9 is the third of layer 1: positions 32 … 47.
  const auto record = GetRecord<PageRecord>(
      bytes.data() + FindSection(bytes, SectionKind::kPages).offset + 9 * PageRecord::kBytes);
  bytes[record.offset + record.stored_bytes / 2] ^= std::byte{4};
  WriteFileBytes(path, bytes);
  RetentionRun loaded(SmallShape(), "q8_0", Work());
  const SequenceId id = LoadAll(loaded, path)[0].sequence;
  loaded.Begin(id, 1);
  loaded.Layer(0, id, 100, 1);
  std::vector<float> rows(2 * 64), out(4 * 32);
  ASSERT_OK(loaded.cache->Append(1, id, {rows.data(), 1, 0, 0}, {rows.data(), 1, 0, 0}));
  const AttendRequest request = {id, 1, Work().queries[1].data(), 0, 0, out.data(), 0, 0, nullptr};
  const Status status = loaded.cache->Attend(1, {&request, 1}, {});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(path + ": page 9, layer 1, positions 32 … 47"), std::string::npos)
      << status.message();
  EXPECT_EQ(*loaded.cache->NextPosition(id), 100);
  std::vector<float> read(100 * 64);
  EXPECT_EQ(loaded.cache->ReadRows(id, 1, 0, Part::kKey, 40, 41, read.data()).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(*loaded.cache->ReadRows(id, 1, 0, Part::kKey, 48, 100, read.data()), 52);
  // Save does not write damaged pages to another file.
  const std::string copy = folder.File("copy.varve");
  EXPECT_EQ(loaded.cache->Save(copy, {}).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(std::filesystem::exists(copy));
  // Without the page the sequence goes on.
  ASSERT_OK(loaded.cache->RemoveRange(id, 32, 48));
  loaded.Feed(id, 120);
  EXPECT_EQ(*loaded.cache->NextPosition(id), 120);
}

TEST(CacheFile, HoldsTokensAndOnlyTheSequencesAskedFor) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "f16", Work());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 20);
  const SequenceId b = *run.cache->CreateSequence();
  run.Feed(b, 40);
  const SequenceId empty = *run.cache->CreateSequence();
  SaveOptions options;
  options.sequences = {{b, {7, -1, 1 << 30}}, {empty, {}}};
  options.model_fingerprint = 0x1234567890ABCDEF;
  options.model_name = "a model";
  ASSERT_OK(run.cache->Save(path, options));
  RetentionRun loaded(SmallShape(), "f16", Work());
  loaded.Feed(*loaded.cache->CreateSequence(), 5);  // a new sequence beside the loaded ones
  Result<std::vector<SequenceTokens>> sequences =
      loaded.cache->Load(path, {options.model_fingerprint});
  ASSERT_OK(sequences.status());
  ASSERT_EQ(sequences->size(), 2u);
  EXPECT_EQ((*sequences)[0].tokens, options.sequences[0].tokens);
  EXPECT_EQ(*loaded.cache->NextPosition((*sequences)[0].sequence), 40);
  EXPECT_EQ(*loaded.cache->NextPosition((*sequences)[1].sequence), 0);
  EXPECT_EQ(ReadAll(*loaded.cache, (*sequences)[0].sequence), ReadAll(*run.cache, b));
  loaded.Feed((*sequences)[1].sequence, 3);
  Result<CacheFileInfo> info = ReadCacheFileInfo(path);
  ASSERT_OK(info.status());
  EXPECT_EQ(info->model_name, "a model");
  EXPECT_EQ(info->plan_text, "f16");
  EXPECT_EQ(info->pages, 6u);
  EXPECT_EQ(info->sequences.size(), 2u);
  EXPECT_EQ(info->sequences[0].num_tokens, 3u);
  EXPECT_EQ(info->bytes_f16, 2u * 40 * 2 * 2 * (64 + 32));
  EXPECT_OK(VerifyCacheFile(path));
}

TEST(CacheFile, IsTheSameBytesWheneverTheContentIsTheSame) {
  const TempFolder folder;
  const std::string first = folder.File("first.varve");
  const std::string second = folder.File("second.varve");
  const std::string third = folder.File("third.varve");
  RetentionRun run(SmallShape(), "f16", Work());
  // Tokens that were rolled back are in no file.
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 110);
  ASSERT_OK(run.cache->Truncate(a, 99));
  run.Feed(a, 100);
  ASSERT_OK(run.cache->Save(first, {}));
  RetentionRun fresh(SmallShape(), "f16", Work());
  fresh.Feed(*fresh.cache->CreateSequence(), 100);
  ASSERT_OK(fresh.cache->Save(second, {}));
  EXPECT_EQ(ReadFileBytes(first), ReadFileBytes(second));
  // Also while pages are still unread in a file, and over that very file.
  RetentionRun loaded(SmallShape(), "f16", Work());
  const SequenceId id = LoadAll(loaded, first)[0].sequence;
  ASSERT_OK(loaded.cache->Save(third, {}));
  EXPECT_EQ(ReadFileBytes(first), ReadFileBytes(third));
  ASSERT_OK(loaded.cache->Save(first, {}));
  EXPECT_EQ(ReadFileBytes(first), ReadFileBytes(third));
  EXPECT_EQ(ReadAll(*loaded.cache, id), ReadAll(*run.cache, a));
}

TEST(CacheFile, RefusesAnotherModelShapeOrPlan) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "q8_0", Work());
  run.Feed(*run.cache->CreateSequence(), 20);
  SaveOptions options;
  options.model_fingerprint = 255;
  options.model_name = "right";
  ASSERT_OK(run.cache->Save(path, options));
  const auto expect = [&](const CacheShape& shape, const char* plan, const LoadOptions& load,
                          const std::string& message) {
    const std::unique_ptr<Cache> cache = MakeCache(shape, plan);
    const Status status = cache->Load(path, load).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), path + ": " + message);
    EXPECT_EQ(cache->Stats().sequences, 0u);
    EXPECT_EQ(cache->Stats().pages, 0u);
  };
  CacheShape shape = SmallShape();
  expect(shape, "q8_0", {254},
         "model_fingerprint 00000000000000ff (\"right\") is not 00000000000000fe, that of the "
         "model in use");
  expect(shape, "q4_0", {}, "plan \"q8_0\" is not \"q4_0\", the cache's: they differ in layer 0");
  expect(shape, "0: q8_0; 1: f16", {},
         "plan \"q8_0\" is not \"0: q8_0; 1: f16\", the cache's: they differ in layer 1");
  shape.num_layers = 3;
  expect(shape, "q8_0", {}, "num_layers 2 is not 3, the cache's");
  shape = SmallShape();
  shape.page_tokens = 32;
  expect(shape, "q8_0", {}, "page_tokens 16 is not 32, the cache's");
  shape = SmallShape();
  shape.value_dim = 64;
  expect(shape, "q8_0", {}, "value_dim 32 is not 64, the cache's");
  // The same plan in other words is the same plan.
  const std::unique_ptr<Cache> other = MakeCache(SmallShape(), "k=q8_0,v=q8_0,open=0");
  EXPECT_OK(other->Load(path, {255}).status());
}

TEST(CacheFile, RefusesWhatCannotBeSavedOrLoadedNow) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "q8_0", Work());
  const SequenceId a = *run.cache->CreateSequence();
  run.Begin(a, 1);
  EXPECT_EQ(run.cache->Save(path, {}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(run.cache->Load(path, {}).status().code(), StatusCode::kFailedPrecondition);
  run.cache->AbortStep();
  SaveOptions options;
  options.sequences = {{a, {}}, {a, {}}};
  EXPECT_EQ(run.cache->Save(path, options).code(), StatusCode::kInvalidArgument);
  options.sequences = {{SequenceId{99}, {}}};
  EXPECT_EQ(run.cache->Save(path, options).code(), StatusCode::kNotFound);
  options.sequences.clear();
  options.model_name = std::string(1025, 'x');
  EXPECT_EQ(run.cache->Save(path, options).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(run.cache->Load(path, {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(run.cache->Save("/dev/null", {}).message(), "/dev/null: is not a file");
  EXPECT_EQ(run.cache->Save(folder.path(), {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(run.cache->Save("", {}).code(), StatusCode::kInvalidArgument);
  const Status status = run.cache->Save("/nonexistent-folder/file.varve", {});
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_EQ(status.message(),
            "/nonexistent-folder/file.varve: cannot be created: No such file or directory");
}

TEST(CacheFile, HoldsACacheWithoutAnything) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "q8_0", Work());
  ASSERT_OK(run.cache->Save(path, {}));
  RetentionRun loaded(SmallShape(), "q8_0", Work());
  EXPECT_TRUE(LoadAll(loaded, path).empty());
  EXPECT_OK(VerifyCacheFile(path));
}

TEST(CacheFile, UnreadPagesCountUnderTheCap) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "f16", Work());
  run.Feed(*run.cache->CreateSequence(), 100);
  ASSERT_OK(run.cache->Save(path, {}));
  CacheOptions options;
  options.max_bytes = 40 << 10;
  RetentionRun loaded(SmallShape(), "f16", Work(), options);
  const SequenceId id = LoadAll(loaded, path)[0].sequence;
  const StepEntry entry = {id, 1};
  EXPECT_EQ(loaded.cache->BeginStep({&entry, 1}).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(loaded.cache->Stats().bytes_used, 0u);
  ASSERT_OK(loaded.cache->Truncate(id, 30));
  loaded.Feed(id, 31);
  EXPECT_EQ(*loaded.cache->NextPosition(id), 31);
}

TEST(CacheFile, ASequenceThatWasNeverReadCanBeForkedCutAndFreed) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun run(SmallShape(), "q8_0,window=64", Work());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 100);
  ASSERT_OK(run.cache->Save(path, {}));
  RetentionRun loaded(SmallShape(), "q8_0,window=64", Work());
  const SequenceId id = LoadAll(loaded, path)[0].sequence;
  const SequenceId fork = *loaded.cache->Fork(id);
  ASSERT_OK(loaded.cache->Truncate(id, 77));
  ASSERT_OK(loaded.cache->RemoveRange(id, 50, 60));
  ASSERT_OK(loaded.cache->SlideWindow(id, 40, 0));
  ASSERT_OK(loaded.cache->Free(id));
  loaded.Feed(fork, 130);
  run.Feed(a, 130);
  EXPECT_EQ(ReadAll(*loaded.cache, fork), ReadAll(*run.cache, a));
  ASSERT_OK(loaded.cache->Free(fork));
  EXPECT_EQ(loaded.cache->Stats().pages, 0u);
}

}  // namespace cache_file_test
}  // namespace varve
