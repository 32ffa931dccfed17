// What a plan gets where a codebook cannot give what it asks for: an error that says why, or the
// fallback that it names, recorded.

#include "plan/plan_rungs.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cache/pq_cache_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace plan_rungs_test {

Result<std::unique_ptr<Cache>> Create(const std::string& plan, CacheOptions options,
                                      const CacheShape& shape = PqShapeOfTests()) {
  options.plan = *ParsePlan(plan);
  return Cache::Create(shape, std::move(options));
}

Status ErrorOf(const std::string& plan, const CacheOptions& options,
               const CacheShape& shape = PqShapeOfTests()) {
  return Create(plan, options, shape).status();
}

CacheOptions With(Codebook codebook) {
  CacheOptions options;
  options.codebook = std::make_shared<const Codebook>(std::move(codebook));
  return options;
}

Codebook TestCodebook() { return MakePqCodebook(PqShapeOfTests(), PqTablesOfTests()); }

// "0-1 K pq16x9 -> q8_0: why" for each.
std::vector<std::string> FallbackTexts(const Cache& cache) {
  std::vector<std::string> texts;
  const CacheReport stats = cache.Report();
  for (const FallbackUse& use : stats.fallbacks) {
    texts.push_back(std::to_string(use.first_layer) + "-" + std::to_string(use.last_layer) +
                    (use.part == Part::kKey ? " K " : " V ") + use.asked + " -> " + use.used +
                    ": " + use.reason);
  }
  return texts;
}

using Texts = std::vector<std::string>;

constexpr const char* kNoCodebook =
    "there is no codebook for this model; train one with `varve codebook train` and name it with "
    "codebook=FILE";

TEST(PlanRungs, WithoutACodebookAPqRungIsRefused) {
  const Status status = ErrorOf("1: k=pq4", {});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), std::string("plan: layers 1, clause \"k=pq4\": ") + kNoCodebook);
  EXPECT_NE(ErrorOf("age=f16:64/pq2", {}).message().find("clause \"age=f16:64/pq2\": there is no"),
            std::string::npos);
}

TEST(PlanRungs, ACodebookOfAnotherModelOrShapeIsRefused) {
  Codebook codebook = TestCodebook();
  codebook.model_fingerprint = 0xAB;
  codebook.model_name = "other";
  CacheOptions options = With(codebook);
  EXPECT_OK(ErrorOf("pq4", options));  // nobody said which model
  options.model_fingerprint = 0xAB;
  EXPECT_OK(ErrorOf("pq4", options));
  options.model_fingerprint = 0xCD;
  EXPECT_EQ(ErrorOf("k=pq4", options).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(ErrorOf("k=pq4", options)
                .message()
                .find("codebook: model_fingerprint 00000000000000ab (\"other\") is not "
                      "00000000000000cd, that of the model in use"),
            std::string::npos);
  EXPECT_OK(ErrorOf("q8_0", options));  // nobody needs it

  CacheShape shape = PqShapeOfTests();
  shape.num_layers = 3;
  EXPECT_NE(ErrorOf("pq4", With(TestCodebook()), shape)
                .message()
                .find("codebook: num_layers 2 is not 3, the model's"),
            std::string::npos);
  shape = PqShapeOfTests();
  shape.num_kv_heads = 4;
  EXPECT_NE(ErrorOf("pq4", With(TestCodebook()), shape)
                .message()
                .find("codebook: num_kv_heads 2 is not 4, the model's"),
            std::string::npos);
  shape = PqShapeOfTests();
  shape.key_dim = 128;
  EXPECT_NE(ErrorOf("k=pq32x8", With(TestCodebook()), shape)
                .message()
                .find("clause \"k=pq32x8\": rung pq32x8: the codebook's K rows have 64 values, not "
                      "128"),
            std::string::npos);
}

TEST(PlanRungs, ASizeThatIsNotThereIsRefusedWithThoseThatAre) {
  const Status status = ErrorOf("v=pq16x9", With(TestCodebook()));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "plan: layers 0-, clause \"v=pq16x9\": rung pq16x9: the codebook has no table of that "
            "size for V; it has pq16x8 pq16x4 pq16x6 pq8x10 pq16x10 pq4x7");
  // pq3 is there for V alone.
  EXPECT_OK(ErrorOf("v=pq3", With(TestCodebook())));
  EXPECT_NE(ErrorOf("pq3", With(TestCodebook())).message().find("no table of that size for K"),
            std::string::npos);
  EXPECT_NE(ErrorOf("k=pq24x8", With(TestCodebook()))
                .message()
                .find("rung pq24x8: 24 sub-spaces do not divide head_dim 64"),
            std::string::npos);
}

TEST(PlanRungs, ACodebookThatIsNoneIsRefused) {
  Codebook broken = TestCodebook();
  broken.tables[0].scales.pop_back();
  EXPECT_EQ(ErrorOf("pq4", With(broken)).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(ErrorOf("pq4", With(broken)).message().find("scales has 127 values, not 128"),
            std::string::npos)
      << ErrorOf("pq4", With(broken)).message();
}

TEST(PlanRungs, FilesOfCodebooksAreReadCheckedAndNamed) {
  const TempFolder folder;
  const std::string path = folder.File("words.codes");
  const auto message = [&](const std::string& plan, const CacheOptions& options = {}) {
    return ErrorOf(plan + ",codebook=" + path, options).message();
  };
  EXPECT_NE(message("pq4").find(path), std::string::npos);
  EXPECT_EQ(ErrorOf("pq4,codebook=" + path, {}).code(), StatusCode::kNotFound);
  ASSERT_OK(SaveCodebook(TestCodebook(), path));
  EXPECT_EQ(message("pq4"), "");
  EXPECT_EQ(message("k=pq4,v=f16"), "");
  // The file goes before the cache's own.
  Codebook empty = TestCodebook();
  empty.tables.resize(1);
  EXPECT_EQ(message("pq4", With(empty)), "");
  EXPECT_NE(ErrorOf("pq4", With(empty)).message(), "");
  // It must be of the model, too.
  Codebook of_model = TestCodebook();
  of_model.model_fingerprint = 5;
  ASSERT_OK(SaveCodebook(of_model, path));
  CacheOptions options;
  options.model_fingerprint = 6;
  EXPECT_NE(message("pq4", options).find(path + ": model_fingerprint 0000000000000005"),
            std::string::npos);
  // Means nothing where nothing needs it.
  EXPECT_EQ(message("q8_0"),
            "plan: layers 0-, clause \"codebook\": codebook= requires a pq rung in k=, v=, "
            "age= or idle=");
  // Damage.
  std::vector<std::byte> bytes = ReadFileBytes(path);
  bytes[bytes.size() / 2] ^= std::byte{1};
  WriteFileBytes(path, bytes);
  EXPECT_EQ(ErrorOf("pq4,codebook=" + path, {}).code(), StatusCode::kDataLoss);
  EXPECT_NE(message("pq4").find(path), std::string::npos);
}

TEST(PlanRungs, ALadderHoldsFourSizesOfCodesAtMost) {
  std::vector<PqTableOptions> tables;
  for (const int bits : {8, 7, 6, 5, 4}) {
    tables.push_back({Part::kKey, {32, bits}, CodebookGrain::kModel});
    tables.push_back({Part::kValue, {16, bits}, CodebookGrain::kModel});
  }
  CacheOptions options;
  options.codebook = SharePqCodebook(PqShapeOfTests(), tables);
  const std::string four = "open=0,k=f16,age=pq16x8:16/pq16x7:32/pq16x6:48/pq16x5";
  CacheTwin twin(PqShapeOfTests(), four, options);
  ASSERT_OK(twin.Grow(twin.Create(), 100));
  EXPECT_EQ(ErrorOf(four + ":64/pq16x4", options).message(),
            "plan: layers 0-: V has 5 different rungs like pq16x8; a layer holds 4");
  EXPECT_EQ(
      ErrorOf("open=0,v=f16,age=pq32x8:16/pq32x7:32/pq32x6:48/pq32x5:64/pq32x4", options).message(),
      "plan: layers 0-: K has 5 different rungs like pq32x8; a layer holds 4");
}

// --- fallback= ---

constexpr const char* kNoKeys9 =
    "rung pq32x9: the codebook has no table of that size for K; it has pq32x8 pq32x4 pq16x5 "
    "pq32x10 pq16x8";
constexpr const char* kNoValues9 =
    "rung pq16x9: the codebook has no table of that size for V; it has pq16x8 pq16x4 pq16x6 pq8x10 "
    "pq16x10 pq4x7";

TEST(PlanFallback, IsUsedExactlyWhereItIsNeeded) {
  const auto texts = [](const std::string& plan, const CacheOptions& options) {
    Result<std::unique_ptr<Cache>> cache = Create(plan, options);
    EXPECT_OK(cache.status());
    return cache.ok() ? FallbackTexts(**cache) : Texts{};
  };
  const CacheOptions options = With(TestCodebook());
  EXPECT_EQ(texts("pq4,fallback=q4_0r", options), Texts{});
  EXPECT_EQ(texts("k=pq32x9,v=pq4,fallback=q8_0", options),
            (Texts{std::string("0-1 K pq32x9 -> q8_0: ") + kNoKeys9}));
  EXPECT_EQ(texts("k=pq4,v=pq16x9,fallback=q8_0", options),
            (Texts{std::string("0-1 V pq16x9 -> q8_0: ") + kNoValues9}));
  EXPECT_EQ(texts("0: pq4; 1: k=pq32x9,v=pq16x9,fallback=q4_0", options),
            (Texts{std::string("1-1 K pq32x9 -> q4_0: ") + kNoKeys9,
                   std::string("1-1 V pq16x9 -> q4_0: ") + kNoValues9}));
  // In a ladder: the step that cannot run, for both parts.
  EXPECT_EQ(texts("age=f16:32/pq4:64/pq2,fallback=q4_0", options), Texts{});
  EXPECT_EQ(texts("k=f16,age=pq16x8:32/pq16x9,fallback=q4_0", options),
            (Texts{std::string("0-1 V pq16x9 -> q4_0: ") + kNoValues9}));
  // Without any codebook; each part by the name that the alias has for its rows.
  EXPECT_EQ(texts("pq4,fallback=q4_0r", {}),
            (Texts{std::string("0-1 K pq32x8 -> q4_0r: ") + kNoCodebook,
                   std::string("0-1 V pq16x8 -> q4_0r: ") + kNoCodebook}));
  EXPECT_EQ(texts("age=f16:32/pq4,fallback=q4_0r", {}),
            (Texts{std::string("0-1 K pq32x8 -> q4_0r: ") + kNoCodebook,
                   std::string("0-1 V pq16x8 -> q4_0r: ") + kNoCodebook}));
  // Where a codebook has not the first choice, another of its sizes will do.
  EXPECT_EQ(texts("k=pq32x9,fallback=pq4", options),
            (Texts{std::string("0-1 K pq32x9 -> pq32x8: ") + kNoKeys9}));
}

TEST(PlanFallback, RunsAsIfItHadBeenAskedFor) {
  // pq3 is there for V alone.
  for (const auto& [asked, same] : std::vector<std::pair<std::string, std::string>>{
           {"k=pq32x9,v=pq4,open=0,fallback=q8_0", "k=q8_0,v=pq4,open=0"},
           {"age=f16:32/pq3,fallback=q4_0", "age=f16:32/q4_0"},
           {"0: pq3,open=0,fallback=q4_0r; 1: pq4", "0: k=q4_0r,v=pq3,open=0; 1: pq4"}}) {
    SCOPED_TRACE(asked);
    RetentionRun a(PqShapeOfTests(), asked, PqWork(), With(TestCodebook()));
    RetentionRun b(PqShapeOfTests(), same, PqWork(), With(TestCodebook()));
    a.Feed(*a.cache->CreateSequence(), 150);
    b.Feed(*b.cache->CreateSequence(), 150);
    EXPECT_FALSE(a.cache->Report().fallbacks.empty());
    EXPECT_TRUE(b.cache->Report().fallbacks.empty());
    EXPECT_TRUE(a.outputs == b.outputs);
    EXPECT_EQ(StatsText(a.cache->Report()), StatsText(b.cache->Report()));
    EXPECT_EQ(a.cache->Stats().bytes_codebooks, b.cache->Stats().bytes_codebooks);
    // The plan is still what was asked for.
    EXPECT_EQ(PrintPlan(a.cache->plan()), PrintPlan(*ParsePlan(asked)));
  }
}

TEST(PlanFallback, TakesThePlaceOfAFileThatIsMissing) {
  const TempFolder folder;
  const std::string path = folder.File("none.codes");
  Result<std::unique_ptr<Cache>> cache =
      Create("pq4,codebook=" + path + ",fallback=q4_0", With(TestCodebook()));
  ASSERT_OK(cache.status());
  const std::vector<FallbackUse> uses = (*cache)->Report().fallbacks;
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_NE(uses[0].reason.find(path), std::string::npos);
  EXPECT_EQ((*cache)->Stats().bytes_codebooks, 0u);
}

TEST(PlanFallback, ThatCannotRunEitherIsAnErrorThatNamesBoth) {
  const Status status = ErrorOf("k=pq32x9,fallback=pq32x11", With(TestCodebook()));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            std::string("plan: layers 0-, clause \"k=pq32x9\": ") + kNoKeys9 +
                "; nor can fallback=pq32x11: rung pq32x11: the codebook has no table of that size "
                "for K; it has pq32x8 pq32x4 pq16x5 pq32x10 pq16x8");
  CacheShape shape = PqShapeOfTests();
  shape.key_dim = 80;  // not a multiple of 32
  EXPECT_NE(ErrorOf("k=pq4,fallback=q4_0", {}, shape).message().find("; nor can fallback=q4_0: "),
            std::string::npos);
}

// --- bytes ---

TEST(PlanRungs, BytesOfCodebooksAreThoseOfTablesInUseEachOnce) {
  const Codebook codebook = TestCodebook();
  const auto bytes = [&](const std::string& plan) {
    Result<std::unique_ptr<Cache>> cache = Create(plan, With(codebook));
    EXPECT_OK(cache.status());
    return cache.ok() ? (*cache)->Stats().bytes_codebooks : 0;
  };
  const auto table = [&](Part part, int subspaces, int bits) {
    const CodebookTable* found = codebook.Find(part, subspaces, bits);
    // Copies of a rotation for kernels: one to turn queries and keys; values also turn back.
    return found->bytes() + found->rotation.size() * 2 * (part == Part::kKey ? 1 : 2);
  };
  EXPECT_EQ(bytes("f16"), 0u);
  EXPECT_EQ(bytes("k=pq4"), table(Part::kKey, 32, 8));
  EXPECT_EQ(table(Part::kKey, 32, 8), 4u * (32 * 4 + 64 * 256));
  EXPECT_EQ(bytes("v=pq4"), table(Part::kValue, 16, 8));
  EXPECT_EQ(bytes("pq4"), table(Part::kKey, 32, 8) + table(Part::kValue, 16, 8));
  // The size of K's table and of V's are one rung; only what a plan uses counts.
  EXPECT_EQ(bytes("k=pq16x8"), table(Part::kKey, 16, 8));
  EXPECT_EQ(bytes("k=pq16x8,v=pq16x8"), table(Part::kKey, 16, 8) + table(Part::kValue, 16, 8));
  EXPECT_EQ(bytes("0: pq4; 1: k=pq4,v=pq3"),
            table(Part::kKey, 32, 8) + table(Part::kValue, 16, 8) + table(Part::kValue, 16, 6));
  const uint64_t pq2 = table(Part::kKey, 32, 4) + table(Part::kValue, 16, 4);
  EXPECT_EQ(bytes("age=pq4:64/pq2,open=0"),
            table(Part::kKey, 32, 8) + table(Part::kValue, 16, 8) + pq2);
  EXPECT_EQ(bytes("age=pq4:64/pq2"), pq2);  // 128 tokens stay open: no page is ever in pq4
  // pq3 is there for V alone: a ladder of both parts falls back whole, and uses no table.
  EXPECT_EQ(bytes("age=f16:64/pq3,fallback=q4_0"), 0u);
  EXPECT_EQ(bytes("age=f16:64/pq16x5,fallback=q4_0"), 0u);  // for K alone
}

}  // namespace plan_rungs_test
}  // namespace varve
