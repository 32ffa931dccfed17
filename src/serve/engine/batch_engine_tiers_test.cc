// Engines with tiers: what one has computed, another one, or the same after a restart, need not
// compute; and no answer is ever another than that of a fresh computation.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "serve/engine/batch_engine.h"
#include "serve/engine/batch_engine_testing.h"
#ifdef VARVE_HAVE_HIREDIS
#include "serve/tiers/redis_testing.h"
#endif
#include "tests/gguf_testing.h"

namespace varve::serve {
namespace batch_engine_tiers_test {

EngineOptions WithDisk(const std::string& folder, const char* plan = "f16") {
  EngineOptions options;
  options.plan = *ParsePlan(plan);
  options.tiers.disk_folder = folder;
  options.tiers.disk_bytes = uint64_t{64} << 20;
  return options;
}

std::vector<int32_t> Fresh(const CompletionRequest& request) {
  CompletionRequest alone = request;
  alone.reuse_prefix = false;
  std::vector<int32_t> tokens = TestEngine().AskAlone(alone).tokens;
  EXPECT_EQ(tokens.size(), static_cast<size_t>(request.max_tokens));
  return tokens;
}

uint64_t Imported(TestEngine& engine) { return engine.engine().Snapshot().tiers.pages_imported; }

TEST(BatchEngineTiers, PagesSurviveARestart) {
  const TempFolder folder;
  const CompletionRequest request = TestRequest(300, 20);
  const std::vector<int32_t> expected = Fresh(request);
  for (int round = 0; round < 3; ++round) {
    TestEngine engine(WithDisk(folder.File("pages")));
    const TestAnswer answer = engine.AskAlone(request);
    EXPECT_EQ(answer.tokens, expected);
    ASSERT_TRUE(answer.end.has_value());
    EXPECT_EQ(answer.end->cached_tokens, round == 0 ? 0 : 256);
    EXPECT_EQ(Imported(engine), round == 0 ? 0u : 4u);
    // The next one finds them in memory.
    EXPECT_EQ(engine.AskAlone(request).tokens, expected);
    EXPECT_EQ(Imported(engine), round == 0 ? 0u : 4u);
  }
}

TEST(BatchEngineTiers, PagesThatLeftMemoryComeBack) {
  const TempFolder folder;
  EngineOptions options = WithDisk(folder.File("pages"));
  options.cache_bytes = uint64_t{1} << 20;
  options.reuse_generated = false;
  TestEngine engine(options);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const CompletionRequest request = TestRequest(250, 5, seed);
      EXPECT_EQ(engine.AskAlone(request).tokens, Fresh(request)) << seed;
    }
  }
  EXPECT_GT(engine.engine().Snapshot().prefix.pages_evicted, 0u);
  EXPECT_GT(Imported(engine), 6u);
}

TEST(BatchEngineTiers, PagesInOtherRungsGoThroughTiers) {
  for (const char* plan : {"q8_0,exact=0", "q8_0,open=0,exact=0", "k=q8_0,v=t4,exact=0"}) {
    const TempFolder folder;
    const CompletionRequest request = TestRequest(300, 8);
    const TestAnswer first = TestEngine(WithDisk(folder.File("pages"), plan)).AskAlone(request);
    TestEngine engine(WithDisk(folder.File("pages"), plan));
    const TestAnswer second = engine.AskAlone(request);
    EXPECT_EQ(second.end->cached_tokens, 256) << plan;
    EXPECT_EQ(second.tokens.size(), 8u);
    // Pages that are sealed at once are the same ones; others are sealed sooner than alone.
    if (std::string(plan).find("open=0") != std::string::npos) {
      EXPECT_EQ(second.tokens, first.tokens) << plan;
    }
    // Pages of another plan are never found.
    TestEngine other(WithDisk(folder.File("other"), "q4_0,exact=0"));
    EXPECT_EQ(other.AskAlone(request).end->cached_tokens, 0);
  }
}

TEST(BatchEngineTiers, TenantsDoNotFindEachOthersPages) {
  const TempFolder folder;
  CompletionRequest request = TestRequest(300, 4);
  request.tenant = "ann";
  TestEngine(WithDisk(folder.File("pages"))).AskAlone(request);
  TestEngine engine(WithDisk(folder.File("pages")));
  request.tenant = "bob";
  EXPECT_EQ(engine.AskAlone(request).end->cached_tokens, 0);
  EXPECT_EQ(Imported(engine), 0u);
  request.tenant = "ann";
  EXPECT_EQ(engine.AskAlone(request).end->cached_tokens, 256);
}

TEST(BatchEngineTiers, DamagedPagesAreComputed) {
  const TempFolder folder;
  const std::string pages = folder.File("pages");
  const CompletionRequest request = TestRequest(300, 20);
  const std::vector<int32_t> expected = Fresh(request);
  TestEngine(WithDisk(pages)).AskAlone(request);
  for (int round = 0; round < 8; ++round) {
    for (const auto& entry : std::filesystem::directory_iterator(pages)) {
      if (entry.file_size() < 100) continue;
      const auto at = static_cast<std::streamoff>(entry.file_size() / 9 * (round + 1));
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file.write("damaged!", 8);
    }
    TestEngine engine(WithDisk(pages));
    EXPECT_EQ(engine.AskAlone(request).tokens, expected) << round;
  }
}

TEST(BatchEngineTiers, NeedSharedPrefixes) {
  const TempFolder folder;
  EngineOptions options = WithDisk(folder.File("pages"));
  options.reuse_prefixes = false;
  const std::vector<std::byte> bytes = TinyModel().Build();
  const auto model = LoadDecoderModel(*GgufFile::FromMemory(bytes, "tiny"));
  const auto tokenizer = (*model)->MakeTokenizer();
  const auto executor = MakeThreadPool(1);
  const auto engine = BatchEngine::Create(*model, **tokenizer, *executor, options);
  EXPECT_EQ(engine.status().code(), StatusCode::kFailedPrecondition);
}

#ifdef VARVE_HAVE_HIREDIS
TEST(BatchEngineTiers, ThreeServersShareARedisAndLiveWithoutIt) {
  if (!HaveRedisServer()) GTEST_SKIP() << "redis-server is not installed";
  auto redis = std::make_unique<RedisServer>();
  EngineOptions options;
  options.tiers.redis_url = "redis://127.0.0.1:" + std::to_string(redis->port());
  const CompletionRequest request = TestRequest(300, 20);
  const std::vector<int32_t> expected = Fresh(request);
  {
    TestEngine first(options);
    EXPECT_EQ(first.AskAlone(request).end->cached_tokens, 0);
  }
  TestEngine second(options);
  TestEngine third(options);
  for (TestEngine* engine : {&second, &third}) {
    const TestAnswer answer = engine->AskAlone(request);
    EXPECT_EQ(answer.tokens, expected);
    EXPECT_EQ(answer.end->cached_tokens, 256);
    EXPECT_EQ(Imported(*engine), 4u);
  }
  const CompletionRequest later = TestRequest(300, 20, 5);
  redis.reset();
  EXPECT_EQ(second.AskAlone(later).tokens, Fresh(later));
}
#endif

}  // namespace batch_engine_tiers_test
}  // namespace varve::serve
