// Page images: whole pages leave a cache as bytes and come into another one bit for bit; whatever
// the bytes are, nothing changes without every check.

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/cache/pq_cache_testing.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"
#include "varve/cache_file.h"

namespace varve {
namespace cache_page_images_test {

constexpr int64_t kPage = 16;  // PqShapeOfTests

RetentionRun RunOf(const std::string& plan) {
  static const CacheOptions options = [] {
    CacheOptions made = WithPqCodebook();
    made.num_threads = 2;
    return made;
  }();
  return RetentionRun(PqShapeOfTests(), plan, PqWork(), options);
}

std::vector<std::vector<std::byte>> ExportEach(Cache& cache, SequenceId id, int64_t end) {
  std::vector<std::vector<std::byte>> images;
  for (int64_t at = 0; at < end; at += kPage) {
    Result<std::vector<std::byte>> image = cache.ExportPages(id, at, at + kPage);
    EXPECT_OK(image.status());
    images.push_back(std::move(*image));
  }
  return images;
}

void ExpectSameOutputs(RetentionRun& a, SequenceId a_id, RetentionRun& b, SequenceId b_id) {
  for (int layer = 0; layer < 2; ++layer) {
    const std::vector<float>& outputs = a.outputs[{a_id.value, layer}];
    EXPECT_FALSE(outputs.empty());
    EXPECT_TRUE(outputs == (b.outputs[{b_id.value, layer}])) << "layer " << layer;
  }
  EXPECT_TRUE(ReadAll(*a.cache, a_id) == ReadAll(*b.cache, b_id));
}

class CachePageImagesPlans : public testing::TestWithParam<const char*> {};

// The pages were sealed, demoted or packed long ago: a fork that is cut there has the same ones.
TEST_P(CachePageImagesPlans, GoOnBitForBitInAnotherCache) {
  RetentionRun run = RunOf(GetParam());
  run.after_step = [&run] { run.cache->WaitForPacking(); };
  const SequenceId whole = *run.cache->CreateSequence();
  run.Feed(whole, 250);
  const auto images = ExportEach(*run.cache, whole, 9 * kPage);
  const SequenceId cut = *run.cache->Fork(whole);
  ASSERT_OK(run.cache->Truncate(cut, 9 * kPage));

  RetentionRun other = RunOf(GetParam());
  const SequenceId id = *other.cache->CreateSequence();
  for (const auto& image : images) ASSERT_OK(other.cache->ImportPages(id, image));
  EXPECT_EQ(*other.cache->NextPosition(id), 9 * kPage);
  EXPECT_TRUE(ReadAll(*other.cache, id) == ReadAll(*run.cache, cut));
  EXPECT_EQ(ExportEach(*other.cache, id, 9 * kPage), images);

  run.Feed(cut, 350, 7);
  other.Feed(id, 350, 7);
  ExpectSameOutputs(run, cut, other, id);
}

// Pages that leave at once are what a fresh computation would have by then, whatever falls due.
TEST_P(CachePageImagesPlans, ThatWereJustMadeEqualAFreshComputation) {
  if (std::string(GetParam()).find("age=") != std::string::npos) {
    GTEST_SKIP() << "stages that were passed by are not made";
  }
  RetentionRun run = RunOf(GetParam());
  const SequenceId made = *run.cache->CreateSequence();
  std::vector<std::vector<std::byte>> images;
  for (int64_t end = kPage; end <= 12 * kPage; end += kPage) {
    run.Feed(made, end);
    images.push_back(*run.cache->ExportPages(made, end - kPage, end));
  }
  run.outputs.clear();
  RetentionRun other = RunOf(GetParam());
  const SequenceId id = *other.cache->CreateSequence();
  for (const auto& image : images) ASSERT_OK(other.cache->ImportPages(id, image));
  run.Feed(made, 300, 5);
  other.Feed(id, 300, 5);
  ExpectSameOutputs(run, made, other, id);
}

TEST_P(CachePageImagesPlans, OfSeveralPagesAreOneImage) {
  RetentionRun run = RunOf(GetParam());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 200);
  const std::vector<std::byte> image = *run.cache->ExportPages(a, 2 * kPage, 8 * kPage);
  const std::vector<std::byte> first = *run.cache->ExportPages(a, 0, 2 * kPage);
  RetentionRun other = RunOf(GetParam());
  const SequenceId id = *other.cache->CreateSequence();
  ASSERT_OK(other.cache->ImportPages(id, first));
  ASSERT_OK(other.cache->ImportPages(id, image));
  EXPECT_EQ(*other.cache->NextPosition(id), 8 * kPage);
  EXPECT_EQ(*other.cache->ExportPages(id, 2 * kPage, 8 * kPage), image);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, CachePageImagesPlans,
    testing::Values("f16", "q8_0,exact=0", "q8_0,open=0,exact=0", "k=q8_0,v=t4,exact=0",
                    "t4,open=0,exact=0", "pq4,exact=0", "k=pq16x5,v=q4_0,open=0",
                    "age=f16:32/q8_0:96/t4,exact=0", "0: pq2,open=0,exact=0; 1: q8_0",
                    "f16,pack=store,hot=16/32,bootstrap=16,step=16",
                    "q8_0,open=0,exact=0,pack=store,hot=16/32,bootstrap=16,step=16",
                    "k=t4,v=pq4,open=0,pack=store,hot=16/32,bootstrap=16,step=32,exact=0"));

TEST(CachePageImages, AreFilesThatAnyReaderOpens) {
  const TempFolder folder;
  RetentionRun run = RunOf("q8_0,open=0,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 64);
  const std::vector<std::byte> image = *run.cache->ExportPages(a, 16, 48);
  WriteFileBytes(folder.File("image.varve"), image);
  EXPECT_OK(VerifyCacheFile(folder.File("image.varve")));
  // 2 layers of 2 pages of 2 heads: 34 bytes for 32 values, and little else.
  const size_t payload = 2 * 2 * 2 * 16 * (64 + 32) / 32 * 34;
  EXPECT_GT(image.size(), payload);
  EXPECT_LT(image.size(), payload + 1600);
}

TEST(CachePageImages, ThatAreSettledAreInTheirLastFormAlready) {
  for (const char* plan :
       {"q8_0,open=64,exact=0", "age=f16:32/q8_0:96/t4,exact=0", "pq4,open=64,exact=0"}) {
    SCOPED_TRACE(plan);
    RetentionRun run = RunOf(plan);
    const SequenceId a = *run.cache->CreateSequence();
    run.Feed(a, 16);
    const std::string stats = StatsText(run.cache->Report());
    const std::vector<std::byte> exact = *run.cache->ExportPages(a, 0, 16);
    const std::vector<std::byte> settled = *run.cache->ExportPages(a, 0, 16, {.settled = true});
    EXPECT_EQ(StatsText(run.cache->Report()), stats);
    EXPECT_EQ(*run.cache->ExportPages(a, 0, 16), exact);
    EXPECT_LT(settled.size(), exact.size() * 3 / 4);
    // What the page itself becomes with age, where no stage lies between.
    run.Feed(a, 200);
    if (std::string(plan).find("age=") == std::string::npos) {
      EXPECT_EQ(*run.cache->ExportPages(a, 0, 16), settled);
    }
    RetentionRun other = RunOf(plan);
    const SequenceId id = *other.cache->CreateSequence();
    ASSERT_OK(other.cache->ImportPages(id, settled));
    EXPECT_EQ(*other.cache->ExportPages(id, 0, 16), settled);
    other.Feed(id, 100, 3);
  }
}

TEST(CachePageImages, OfPackedPagesStandAlone) {
  const std::string plan = "f16,pack=store,hot=16/32,bootstrap=16,step=16";
  // V repeats every 40 tokens: rows for dictionaries.
  RetentionWork work(PqShapeOfTests(), 400);
  for (std::vector<float>& values : work.values) {
    for (size_t i = 40 * 64; i < values.size(); ++i) values[i] = values[i - 40 * 64];
  }
  RetentionRun run(PqShapeOfTests(), plan, work);
  run.after_step = [&run] { run.cache->WaitForPacking(); };
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 400);
  ASSERT_GT(run.cache->Report().lossless.dictionary_bytes, 0u);
  RetentionRun other(PqShapeOfTests(), plan, work);
  const SequenceId id = *other.cache->CreateSequence();
  for (const std::vector<std::byte>& image : ExportEach(*run.cache, a, 320)) {
    EXPECT_EQ(FindSection(image, SectionKind::kDictionaries).bytes, 0u);
    ASSERT_OK(other.cache->ImportPages(id, image));
  }
  EXPECT_GT(other.cache->Report().lossless.pages_now, 10u);
  ASSERT_OK(run.cache->Truncate(a, 320));
  EXPECT_TRUE(ReadAll(*run.cache, a) == ReadAll(*other.cache, id));
}

TEST(CachePageImages, ShareMemoryWithNobodyAndLeaveNothingBehind) {
  RetentionRun run = RunOf("q8_0,open=0,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 64);
  std::vector<std::byte> image = *run.cache->ExportPages(a, 0, 64);
  const SequenceId b = *run.cache->CreateSequence();
  ASSERT_OK(run.cache->ImportPages(b, image));
  std::fill(image.begin(), image.end(), std::byte{0});
  EXPECT_TRUE(ReadAll(*run.cache, a) == ReadAll(*run.cache, b));
  ASSERT_OK(run.cache->Free(a));
  ASSERT_OK(run.cache->Free(b));
  EXPECT_EQ(run.cache->Stats().pages, 0u);
}

// --- refusals ---

std::string ImportError(Cache& cache, SequenceId id, std::span<const std::byte> image) {
  const std::string stats = StatsText(cache.Report());
  const int64_t position = *cache.NextPosition(id);
  const Status status = cache.ImportPages(id, image);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(StatsText(cache.Report()), stats);
  EXPECT_EQ(*cache.NextPosition(id), position);
  return status.ToString();
}

class CachePageImagesDamage : public testing::TestWithParam<const char*> {
 protected:
  CachePageImagesDamage() : run_(RunOf(GetParam())), other_(RunOf(GetParam())) {
    run_.after_step = [this] { run_.cache->WaitForPacking(); };
    const SequenceId a = *run_.cache->CreateSequence();
    run_.Feed(a, 160);
    image_ = *run_.cache->ExportPages(a, 0, kPage);
    id_ = *other_.cache->CreateSequence();
  }
  RetentionRun run_;
  RetentionRun other_;
  SequenceId id_;
  std::vector<std::byte> image_;
};

TEST_P(CachePageImagesDamage, InAnyByteIsRefused) {
  for (size_t at = 0; at < image_.size(); at += 13 * kByteStride) {
    std::vector<std::byte> damaged = image_;
    damaged[at] ^= std::byte{static_cast<unsigned char>(1 << (at % 8))};
    ASSERT_FALSE(other_.cache->ImportPages(id_, damaged).ok()) << "byte " << at;
  }
  EXPECT_EQ(*other_.cache->NextPosition(id_), 0);
  EXPECT_EQ(other_.cache->Stats().pages, 0u);
  ASSERT_OK(other_.cache->ImportPages(id_, image_));
}

TEST_P(CachePageImagesDamage, OfTheLengthIsRefused) {
  for (size_t size = 0; size < image_.size(); size += 61 * kByteStride)
    ImportError(*other_.cache, id_, std::span(image_).first(size));
  std::vector<std::byte> longer = image_;
  longer.resize(longer.size() + 8);
  ImportError(*other_.cache, id_, longer);
}

// Checksums that are right say nothing about fields that are wrong.
TEST_P(CachePageImagesDamage, WithRightChecksumsIsRefusedOrHarmless) {
  const size_t head = GetRecord<FileHeader>(image_.data()).payload_offset;
  for (size_t at = 0; at < head; at += kByteStride) {
    std::vector<std::byte> damaged = image_;
    damaged[at] ^= std::byte{static_cast<unsigned char>(1 << (at % 8))};
    RepairChecksums(&damaged);
    const SequenceId id = *other_.cache->CreateSequence();
    if (other_.cache->ImportPages(id, damaged).ok()) {
      ASSERT_EQ(*other_.cache->NextPosition(id), kPage) << "byte " << at;
      ASSERT_NO_FATAL_FAILURE(other_.Feed(id, 40)) << "byte " << at;
    }
    ASSERT_OK(other_.cache->Free(id));
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, CachePageImagesDamage,
                         testing::Values("q8_0,open=0,exact=0", "t4,open=0,exact=0",
                                         "f16,pack=store,hot=0/32,bootstrap=16,step=16"));

TEST(CachePageImages, OfAnythingElseAreRefused) {
  RetentionRun run = RunOf("q8_0,open=0,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 64);
  const std::vector<std::byte> image = *run.cache->ExportPages(a, 0, 32);
  const auto refused_by = [&](RetentionRun other, const char* word) {
    const SequenceId id = *other.cache->CreateSequence();
    EXPECT_NE(ImportError(*other.cache, id, image).find(word), std::string::npos) << word;
  };
  refused_by(RunOf("q4_0,open=0,exact=0"), "plan");
  refused_by(RunOf("q8_0,open=16,exact=0"), "plan");
  CacheOptions named = WithPqCodebook();
  named.codebook = nullptr;
  named.model_fingerprint = 77;
  refused_by(RetentionRun(PqShapeOfTests(), "q8_0,open=0,exact=0", PqWork(), named),
             "model_fingerprint");
  CacheShape shape = PqShapeOfTests();
  shape.group_size = 1;
  refused_by(RetentionRun(shape, "q8_0,open=0,exact=0", PqWork()), "group_size");

  RetentionRun pq = RunOf("pq4,open=0,exact=0");
  const SequenceId b = *pq.cache->CreateSequence();
  pq.Feed(b, 64);
  RetentionRun other_book(PqShapeOfTests(), "pq4,open=0,exact=0", PqWork(),
                          WithPqCodebook(PqShapeOfTests(), 2));
  const SequenceId c = *other_book.cache->CreateSequence();
  EXPECT_NE(ImportError(*other_book.cache, c, *pq.cache->ExportPages(b, 0, 32)).find("codebook"),
            std::string::npos);
}

TEST(CachePageImages, GoWhereTheyBelong) {
  RetentionRun run = RunOf("q8_0,open=0,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 70);
  const std::vector<std::byte> second = *run.cache->ExportPages(a, 16, 32);
  const SequenceId b = *run.cache->CreateSequence();
  EXPECT_NE(ImportError(*run.cache, b, second).find("begin at 16"), std::string::npos);
  run.Feed(b, 15);
  ImportError(*run.cache, b, second);
  run.Feed(b, 16);
  EXPECT_OK(run.cache->ImportPages(b, second));
  // A sequence whose pages do not lie at multiples any more.
  const SequenceId c = *run.cache->Fork(a);
  ASSERT_OK(run.cache->Truncate(c, 10));
  run.Feed(c, 16);
  EXPECT_NE(ImportError(*run.cache, c, second).find("inside a page"), std::string::npos);
  const StepEntry entry = {a, 1};
  ASSERT_OK(run.cache->BeginStep({&entry, 1}));
  EXPECT_EQ(run.cache->ImportPages(b, second).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(run.cache->ExportPages(a, 0, 16).status().code(), StatusCode::kFailedPrecondition);
  run.cache->AbortStep();
}

TEST(CachePageImages, NeedWholePages) {
  RetentionRun run = RunOf("q8_0,open=0,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 70);
  const auto code = [&](int64_t begin, int64_t end) {
    return run.cache->ExportPages(a, begin, end).status().code();
  };
  EXPECT_EQ(code(0, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(-16, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(0, 17), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(64, 80), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(8, 24), StatusCode::kFailedPrecondition);
  ASSERT_OK(run.cache->RemoveRange(a, 20, 21));
  EXPECT_EQ(code(0, 16), StatusCode::kOk);
  EXPECT_EQ(code(16, 32), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(0, 64), StatusCode::kFailedPrecondition);
}

TEST(CachePageImages, AreNotMadeWherePoliciesChoosePages) {
  RetentionRun run =
      RunOf("q8_0,open=0,evict=h2o,ratio=6,sink=16,recent=32,trigger=64,every=16,exact=0");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 64);
  const Status status = run.cache->ExportPages(a, 0, 16).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("evict="), std::string::npos) << status.message();
}

TEST(CachePageImages, WithoutRoomChangeNothing) {
  RetentionRun run = RunOf("f16");
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 256);
  const std::vector<std::byte> image = *run.cache->ExportPages(a, 0, 256);
  CacheOptions options = WithPqCodebook();
  options.max_bytes = 64 << 10;
  RetentionRun small(PqShapeOfTests(), "f16", PqWork(), options);
  const SequenceId b = *small.cache->CreateSequence();
  EXPECT_NE(ImportError(*small.cache, b, image).find("out of memory"), std::string::npos);
  ASSERT_OK(small.cache->ImportPages(b, *run.cache->ExportPages(a, 0, 32)));
}

// The import makes an older page of every layer fall due.
TEST(CachePageImages, ArriveInAllLayersOrInNoneWhereverMemoryGivesOut) {
  const std::string plan = "age=f16:32/q8_0:96/t4,exact=0";
  RetentionRun run = RunOf(plan);
  const SequenceId made = *run.cache->CreateSequence();
  std::vector<std::vector<std::byte>> images;
  for (int64_t end = kPage; end <= 6 * kPage; end += kPage) {
    run.Feed(made, end);
    images.push_back(*run.cache->ExportPages(made, end - kPage, end));
  }
  run.Feed(made, 130, 1);
  int put_off = 0;
  for (int calls = 0;; ++calls) {
    SCOPED_TRACE(calls);
    FailingExecutor executor;
    CacheOptions options = WithPqCodebook();
    options.executor = &executor;
    RetentionRun other(PqShapeOfTests(), plan, PqWork(), options);
    const SequenceId id = *other.cache->CreateSequence();
    for (size_t i = 0; i < 5; ++i) ASSERT_OK(other.cache->ImportPages(id, images[i]));
    const std::string stats = StatsText(other.cache->Report());
    executor.calls_left = calls;
    bool thrown = false;
    try {
      EXPECT_OK(other.cache->ImportPages(id, images[5]));
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    executor.calls_left = -1;
    EXPECT_EQ(*other.cache->NextPosition(id), (thrown ? 5 : 6) * kPage);
    for (int layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(other.cache->Describe(id, layer)->live_rows, (thrown ? 5 : 6) * kPage);
    }
    if (thrown) {
      EXPECT_EQ(StatsText(other.cache->Report()), stats);
      ASSERT_OK(other.cache->ImportPages(id, images[5]));
    }
    // What was put off is made up for.
    ASSERT_NO_FATAL_FAILURE(other.Feed(id, 130, 1));
    EXPECT_TRUE(ReadAll(*other.cache, id) == ReadAll(*run.cache, made));
    if (executor.failed == 0) break;
    put_off += thrown ? 0 : 1;
  }
  EXPECT_EQ(put_off, 2);  // the pages were there, and one of a layer had to age
}

}  // namespace cache_page_images_test
}  // namespace varve
