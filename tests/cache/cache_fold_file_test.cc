// Files of caches that fold: folded pages come back, and a prompt that has not ended is folded
// later.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/cache/fold_cache_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/gguf_testing.h"
#include "varve/cache_file.h"

namespace varve {
namespace cache_fold_file_test {

constexpr char kPlan[] = "q8_0,fold=shipped";

// The file's one sequence in another cache.
void LoadInto(const std::string& path, FoldRun* run) {
  Result<std::vector<SequenceTokens>> loaded = run->cache->Load(path, {});
  ASSERT_EQ(loaded.status().ToString(), "ok");
  ASSERT_EQ(loaded->size(), 1u);
  run->id = loaded->front().sequence;
}

TEST(CacheFoldFile, FoldedPagesComeBack) {
  const TempFolder folder;
  const std::string path = folder.File("folded.varve");
  const auto compressor = MakeCompressor({.factor = 5});
  FoldRun run(kPlan, compressor);
  ASSERT_OK(run.Feed(333));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.cache->Save(path, {}));
  FoldRun other(kPlan, compressor);
  LoadInto(path, &other);
  EXPECT_EQ(ReadAll(*other.cache, other.id), ReadAll(*run.cache, run.id));
  EXPECT_EQ(other.cache->Describe(other.id, 0)->pages[0].num_positions, 80);
  // It has ended already: nothing is folded again, and both go on alike.
  ASSERT_OK(other.cache->EndPrompt(other.id));
  EXPECT_EQ(other.cache->Report().fold.prompts, 0u);
  other.fed = run.fed;
  ASSERT_OK(run.Feed(70));
  ASSERT_OK(other.Feed(70));
  EXPECT_EQ(ReadAll(*other.cache, other.id), ReadAll(*run.cache, run.id));
}

TEST(CacheFoldFile, APromptThatHasNotEndedIsFoldedInTheOtherCache) {
  const TempFolder folder;
  const std::string path = folder.File("prompt.varve");
  const auto compressor = MakeCompressor({.factor = 4});
  FoldRun run(kPlan, compressor);
  ASSERT_OK(run.Feed(200));
  ASSERT_OK(run.cache->Save(path, {}));
  FoldRun other(kPlan, compressor);
  LoadInto(path, &other);
  other.fed = 200;
  ASSERT_OK(run.Feed(30));
  ASSERT_OK(other.Feed(30));
  EXPECT_EQ(other.cache->Stats().pages_sealed, 0u);
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(other.cache->EndPrompt(other.id));
  EXPECT_EQ(other.cache->Describe(other.id, 2)->live_rows, 57 + 2);
  EXPECT_EQ(ReadAll(*other.cache, other.id), ReadAll(*run.cache, run.id));
}

TEST(CacheFoldFile, RestartedPositionsAreKept) {
  const TempFolder folder;
  const std::string path = folder.File("restarted.varve");
  const auto compressor = MakeCompressor({.factor = 5});
  const std::string plan = "f16,fold=shipped,fold_positions=restart";
  FoldRun run(plan, compressor);
  ASSERT_OK(run.Feed(98));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.cache->Save(path, {}));
  FoldRun other(plan, compressor);
  LoadInto(path, &other);
  EXPECT_EQ(*other.cache->NextPosition(other.id), 22);
  EXPECT_EQ(*other.cache->TokensSeen(other.id), 98);
  EXPECT_EQ(ReadAll(*other.cache, other.id), ReadAll(*run.cache, run.id));
  const CacheFileInfo info = *ReadCacheFileInfo(path);
  EXPECT_EQ(info.sequences.at(0).next_position, 22);
  EXPECT_EQ(info.sequences.at(0).tokens_seen, 98);
  EXPECT_EQ(info.bytes_f16_seen, run.cache->Stats().bytes_f16_seen);
}

TEST(CacheFoldFile, TheFileHasNoPathOfTheCompressor) {
  const TempFolder folder;
  const std::string bin = folder.File("small.bin");
  ASSERT_OK(SaveCompressor(*MakeCompressor(), bin));
  FoldRun run("fold=" + bin, nullptr);
  ASSERT_OK(run.Feed(3));
  ASSERT_OK(run.cache->Save(folder.File("a.varve"), {}));
  const std::vector<std::byte> bytes = ReadFileBytes(folder.File("a.varve"));
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_NE(text.find("fold=small.bin"), std::string::npos);
  EXPECT_EQ(text.find(bin), std::string::npos);
}

TEST(CacheFoldFile, AFoldedPromptThatSaysItHasNotEndedIsNotFoldedAgain) {
  const TempFolder folder;
  const std::string path = folder.File("liar.varve");
  const auto compressor = MakeCompressor({.factor = 4});
  FoldRun run(kPlan, compressor);
  ASSERT_OK(run.Feed(256));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.cache->Save(path, {}));
  WriteFileBytes(path, WithRecord<SequenceRecord>(ReadFileBytes(path), SectionKind::kSequences, 0,
                                                  [](SequenceRecord& r) { r.flags = 0; }));
  FoldRun other(kPlan, compressor);
  LoadInto(path, &other);
  ASSERT_OK(other.cache->EndPrompt(other.id));
  EXPECT_EQ(ReadAll(*other.cache, other.id), ReadAll(*run.cache, run.id));
}

TEST(CacheFoldFile, ACacheThatDoesNotFoldRefusesTheFile) {
  const TempFolder folder;
  const std::string path = folder.File("folded.varve");
  FoldRun run(kPlan, MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(64));
  ASSERT_OK(run.cache->Save(path, {}));
  FoldRun plain("q8_0", nullptr);
  const Status status = plain.cache->Load(path, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("fold=shipped"), std::string::npos) << status.message();
}

// What cannot be told from shapes: keys and values. The file says its order, or the plan does.
TEST(CacheFoldFile, ACompressorInAnotherOrderIsNotSwapped) {
  const TempFolder folder;
  const auto compressor = MakeCompressor({.factor = 4});
  const CompressorOrder order = *ParseCompressorOrder("tv/tk/iv/ik");
  ASSERT_OK(SaveCompressor(*compressor, folder.File("says.bin"), order));
  // The same bytes without the metadata, as another program would write them.
  std::vector<std::byte> silent = ReadFileBytes(folder.File("says.bin"));
  uint32_t metadata = 0;
  std::memcpy(&metadata, silent.data() + 40, sizeof(metadata));
  ASSERT_GT(metadata, 0u);
  silent.erase(silent.begin() + 44, silent.begin() + 44 + metadata);
  std::memset(silent.data() + 40, 0, sizeof(metadata));
  WriteFileBytes(folder.File("silent.bin"), silent);
  const auto fold = [&](const std::string& clauses) {
    FoldRun run("f32,open_rung=f32,fold=" + folder.File(clauses), nullptr);
    EXPECT_OK(run.Feed(64));
    EXPECT_OK(run.cache->EndPrompt(run.id));
    run.compressor = compressor;
    return run;
  };
  fold("says.bin").ExpectRows({{0, 16, 4}}, 1e-5);
  fold("silent.bin,fold_order=tv/tk/iv/ik").ExpectRows({{0, 16, 4}}, 1e-5);
  const auto refusal = [&](const std::string& clauses) {
    CacheOptions options;
    options.plan = *ParsePlan("fold=" + clauses);
    options.compressor = compressor;
    return Cache::Create(FoldShape(), std::move(options)).status().message();
  };
  EXPECT_NE(refusal(folder.File("says.bin") + ",fold_order=tk").find("its order of blocks is"),
            std::string::npos);
  EXPECT_NE(refusal(folder.File("silent.bin") + ",fold_order=tz").find("\"tz\" is not one of"),
            std::string::npos);
  EXPECT_NE(refusal("shipped,fold_order=tk").find("fold_order= is for a file"), std::string::npos);
}

}  // namespace cache_fold_file_test
}  // namespace varve
