#include "cli/report/compare_report.h"

#include <gtest/gtest.h>

#include <limits>

namespace varve::cli {
namespace compare_report_test {

ComparedPlan Plan(std::string name, std::string text, double bytes_per_token, double kl) {
  ComparedPlan plan;
  plan.plan = std::move(name);
  plan.text = std::move(text);
  plan.memory.bytes = static_cast<uint64_t>(bytes_per_token * 100);
  plan.memory.bytes_per_token = bytes_per_token;
  plan.memory.ratio = 1024 / bytes_per_token;
  plan.kl_mean = kl;
  plan.same_best = 0.975;
  return plan;
}

Comparison Example() {
  Comparison comparison;
  comparison.model = "a<b>.gguf";
  comparison.prompt = "Once & \"twice\"";
  comparison.prompt_tokens = 90;
  comparison.scored_tokens = 40;
  comparison.command = "varve run -p '<x>'";
  comparison.plans = {Plan("f16", "The sea was calm.", 1024, 0),
                      Plan("q8_0", "The sea was calm.", 544, 2e-5),
                      Plan("k=q8_0,v=q4_0", "The sea was blue.", 416, 0.013)};
  comparison.plans[2].first_difference = 3;
  return comparison;
}

size_t Count(const std::string& text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(CompareReport, EscapesWhatCameFromOutside) {
  EXPECT_EQ(EscapeHtml("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(EscapeHtml("grün 語 🌍"), "grün 語 🌍");
  EXPECT_EQ(EscapeHtml("x\xFFy\xE8\xAA"), "x\uFFFDy\uFFFD\uFFFD");
  const std::string page = RenderComparison(Example());
  EXPECT_EQ(page.find("a<b>"), std::string::npos);
  EXPECT_NE(page.find("a&lt;b&gt;.gguf"), std::string::npos);
  EXPECT_NE(page.find("varve run -p &#39;&lt;x&gt;&#39;"), std::string::npos);
  EXPECT_NE(page.find("Once &amp; &quot;twice&quot;"), std::string::npos);
}

TEST(CompareReport, StandsAlone) {
  const std::string page = RenderComparison(Example());
  for (const char* outside : {"src=", "href=", "url(", "@import", "<script", "<link"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(page.find("name=\"viewport\""), std::string::npos);
}

TEST(CompareReport, MarksFromTheFirstDifferenceOn) {
  const std::string page = RenderComparison(Example());
  EXPECT_NE(page.find("The sea was <mark>blue.</mark>"), std::string::npos);
  EXPECT_EQ(Count(page, "<mark>"), 1u);
  Comparison accents = Example();
  accents.plans[0].text = "caf\u00E9";
  accents.plans[2].text = "caf\u00E8";  // differs in the second byte of a character
  EXPECT_NE(RenderComparison(accents).find("caf<mark>\u00E8</mark>"), std::string::npos);
}

TEST(CompareReport, CodebooksAreNamedWhereTheyAreNotCounted) {
  Comparison comparison = Example();
  EXPECT_EQ(ConstantsNote(comparison.plans), "");
  EXPECT_NE(RenderComparison(comparison).find("everything counted; "), std::string::npos);
  comparison.plans[1].use.codebook_bytes = 1536;
  EXPECT_NE(ConstantsNote(comparison.plans).find(comparison.plans[1].plan + " 1.50 KiB"),
            std::string::npos);
  const std::string page = RenderComparison(comparison);
  EXPECT_NE(page.find("everything counted but constants of the model; "), std::string::npos);
  EXPECT_NE(page.find("in no other figure: "), std::string::npos);
}

TEST(CompareReport, PicturesHaveARowPerPlan) {
  const std::vector<ComparedPlan> plans = Example().plans;
  const std::string memory = MemoryPicture(plans);
  EXPECT_EQ(Count(memory, "<rect"), 3u);
  EXPECT_NE(memory.find("width=\"300.0\""), std::string::npos);  // f16 is the longest
  EXPECT_NE(memory.find("544 B · 1.88×"), std::string::npos);
  const std::string quality = QualityPicture(plans);
  EXPECT_EQ(Count(quality, "<circle"), 2u);
  EXPECT_NE(quality.find("the reference"), std::string::npos);
  EXPECT_NE(quality.find("0.013 · 97.5 % same best"), std::string::npos);
}

// Divergences of zero or beyond all bounds still have a place on the axis.
TEST(CompareReport, ExtremeDivergencesStayInThePicture) {
  for (const double kl : {0.0, 1e-300, 1e-9, 50.0, std::numeric_limits<double>::infinity(),
                          std::numeric_limits<double>::quiet_NaN()}) {
    const std::string svg = QualityPicture({Plan("f16", "", 1024, 0), Plan("x", "", 1, kl)});
    EXPECT_EQ(svg.find("cx=\"nan\""), std::string::npos) << kl;
    EXPECT_EQ(svg.find("cx=\"inf\""), std::string::npos) << kl;
  }
}

TEST(CompareReport, LongPlansAreCutAtACodePoint) {
  const std::string name(100, 'q');
  const std::string svg = MemoryPicture({Plan("f16", "", 1024, 0), Plan(name, "", 10, 0)});
  EXPECT_EQ(svg.find(name), std::string::npos);
  EXPECT_NE(svg.find("qqq…</text>"), std::string::npos);
}

TEST(CompareReport, DivergencesReadWell) {
  EXPECT_EQ(HumanDivergence(0), "0");
  EXPECT_EQ(HumanDivergence(2.34e-5), "2.3e-05");
  EXPECT_EQ(HumanDivergence(0.00123), "0.0012");
  EXPECT_EQ(HumanDivergence(0.5), "0.50");
}

}  // namespace compare_report_test
}  // namespace varve::cli
