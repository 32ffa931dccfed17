// fold=: what a prompt's rows become, what of them attention sees, and what a failure leaves.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tests/cache/fold_cache_testing.h"

namespace varve {
namespace cache_fold_test {

TEST(CacheFold, ImageAndTextAreFoldedByTheirOwnNetworks) {
  FoldRun run("fold=shipped,image=11,open_rung=f32,f32", MakeCompressor({.factor = 5}));
  ASSERT_OK(run.Feed(21));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  run.ExpectRows({{0, 2, 5, true}, {10, 1, 1}, {11, 2, 5, false}}, 1e-5);
  const SequenceInfo info = *run.cache->Describe(run.id, 1);
  EXPECT_EQ(info.live_rows, 5);
  EXPECT_EQ(info.next_position, 21);
  ASSERT_EQ(info.pages.size(), 3u);
  EXPECT_EQ(info.pages[2].first_position, 11);
  EXPECT_EQ(info.pages[2].num_positions, 10);
  EXPECT_EQ(info.pages[2].num_rows, 2);
}

TEST(CacheFold, LengthsAroundTheThresholdAndInF16) {
  for (const int tokens : {1, 4, 5, 9, 10, 11, 14, 15, 20, 80, 81, 160, 333}) {
    FoldRun run("fold=shipped", MakeCompressor({.factor = 5, .has_image = false}));
    ASSERT_OK(run.Feed(tokens));
    ASSERT_OK(run.cache->EndPrompt(run.id));
    const int64_t groups = tokens / 5 < 2 ? 0 : tokens / 5;
    std::vector<FoldPiece> pieces;
    if (groups > 0) pieces.push_back({0, groups, 5, false});
    if (tokens > 5 * groups) pieces.push_back({5 * groups, tokens - 5 * groups, 1});
    run.ExpectRows(pieces, 4e-3);  // f16 rows within 4: half a unit in the last place is 2e-3
    EXPECT_EQ(run.cache->Report().fold.rows,
              groups == 0 ? 0u : (groups + tokens % 5) * kFoldLayers);
  }
}

TEST(CacheFold, WithoutImageNetworksTheImageStaysRaw) {
  FoldRun run("fold=shipped,image=20,open_rung=f32,f32",
              MakeCompressor({.factor = 2, .has_image = false}));
  ASSERT_OK(run.Feed(50));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  run.ExpectRows({{0, 20, 1}, {20, 15, 2, false}}, 1e-5);
}

TEST(CacheFold, DecodingGoesOnAtTheTruePosition) {
  FoldRun run("fold=shipped,open_rung=f32,f32", MakeCompressor({.factor = 5}));
  ASSERT_OK(run.Feed(48));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.Feed(40));
  EXPECT_EQ(*run.cache->NextPosition(run.id), 88);
  run.ExpectRows({{0, 9, 5}, {45, 43, 1}}, 1e-5);
  const SequenceInfo info = *run.cache->Describe(run.id, 0);
  EXPECT_EQ(*run.cache->TokensSeen(run.id), 88);
  // The three tokens left over lie in the page that decoding goes on in.
  ASSERT_EQ(info.pages.size(), 4u);
  EXPECT_EQ(info.pages[1].first_position, 45);
  EXPECT_EQ(info.pages[1].num_rows, 16);
}

TEST(CacheFold, OpenTokensAreNotFolded) {
  FoldRun run("f32,open_rung=f32,fold=shipped,open=21", MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(100));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  run.ExpectRows({{0, 19, 4}, {76, 24, 1}}, 1e-5);
  ASSERT_OK(run.Feed(50));
  run.ExpectRows({{0, 19, 4}, {76, 74, 1}}, 1e-5);
}

TEST(CacheFold, AttentionSeesTheFoldedRows) {
  FoldRun run("fold=shipped,open_rung=f32,f32", MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(100));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  RowRandom random(5);
  const std::vector<float> query = random.Gaussians(size_t{kFoldHeads} * 2 * kFoldDim);
  std::vector<float> output(query.size());
  const AttendRequest request{.sequence = run.id, .queries = query.data(), .output = output.data()};
  ASSERT_OK(run.cache->Attend(1, {&request, 1}, {}));
  for (int head = 0; head < kFoldHeads * 2; ++head) {
    const std::vector<double> keys = run.Expected({0, 25, 4}, 1, head / 2, Part::kKey);
    const std::vector<double> values = run.Expected({0, 25, 4}, 1, head / 2, Part::kValue);
    std::vector<double> mixed(kFoldDim);
    double sum = 0;
    for (int row = 0; row < 25; ++row) {
      double dot = 0;
      for (int d = 0; d < kFoldDim; ++d)
        dot += query[static_cast<size_t>(head) * kFoldDim + d] *
               keys[static_cast<size_t>(row) * kFoldDim + d];
      const double weight = std::exp(dot / std::sqrt(kFoldDim));
      sum += weight;
      for (int d = 0; d < kFoldDim; ++d)
        mixed[static_cast<size_t>(d)] += weight * values[static_cast<size_t>(row) * kFoldDim + d];
    }
    for (int d = 0; d < kFoldDim; ++d) {
      EXPECT_NEAR(output[static_cast<size_t>(head) * kFoldDim + d],
                  mixed[static_cast<size_t>(d)] / sum, 1e-5);
    }
  }
}

TEST(CacheFold, PositionsRestartWhereThePlanSaysSo) {
  FoldRun run("fold=shipped,fold_positions=restart,open_rung=f32,f32",
              MakeCompressor({.factor = 5}));
  ASSERT_OK(run.Feed(48));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  EXPECT_EQ(*run.cache->NextPosition(run.id), 12);  // 9 groups and 3 tokens
  const SequenceInfo info = *run.cache->Describe(run.id, 0);
  EXPECT_EQ(*run.cache->TokensSeen(run.id), 48);
  EXPECT_EQ(info.live_rows, 12);
  ASSERT_OK(run.Feed(10));
  EXPECT_EQ(*run.cache->NextPosition(run.id), 22);
  run.ExpectRows({{0, 9, 5}, {45, 13, 1}}, 1e-5);
  EXPECT_EQ(run.cache->Stats().bytes_f16_seen, 58u * kFoldLayers * kFoldHeads * 2 * kFoldDim * 2);
}

TEST(CacheFold, HolesAreNotFoldedOver) {
  FoldRun run("fold=shipped,open_rung=f32,f32", MakeCompressor({.factor = 2, .min_groups = 1}));
  ASSERT_OK(run.Feed(40));
  ASSERT_OK(run.cache->RemoveRange(run.id, 7, 8));
  ASSERT_OK(run.cache->RemoveRange(run.id, 18, 30));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  run.ExpectRows({{0, 3, 2}, {6, 1, 1}, {8, 5, 2}, {30, 5, 2}}, 1e-5);
}

TEST(CacheFold, APromptEndsInAllLayersOrInNoneWhereverMemoryGivesOut) {
  const std::string plan = "q8_0,fold=shipped,open=0,exact=0";
  const auto compressor = MakeCompressor({.factor = 4, .has_image = false});
  FoldRun healthy(plan, compressor);
  ASSERT_OK(healthy.Feed(160));
  ASSERT_OK(healthy.cache->EndPrompt(healthy.id));
  ASSERT_OK(healthy.Feed(1));
  int put_off = 0;
  for (int calls = 0;; ++calls) {
    SCOPED_TRACE(calls);
    FailingExecutor executor;
    CacheOptions options;
    options.executor = &executor;
    FoldRun run(plan, compressor, options);
    ASSERT_OK(run.Feed(160));
    const std::string stats = StatsText(run.cache->Report());
    executor.calls_left = calls;
    bool thrown = false;
    try {
      EXPECT_OK(run.cache->EndPrompt(run.id));
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    executor.calls_left = -1;
    for (int layer = 0; layer < kFoldLayers; ++layer)
      EXPECT_EQ(run.cache->Describe(run.id, layer)->live_rows, thrown ? 160 : 40);
    if (thrown) {
      EXPECT_EQ(StatsText(run.cache->Report()), stats);
      ASSERT_OK(run.cache->EndPrompt(run.id));
    }
    // What was put off is made up for.
    ASSERT_OK(run.Feed(1));
    EXPECT_TRUE(ReadAll(*run.cache, run.id) == ReadAll(*healthy.cache, healthy.id));
    if (executor.failed == 0) break;
    put_off += thrown ? 0 : 1;
  }
  EXPECT_EQ(put_off, kFoldLayers);  // it was folded then, and had to age
}

TEST(CacheFold, NothingIsSealedDroppedOrPackedBeforeThePromptEnds) {
  FoldRun run("q8_0,fold=shipped,evict=h2o,ratio=3,sink=16,recent=32,trigger=64,pack=store,hot=0/0",
              MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(320));
  run.cache->WaitForPacking();
  const CacheReport before = run.cache->Report();
  EXPECT_EQ(before.pages_sealed + before.pages_dropped + before.lossless.pages_packed, 0u);
  EXPECT_EQ(before.retention.plans, 0u);
  ASSERT_OK(run.cache->EndPrompt(run.id));
  const CacheReport after = run.cache->Report();
  EXPECT_EQ(after.fold.tokens, 320u * kFoldLayers);
  EXPECT_EQ(after.fold.rows, 80u * kFoldLayers);
  EXPECT_EQ(after.pages_sealed, 5u * kFoldLayers);  // 80 rows in pages of 16, all of them settled
  EXPECT_EQ(after.fold.bytes_before, 4 * after.fold.bytes_after);
}

TEST(CacheFold, FoldedPagesAreQuantizedEvictedAndPackedInOnePlan) {
  FoldRun run(
      "q8_0,fold=shipped,evict=h2o,ratio=12,sink=16,recent=32,trigger=64,every=16,"
      "pack=store,hot=0/0,bootstrap=1,step=1",
      MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(640));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  ASSERT_OK(run.Feed(128));
  run.cache->WaitForPacking();
  const CacheReport stats = run.cache->Report();
  EXPECT_GT(stats.retention.pages_evicted, 0u);
  EXPECT_GT(stats.pages_sealed, 0u);
  EXPECT_GT(stats.lossless.pages_packed, 0u);
  EXPECT_GT(stats.retention.lossy_ratio, 9.0);
  // A folded row stands for all of its tokens.
  EXPECT_LE(stats.retention.keep_ratio, 1.0);
  EXPECT_OK(run.Feed(16));
}

TEST(CacheFold, ALayerThatFailsLeavesTheCacheAsItWas) {
  // Room for what the prompt takes, and for the folded pages of some layers only.
  const auto compressor = MakeCompressor({.factor = 2});
  FoldRun probe("fold=shipped,open_rung=f32,f32", compressor);
  ASSERT_OK(probe.Feed(320));
  const uint64_t prompt_bytes = probe.cache->Stats().bytes_held;
  const uint64_t page_bytes = prompt_bytes / (20 * kFoldLayers);
  int refused = 0;
  for (uint64_t pages = 0; pages <= 10 * kFoldLayers + 16; pages += 9) {
    CacheOptions options;
    options.max_bytes = prompt_bytes + pages * page_bytes;
    FoldRun run("fold=shipped,open_rung=f32,f32", compressor, options);
    ASSERT_OK(run.Feed(320));
    const std::string stats = StatsText(run.cache->Report());
    const std::vector<float> rows = ReadAll(*run.cache, run.id);
    const Status status = run.cache->EndPrompt(run.id);
    if (status.ok()) {
      run.ExpectRows({{0, 160, 2}}, 1e-5);
      continue;
    }
    ++refused;
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.ToString();
    EXPECT_NE(status.message().find("EndPrompt: fold, layer "), std::string::npos)
        << status.message();
    EXPECT_EQ(StatsText(run.cache->Report()), stats);
    EXPECT_EQ(ReadAll(*run.cache, run.id), rows);
    EXPECT_EQ(run.cache->Report().fold.prompts, 0u);
  }
  EXPECT_GT(refused, 2);
  EXPECT_LT(refused, 6);
}

TEST(CacheFold, TheSameBitsWithAnyNumberOfThreads) {
  const auto compressor = MakeCompressor({.factor = 5});
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    CacheOptions options;
    options.num_threads = threads;
    FoldRun run("q4_0r,fold=shipped,image=33,exact=0", compressor, options);
    ASSERT_OK(run.Feed(333));
    ASSERT_OK(run.cache->EndPrompt(run.id));
    const std::vector<float> rows = ReadAll(*run.cache, run.id);
    if (first.empty()) first = rows;
    EXPECT_EQ(rows, first);
  }
}

TEST(CacheFold, ForksShareFoldedPages) {
  FoldRun run("fold=shipped", MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(256));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  const uint64_t pages = run.cache->Stats().pages;
  const SequenceId fork = *run.cache->Fork(run.id);
  EXPECT_EQ(run.cache->Stats().pages, pages);
  ASSERT_OK(run.Feed(1));
  EXPECT_EQ(run.cache->Stats().pages, pages + kFoldLayers);
  EXPECT_EQ(run.cache->Describe(fork, 0)->live_rows, 64);
}

TEST(CacheFold, AForkBeforeThePromptEndsKeepsItsRows) {
  FoldRun run("fold=shipped", MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(250));
  const SequenceId fork = *run.cache->Fork(run.id);
  const std::vector<float> rows = ReadAll(*run.cache, fork);
  ASSERT_OK(run.cache->EndPrompt(run.id));
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 64);
  EXPECT_EQ(ReadAll(*run.cache, fork), rows);
  ASSERT_OK(run.cache->EndPrompt(fork));
  EXPECT_EQ(ReadAll(*run.cache, fork), ReadAll(*run.cache, run.id));
}

TEST(CacheFold, CutsGoBetweenFoldedRowsOnly) {
  FoldRun run("fold=shipped", MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(64));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  const Status inside = run.cache->Truncate(run.id, 30);
  EXPECT_EQ(inside.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(
      inside.message().find("position 30 lies inside a folded row of the page at 0 (4 tokens"),
      std::string::npos)
      << inside.message();
  ASSERT_OK(run.cache->Truncate(run.id, 28));
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 7);
  run.fed = 28;
  ASSERT_OK(run.Feed(20));
  run.ExpectRows({{0, 7, 4}, {28, 20, 1}}, 4e-3);
}

TEST(CacheFold, MemoryFallsByTheFactor) {
  for (const int factor : {2, 4, 5}) {
    CountingMemory memory;
    FoldRun run("fold=shipped", MakeCompressor({.factor = factor}), WithMemory(&memory));
    ASSERT_OK(run.Feed(1280));
    const uint64_t before = run.cache->Stats().bytes_held;
    ASSERT_OK(run.cache->EndPrompt(run.id));
    const CacheReport stats = run.cache->Report();
    const double ratio =
        static_cast<double>(stats.fold.bytes_before) / static_cast<double>(stats.fold.bytes_after);
    EXPECT_NEAR(ratio, factor, 0.04 * factor) << factor;
    EXPECT_LT(stats.bytes_held, before / static_cast<uint64_t>(factor) + (160 << 10));
    EXPECT_GT(memory.discards + memory.unmaps, 0);
  }
}

TEST(CacheFold, PlansThatCannotFoldAreRefusedByClause) {
  const auto refusal = [](const std::string& plan, std::shared_ptr<const Compressor> compressor) {
    CacheOptions options;
    options.plan = *ParsePlan(plan);
    options.compressor = std::move(compressor);
    return Cache::Create(FoldShape(), std::move(options)).status().message();
  };
  EXPECT_NE(refusal("fold=shipped", nullptr).find("no compressor comes with this model"),
            std::string::npos);
  EXPECT_NE(refusal("fold=/nowhere/a.bin", nullptr).find("/nowhere/a.bin"), std::string::npos);
  EXPECT_EQ(refusal("image=3", nullptr),
            "plan: layers 0-, clause \"image=3\": image= requires fold=");
  EXPECT_EQ(refusal("fold_positions=true", nullptr),
            "plan: layers 0-, clause \"fold_positions=true\": fold_positions= requires fold=");
  EXPECT_NE(refusal("1-: fold=shipped,fold_positions=restart", MakeCompressor())
                .find("layer 1 is not folded as layer 0 is"),
            std::string::npos);
  auto narrow = std::make_shared<const Compressor>(
      RandomCompressor({.num_layers = kFoldLayers, .head_dim = 16}));
  EXPECT_NE(refusal("fold=shipped", narrow).find("head_dim 16 is not 32, the model's key_dim"),
            std::string::npos);
  auto heads = MakeCompressor({.num_heads = 7});
  EXPECT_NE(refusal("fold=shipped", heads).find("num_heads 7 is not 2, the model's KV heads"),
            std::string::npos);
  auto layers =
      std::make_shared<const Compressor>(RandomCompressor({.num_layers = 9, .head_dim = kFoldDim}));
  EXPECT_NE(refusal("fold=shipped", layers).find("num_layers 9 is not 3, the model's layers"),
            std::string::npos);
}

TEST(CacheFold, ARuleMayFoldSomeLayersOnly) {
  FoldRun run("1-1: fold=shipped; 2-: q8_0", MakeCompressor({.factor = 4}));
  ASSERT_OK(run.Feed(128));
  ASSERT_OK(run.cache->EndPrompt(run.id));
  EXPECT_EQ(run.cache->Describe(run.id, 0)->live_rows, 128);
  EXPECT_EQ(run.cache->Describe(run.id, 1)->live_rows, 32);
  EXPECT_EQ(run.cache->Describe(run.id, 2)->live_rows, 128);
  ASSERT_OK(run.Feed(33));
  EXPECT_EQ(run.cache->Describe(run.id, 1)->live_rows, 65);
}

// The check of the method's own code: 32 layers and heads of 128, 11 image and 10 text tokens.
TEST(CacheFoldSlow, TheSizesOfTheOriginalsOwnCheck) {
  const int layers = 32, heads = 32, dim = 128, tokens = 21;
  CacheOptions options;
  options.compressor = std::make_shared<const Compressor>(
      RandomCompressor({.num_layers = layers, .num_heads = heads, .head_dim = dim, .factor = 5}));
  auto cache = MakeCache({layers, heads, 1, dim, dim, 64}, "fold=shipped,image=11", options);
  const SequenceId id = *cache->CreateSequence();
  // Rows that f16 holds exactly: the same for every layer, other ones for every head.
  std::vector<float> rows(static_cast<size_t>(tokens) * heads * dim);
  SplitMix64 random(3);
  for (float& value : rows) value = static_cast<float>(random.Next() >> 54) / 256 - 2;
  const StepEntry entry{id, tokens};
  ASSERT_OK(cache->BeginStep({&entry, 1}));
  for (int layer = 0; layer < layers; ++layer)
    ASSERT_OK(cache->Append(layer, id, {rows.data(), tokens}, {rows.data(), tokens}));
  ASSERT_OK(cache->EndStep());
  ASSERT_OK(cache->EndPrompt(id));
  double largest = 0;
  for (const int layer : {0, 31}) {
    for (int head = 0; head < heads; head += 5) {
      std::vector<float> mine;
      for (int token = 0; token < tokens; ++token) {
        const auto* row = rows.data() + (static_cast<ptrdiff_t>(token) * heads + head) * dim;
        mine.insert(mine.end(), row, row + dim);
      }
      for (const Part part : {Part::kKey, Part::kValue}) {
        const bool key = part == Part::kKey;
        const auto folded = [&](CompressorPart which, int first) {
          return FoldReference(options.compressor->Mlp(layer, which), options.compressor->dtype,
                               mine.data() + static_cast<ptrdiff_t>(first) * dim, 2);
        };
        std::vector<double> expected =
            folded(key ? CompressorPart::kImageKey : CompressorPart::kImageValue, 0);
        expected.insert(expected.end(), mine.begin() + 10 * dim, mine.begin() + 11 * dim);
        const std::vector<double> text =
            folded(key ? CompressorPart::kTextKey : CompressorPart::kTextValue, 11);
        expected.insert(expected.end(), text.begin(), text.end());
        std::vector<float> got(static_cast<size_t>(tokens) * dim);
        ASSERT_EQ(*cache->ReadRows(id, layer, head, part, 0, tokens, got.data()), 5);
        for (size_t i = 0; i < expected.size(); ++i)
          largest = std::max(largest, std::abs(got[i] - expected[i]));
      }
    }
  }
  EXPECT_LT(largest, 1e-3);
  EXPECT_GT(largest, 0);
}

}  // namespace cache_fold_test
}  // namespace varve
