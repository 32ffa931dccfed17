#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "varve/plan.h"

namespace varve {
namespace plan_text_test {

LayerRule OnlyRule(std::string_view text) {
  Result<Plan> plan = ParsePlan(text);
  EXPECT_TRUE(plan.ok()) << text << ": " << plan.status().message();
  if (!plan.ok() || plan->rules.size() != 1) {
    ADD_FAILURE() << text << ": not one rule";
    return LayerRule();
  }
  return plan->rules[0];
}

std::string ErrorOf(std::string_view text) {
  Result<Plan> plan = ParsePlan(text);
  if (plan.ok()) return "(parsed)";
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  return plan.status().message();
}

TEST(PlanText, ABareRungSetsKAndV) {
  for (const char* rung : {"f32", "f16", "bf16", "q8_0", "q4_0", "q8_0r", "q4_0r", "t4", "t3", "t2",
                           "pq4", "pq3", "pq2", "pq64x8", "pq1x4", "pq512x12"}) {
    const LayerRule rule = OnlyRule(rung);
    EXPECT_EQ(rule.k, rung);
    EXPECT_EQ(rule.v, rung);
    EXPECT_EQ(rule, OnlyRule("kv=" + std::string(rung)));
    EXPECT_EQ(rule.first_layer, 0);
    EXPECT_EQ(rule.last_layer, -1);
  }
}

TEST(PlanText, EveryClauseStoresItsValue) {
  EXPECT_EQ(OnlyRule("k=q8_0").k, "q8_0");
  EXPECT_EQ(OnlyRule("v=q4_0r").v, "q4_0r");
  EXPECT_EQ(OnlyRule("open=128").open_tokens, 128);
  EXPECT_EQ(OnlyRule("open=0").open_tokens, 0);
  EXPECT_EQ(OnlyRule("open_rung=bf16").open_rung, "bf16");
  EXPECT_EQ(OnlyRule("exact=128").exact_tokens, 128);
  EXPECT_EQ(OnlyRule("window=4096").window_tokens, 4096);
  EXPECT_EQ(OnlyRule("evict=snapkv").evict, "snapkv");
  EXPECT_EQ(OnlyRule("ratio=3.5").ratio, 3.5);
  EXPECT_EQ(OnlyRule("budget=64MiB").budget_bytes, uint64_t{64} << 20);
  EXPECT_EQ(OnlyRule("sink=32").sink_tokens, 32);
  EXPECT_EQ(OnlyRule("recent=256").recent_tokens, 256);
  EXPECT_EQ(OnlyRule("trigger=512").trigger_tokens, 512);
  EXPECT_EQ(OnlyRule("every=16").every_tokens, 16);
  EXPECT_EQ(OnlyRule("ema=0.9").ema, 0.9);
  EXPECT_EQ(OnlyRule("pack=probe").pack, PackingMode::kProbe);
  EXPECT_EQ(OnlyRule("pack=full").pack, PackingMode::kFull);
  EXPECT_EQ(OnlyRule("pack=store").pack, PackingMode::kStore);
  EXPECT_EQ(OnlyRule("hot=16/256").hot_sink_tokens, 16);
  EXPECT_EQ(OnlyRule("hot=16/256").hot_recent_tokens, 256);
  EXPECT_EQ(OnlyRule("bootstrap=32").bootstrap_tokens, 32);
  EXPECT_EQ(OnlyRule("step=256").step_tokens, 256);
  EXPECT_EQ(OnlyRule("codebook=a/b.bin").codebook, "a/b.bin");
  EXPECT_EQ(OnlyRule("fold=c.bin").fold, "c.bin");
  EXPECT_EQ(OnlyRule("image=576").image_tokens, 576);
  EXPECT_EQ(OnlyRule("cross=q8_0").cross, "q8_0");
  EXPECT_EQ(OnlyRule("pq4,fallback=q4_0r").fallback, "q4_0r");
}

TEST(PlanText, WhatHoldsForTheWholeCacheIsASetting) {
  const auto settings = [](std::string_view text) { return ParsePlan(text)->settings; };
  EXPECT_EQ(settings("page=32").page_tokens, 32);
  EXPECT_EQ(settings("pack_threads=2").pack_threads, 2);
  EXPECT_EQ(settings("pack_queue=3").pack_queue, 3);
  EXPECT_EQ(settings("decode_cache=4").decode_cache_pages, 4);
  EXPECT_EQ(settings("prefetch=0").prefetch, 0);
  EXPECT_EQ(settings("spill=a/b").spill, "a/b");
  EXPECT_EQ(settings("spill_mib=5").spill_mib, 5);
  EXPECT_EQ(settings("keep_mib=6").keep_mib, 6);
  EXPECT_EQ(settings("fold_positions=true").fold_positions, FoldPositions::kTrue);
  EXPECT_EQ(settings("fold_positions=restart").fold_positions, FoldPositions::kRestart);
}

TEST(PlanText, TheFirstRuleSaysTheSettings) {
  EXPECT_EQ(PrintPlan(*ParsePlan("0: f16; 1-: q8_0,page=16")), "0: f16,page=16; 1-: q8_0");
  EXPECT_EQ(PrintPlanJson(*ParsePlan("0: f16; 1-: q8_0,page=16")),
            R"({"rules":[{"layers":"0","kv":"f16","page":16},{"layers":"1-","kv":"q8_0"}]})");
  // A rule that says nothing of its layers leaves none.
  EXPECT_EQ(PrintPlan(*ParsePlan("2-: page=16")), "page=16");
  EXPECT_EQ(PrintPlan(*ParsePlan("0-1: page=16; 2-: q8_0")), "2-: q8_0,page=16");
}

TEST(PlanText, OfSettingsThatAreCountsTheLargestHolds) {
  EXPECT_EQ(PrintPlan(*ParsePlan("0: pack=store,pack_threads=2,prefetch=1; 1: pack=full; "
                                 "2: pack=store,pack_threads=3,prefetch=0")),
            "0: pack=store,pack_threads=3,prefetch=1; 1: pack=full; 2: pack=store");
}

TEST(PlanText, WhatIsNotSaidStaysEmpty) {
  LayerRule expected;
  expected.open_tokens = 5;
  EXPECT_EQ(OnlyRule("open=5"), expected);
}

TEST(PlanText, BlankTextIsTheEmptyPlan) {
  EXPECT_EQ(*ParsePlan(""), Plan());
  EXPECT_EQ(*ParsePlan(" \t\n"), Plan());
  EXPECT_EQ(PrintPlan(Plan()), "");
  EXPECT_EQ(Plan().PageTokens(), 64);
}

TEST(PlanText, PageTokensAreThoseThatAnyRuleNames) {
  EXPECT_EQ(ParsePlan("q8_0")->PageTokens(), 64);
  EXPECT_EQ(ParsePlan("0: f16; 1-: q8_0,page=16")->PageTokens(), 16);
}

TEST(PlanText, AnAgeLadderEndsOpen) {
  const LayerRule rule = OnlyRule("age=f16:512/q8_0:4096/q4_0");
  const std::vector<AgeStep> expected = {{"f16", 512}, {"q8_0", 4096}, {"q4_0", -1}};
  EXPECT_EQ(rule.age, expected);
  EXPECT_EQ(OnlyRule("age=q8_0").age, (std::vector<AgeStep>{{"q8_0", -1}}));
  EXPECT_EQ(OnlyRule("k=f16,age=q8_0:64/q4_0").k, "f16");
  EXPECT_EQ(OnlyRule("age=q8_0:64/q4_0,v=f16,open=32").v, "f16");
}

TEST(PlanText, BudgetsTakeUnits) {
  EXPECT_EQ(OnlyRule("budget=1").budget_bytes, 1u);
  EXPECT_EQ(OnlyRule("budget=1000B").budget_bytes, 1000u);
  EXPECT_EQ(OnlyRule("budget=3 KiB").budget_bytes, 3072u);
  EXPECT_EQ(OnlyRule("budget=2GiB").budget_bytes, uint64_t{2} << 30);
  EXPECT_EQ(PrintPlan(*ParsePlan("budget=2048KiB")), "budget=2MiB");
  EXPECT_EQ(PrintPlan(*ParsePlan("budget=1000")), "budget=1000B");
}

TEST(PlanText, PresetsStandForClauses) {
  EXPECT_EQ(PrintPlan(*ParsePlan("h2o")), "evict=h2o");
  EXPECT_EQ(PrintPlan(*ParsePlan("pq")), "pq4");
  EXPECT_EQ(PrintPlan(*ParsePlan("store")), "pack=store");
  EXPECT_EQ(PrintPlan(*ParsePlan("balanced")), "t4");
  EXPECT_EQ(PrintPlan(*ParsePlan("0-1: f16; 2-: h2o,ratio=4")), "0-1: f16; 2-: evict=h2o,ratio=4");
}

TEST(PlanText, LayerRulesComeOutSorted) {
  Result<Plan> plan = ParsePlan("5-: q4_0; 0-1:f16 ; 3 : q8_0");
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->rules.size(), 3u);
  EXPECT_EQ(plan->rules[0].first_layer, 0);
  EXPECT_EQ(plan->rules[0].last_layer, 1);
  EXPECT_EQ(plan->rules[1].first_layer, 3);
  EXPECT_EQ(plan->rules[1].last_layer, 3);
  EXPECT_EQ(plan->rules[2].first_layer, 5);
  EXPECT_EQ(plan->rules[2].last_layer, -1);
  EXPECT_EQ(PrintPlan(*plan), "0-1: f16; 3: q8_0; 5-: q4_0");
}

TEST(PlanText, BlanksBetweenPartsDoNotMatter) {
  EXPECT_EQ(*ParsePlan("  0 - 1 : k = q8_0 , v=f16 ;\t2-:age = f16 : 64 / q4_0 ,hot= 1 / 2 "),
            *ParsePlan("0-1:k=q8_0,v=f16;2-:age=f16:64/q4_0,hot=1/2"));
}

TEST(PlanText, FileNamesMayBeQuoted) {
  EXPECT_EQ(OnlyRule(R"(codebook="a,b;c:d e.bin",open=3)").codebook, "a,b;c:d e.bin");
  EXPECT_EQ(OnlyRule(R"(codebook="say \"hi\" \\.bin")").codebook, R"(say "hi" \.bin)");
  EXPECT_EQ(OnlyRule(R"(fold=C:\x.bin)").fold, R"(C:\x.bin)");
  EXPECT_EQ(PrintPlan(*ParsePlan(R"(fold=C:\x.bin)")), R"(fold="C:\\x.bin")");
  EXPECT_EQ(PrintPlan(*ParsePlan(R"(fold="plain.bin")")), "fold=plain.bin");
}

TEST(PlanText, RungsAreKnownInAnySpelling) {
  EXPECT_EQ(OnlyRule("Q8_0").k, "q8_0");
  EXPECT_EQ(OnlyRule("k=FP16,v=PQ4").k, "f16");
  EXPECT_EQ(OnlyRule("k=FP16,v=PQ4").v, "pq4");
  EXPECT_EQ(OnlyRule("age=fp32:64/Q4_0R").age[1].rung, "q4_0r");
}

TEST(PlanTextError, ANearWordIsNamed) {
  EXPECT_TRUE(ErrorOf("evict=h20").ends_with("; did you mean \"h2o\"?"));
  EXPECT_TRUE(ErrorOf("opne=3").ends_with("; did you mean \"open\"?"));
  EXPECT_TRUE(ErrorOf("balancd").ends_with("; did you mean \"balanced\"?"));
}

// --- errors: each with its clause, column and reason ---

TEST(PlanTextError, PointsAtTheClause) {
  EXPECT_EQ(ErrorOf("v=f16,k=q9_0"),
            "plan: clause 2 \"k=q9_0\" (column 7): unknown rung \"q9_0\"; known: f32 f16 bf16 q8_0 "
            "q8_0r q4_0 q4_0r t4 t3 t2 pqMxB (B 4 to 12) pq4 pq3 pq2; did you mean \"q8_0\"?");
  EXPECT_EQ(ErrorOf("0-1: f16; 2-: q8_0,  open=x"),
            "plan: clause 3 \"open=x\" (column 22): open \"x\" is not an integer");
  EXPECT_EQ(ErrorOf("  q8_0 ,, f16"), "plan: clause 2 \"\" (column 9): empty clause");
}

TEST(PlanTextError, NamesTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"kv=pq", "unknown rung \"pq\""},
      {"pq0x8", "unknown rung \"pq0x8\""},
      {"pq513x8", "unknown rung \"pq513x8\""},
      {"pq64x3", "unknown rung \"pq64x3\""},
      {"pq64x13", "unknown rung \"pq64x13\""},
      {"pq064x8", "unknown rung \"pq064x8\""},
      {"pqx", "unknown rung \"pqx\""},
      {"k=", "unknown rung \"\""},
      {"speed=fast", "unknown clause \"speed\"; known: kv k v age open"},
      {"open=-1", "open -1 < 0"},
      {"open=1000000001", "open 1000000001 > 1000000000"},
      {"open=99999999999999999999", "open \"99999999999999999999\" > 1000000000"},
      {"open=-99999999999999999999", "open \"-99999999999999999999\" < 0"},
      {"open=1.5", "open \"1.5\" is not an integer"},
      {"open=", "open \"\" is not an integer"},
      {"open=+5", "open \"+5\" is not an integer"},
      {"open_rung=q8_0", "unknown open_rung \"q8_0\"; known: f32 f16 bf16"},
      {"page=48", "page 48 is none of 16, 32, 64, 128"},
      {"window=0", "window 0 < 1"},
      {"every=0", "every 0 < 1"},
      {"step=0", "step 0 < 1"},
      {"evict=lru", "unknown evict \"lru\"; known: h2o window random tova snapkv demote"},
      {"pack=zip", "unknown pack \"zip\"; known: probe full store"},
      {"ratio=1", "ratio 1 must be > 1"},
      {"ratio=inf", "ratio \"inf\" is not a finite number"},
      {"ratio=nan", "ratio \"nan\" is not a finite number"},
      {"ratio=1e999", "ratio \"1e999\" is not a finite number"},
      {"ema=1", "ema 1 must be >= 0 and < 1"},
      {"ema=-0.1", "ema -0.1 must be >= 0 and < 1"},
      {"budget=0", "budget 0 < 1 byte"},
      {"budget=64MB", "budget \"64MB\" is not an integer with B, KiB, MiB or GiB"},
      {"budget=1.5GiB", "is not an integer with B"},
      {"budget=99999999999GiB", "budget \"99999999999GiB\" > 1048576GiB"},
      {"budget=18446744073709551616", "> 1048576GiB"},
      {"hot=16", "hot \"16\" is not SINK/RECENT"},
      {"hot=16/x", "hot recent \"x\" is not an integer"},
      {"age=f16:512/q8_0:512/q4_0", "age bound 512 <= 512 before it; bounds must ascend"},
      {"age=f16:512/q8_0:100/q4_0", "age bound 100 <= 512"},
      {"age=f16:0/q4_0", "age bound 0 < 1"},
      {"age=f16:512", "the last stage \"f16:512\" has a bound"},
      {"age=f16/q4_0", "stage \"f16\" has no bound"},
      {"age=f16:512/", "unknown rung \"\""},
      {"age=q5:512/q4_0", "unknown rung \"q5\""},
      {"codebook=", "codebook names no file"},
      {"codebook=\"\"", "codebook names no file"},
      {"codebook=\"a", "the quoted file name has no closing quote"},
      {"codebook=a\"b\"", "a quote must open and close the whole file name"},
      {"codebook=\"a\"b", "a quote must open and close the whole file name"},
      {"codebook=\"a\\n\"", "a backslash in quotes must stand before a quote or a backslash"},
      {"fold=\xff\xfe", "is not UTF-8 text"},
  };
  for (const auto& [text, reason] : cases) {
    const std::string message = ErrorOf(text);
    EXPECT_TRUE(message.starts_with("plan: clause 1 ")) << message;
    EXPECT_NE(message.find("(column 1): "), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << text << " gave " << message;
  }
}

TEST(PlanTextError, ARepeatedClauseNamesBoth) {
  EXPECT_EQ(ErrorOf("open=3,open=3"),
            "plan: clause 2 \"open=3\" (column 8): repeats clause 1 \"open=3\" (column 1)");
  EXPECT_EQ(ErrorOf("q8_0,f16"),
            "plan: clause 2 \"f16\" (column 6): repeats clause 1 \"q8_0\" (column 1)");
  EXPECT_EQ(ErrorOf("h2o,evict=h2o"),
            "plan: clause 2 \"evict=h2o\" (column 5): repeats clause 1 \"h2o\" (column 1)");
}

TEST(PlanTextError, AConflictNamesBothClauses) {
  EXPECT_EQ(
      ErrorOf("ratio=3,budget=1MiB"),
      "plan: clause 2 \"budget=1MiB\" (column 9): conflicts with clause 1 \"ratio=3\" (column "
      "1): both set the memory to aim at");
  EXPECT_EQ(
      ErrorOf("k=f16,q8_0"),
      "plan: clause 2 \"q8_0\" (column 7): conflicts with clause 1 \"k=f16\" (column 1): both "
      "set the rung of K");
  EXPECT_NE(ErrorOf("kv=f16,v=f16").find("conflicts with clause 1 \"kv=f16\""), std::string::npos);
  EXPECT_NE(ErrorOf("age=f16:5/q8_0,q4_0").find("conflicts with clause 1"), std::string::npos);
  EXPECT_NE(ErrorOf("kv=q4_0,age=f16:5/q8_0").find("conflicts with clause 1"), std::string::npos);
  EXPECT_EQ(ErrorOf("idle=t3,idle_k=t2"),
            "plan: clause 2 \"idle_k=t2\" (column 9): conflicts with clause 1 \"idle=t3\" (column "
            "1): both set the idle rung of K");
  for (const char* idle : {"idle=t3", "idle_k=t3", "idle_v=t3"}) {
    for (const char* other : {"evict=h2o", "fold=shipped"}) {
      const std::string message = ErrorOf(std::string(idle) + "," + other);
      EXPECT_NE(message.find(other), std::string::npos) << message;
      EXPECT_NE(message.find(idle), std::string::npos) << message;
      EXPECT_TRUE(message.ends_with("; leave one of the two out")) << message;
    }
  }
  EXPECT_NE(ErrorOf("balanced,age=q8_0").find("conflicts with clause 1"), std::string::npos);
  for (const char* text :
       {"k=f16,v=f16,age=q8_0", "k=f16,age=q8_0,v=f16", "age=q8_0,v=f16,k=f16"}) {
    EXPECT_NE(ErrorOf(text).find("k= and v= leave nothing to age="), std::string::npos) << text;
  }
}

TEST(PlanTextError, LayerRangesAreChecked) {
  EXPECT_EQ(ErrorOf("f16; 2-1: q8_0"),
            "plan: layers \"2-1\" (column 6): last layer 1 < first layer 2");
  EXPECT_EQ(ErrorOf("x-1: q8_0"),
            "plan: layers \"x-1\" (column 1): first layer \"x\" is not an integer");
  EXPECT_EQ(ErrorOf("-1: q8_0"),
            "plan: layers \"-1\" (column 1): first layer \"\" is not an integer");
  EXPECT_EQ(ErrorOf("0-1024: q8_0"), "plan: layers \"0-1024\" (column 1): last layer 1024 > 1023");
  EXPECT_EQ(ErrorOf("0-1: f16; 1-: q8_0"),
            "plan: rule 2 (column 11): layers 1- overlap layers 0-1 of rule 1 (column 1)");
  EXPECT_EQ(ErrorOf("q8_0; 7: f16"),
            "plan: rule 2 (column 7): layers 7 overlap layers 0- of rule 1 (column 1)");
  EXPECT_EQ(ErrorOf("0-1:"), "plan: rule 1 (column 1): says nothing");
  EXPECT_EQ(ErrorOf("q8_0;"), "plan: rule 2 (column 6): says nothing");
}

TEST(PlanTextError, APlanHasOnePageSize) {
  EXPECT_EQ(
      ErrorOf("0: page=32; 1-: f16,page=64"),
      "plan: rule 2 (column 13): page=64 differs from page=32 of rule 1 (column 1); a plan has "
      "one page size");
  EXPECT_TRUE(ParsePlan("0: page=32; 1-: page=32").ok());
}

TEST(PlanTextError, SettingsOfTheCacheMustAgree) {
  EXPECT_EQ(ErrorOf("0: pack=store,spill=a; 1: q8_0; 2: pack=store,spill=b"),
            "plan: rule 3 (column 33): spill=b differs from spill=a of rule 1 (column 1); a cache "
            "has one");
  EXPECT_EQ(ErrorOf("0: fold,fold_positions=true; 1: fold,fold_positions=restart"),
            "plan: rule 2 (column 30): fold_positions=restart differs from fold_positions=true of "
            "rule 1 (column 1); positions are those of all layers");
}

TEST(PlanTextError, LongTextIsRefusedAndLongClausesAreCut) {
  EXPECT_EQ(ErrorOf(std::string(65537, ' ')), "plan: text of 65537 bytes > 65536");
  EXPECT_TRUE(ParsePlan(std::string(65536, ' ')).ok());
  EXPECT_LT(ErrorOf(std::string(60000, 'x')).size(), 400u);
  EXPECT_LT(ErrorOf("open=" + std::string(60000, '9')).size(), 400u);
  EXPECT_NE(ErrorOf("codebook=" + std::string(4097, 'x')).find("4097 bytes > 4096"),
            std::string::npos);
}

}  // namespace plan_text_test
}  // namespace varve
