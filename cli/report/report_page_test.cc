#include "cli/report/report_page.h"

#include <gtest/gtest.h>

#include <cctype>

#include <fstream>
#include <sstream>

#include "cli/report/report_tables.h"
#include "cli/report/report_template.h"
#include "tests/gguf_testing.h"
#include "tests/test_data.h"

namespace varve::cli {
namespace report_page_test {

using Json = nlohmann::ordered_json;

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

size_t Count(const std::string& text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// What the page's script gets to read.
Json DocumentOf(const std::string& page) {
  const std::string_view open = "<script type=\"application/json\" id=\"varve-document\">";
  const size_t begin = page.find(open) + open.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

Json Nasty() {
  return {{"kind", "compare"},
          {"model", {{"name", "</script><script>alert(1)</script>"}}},
          {"command", "<!-- <script> ]]> & \" ' \\ {{script}} {{document}}"},
          {"plans", {{{"plan", "</noscript><img src=x>"}, {"text", "grün 語 🌍 \u2028"}}}}};
}

TEST(ReportPage, TheDocumentComesBackAsItWas) {
  const std::string page = RenderReport("A & <b>", Nasty());
  EXPECT_EQ(DocumentOf(page), Nasty());
  EXPECT_NE(page.find("<title>A &amp; &lt;b&gt;</title>"), std::string::npos);
}

TEST(ReportPage, TextsOpenAndCloseNothing) {
  const std::string page = RenderReport("</title><script>", Nasty());
  const std::string harmless = RenderReport("x", Json::object());
  for (const char* tag : {"<script", "</script", "<noscript", "</noscript", "<img", "<!--"}) {
    EXPECT_EQ(Count(page, tag), Count(harmless, tag)) << tag;
  }
  EXPECT_EQ(EscapeJson("</a>&"), "\"\\u003c/a\\u003e\\u0026\"");
}

TEST(ReportPage, BytesThatAreNoTextAreReplaced) {
  const std::string page = RenderReport("x\xFF", {{"command", "x\xFFy"}});
  EXPECT_EQ(DocumentOf(page)["command"], "x\uFFFDy");
  EXPECT_NE(page.find("<title>x\uFFFD</title>"), std::string::npos);
}

TEST(ReportPage, StandsAlone) {
  const std::string page = RenderReport("x", Json::object());
  for (const char* outside : {"src=", "href=\"http", "@import", "<link", "https:", "fetch("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  for (const char* part : {"title", "style", "tables", "document", "script"}) {
    EXPECT_EQ(page.find(std::string("{{") + part + "}}"), std::string::npos) << part;
  }
  EXPECT_EQ(Count(page, "http://"), 1u);  // the name of SVG, which nobody opens
  EXPECT_NE(page.find("Content-Security-Policy\" content=\"default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(page.find("prefers-reduced-motion"), std::string::npos);
  EXPECT_NE(page.find("name=\"viewport\""), std::string::npos);
}

// tools/check_report.py sees them drawn; here, that none was left out of the program.
TEST(ReportPage, EverySectionIsInTheScript) {
  std::string script = ReportScript();
  std::erase_if(script,
                [](unsigned char c) { return std::isspace(c) != 0; });  // however it is broken
  for (const char* id : {"gates", "frontier", "plans", "memory", "speed", "tokens", "trace",
                         "lossless", "texts", "spread", "origin"}) {
    EXPECT_EQ(Count(script, std::string("addSection('") + id + "'"), 1u) << id;
  }
  EXPECT_EQ(script.find("innerHTML"), std::string::npos);  // texts go in as texts
  EXPECT_EQ(script.find("</script"), std::string::npos);
  EXPECT_EQ(ReportStyle().find("</style"), std::string_view::npos);
}

TEST(ReportPage, WithoutScriptThereAreTables) {
  const Json document = {
      {"command", "varve <run>"},
      {"plans",
       {{{"plan", "f16"}, {"ratio", 1.0}, {"text", std::string(200, 'x')}},
        {{"plan", "q8_0"}, {"kl_mean", nullptr}}}},
      {"cases", {{{"plan", "h2o"}, {"gates", {{{"gate", "speed"}, {"status", "failed"}}}}}}}};
  const std::string page = RenderReport("x", document);
  const size_t begin = page.find("<noscript>");
  const std::string tables = page.substr(begin, page.find("</noscript>") - begin);
  EXPECT_NE(tables.find("<dt>command</dt><dd>varve &lt;run&gt;</dd>"), std::string::npos);
  EXPECT_NE(tables.find("<th>plan</th><th>ratio</th><th>kl mean</th>"), std::string::npos);
  EXPECT_NE(tables.find("<tr><td>q8_0</td><td></td><td>–</td></tr>"), std::string::npos);
  EXPECT_NE(tables.find("<h3>plans f16: text</h3>\n<p class=\"story\">xxx"), std::string::npos);
  EXPECT_NE(tables.find("<h3>cases h2o: gates</h3>"), std::string::npos);
  EXPECT_NE(tables.find("<td>speed</td><td>failed</td>"), std::string::npos);
}

TEST(ReportPage, TheSummaryOfAGateIsADocument) {
  const Json summary = Json::parse(ContentOf(TestDataPath("report/gate_summary.json")));
  const std::string page = RenderReport("Gate", summary);
  EXPECT_EQ(DocumentOf(page), summary);
  // Also without script each failure has its reason.
  EXPECT_NE(page.find("<td>1.281 &lt; 1.300: layers 0 and 1 pack worse than asked</td>"),
            std::string::npos);
}

TEST(ReportPage, EscapesForHtml) {
  EXPECT_EQ(EscapeHtml("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(EscapeHtml("grün 語 🌍"), "grün 語 🌍");
  EXPECT_EQ(EscapeHtml("x\xFFy\xE8\xAA"), "x\uFFFDy\uFFFD");
}

TEST(ReportPage, AFileAppearsWholeOrNotAtAll) {
  const TempFolder folder;
  const std::string path = folder.File("report.html");
  ASSERT_TRUE(WriteReport(path, "first", Json::object()).ok());
  ASSERT_TRUE(WriteReport(path, "second", Json::object()).ok());
  EXPECT_NE(ContentOf(path).find("<title>second</title>"), std::string::npos);
  EXPECT_EQ(WriteReport(folder.File("absent/x.html"), "x", Json::object()).code(),
            StatusCode::kIoError);
  // A device is not replaced by a file.
  EXPECT_EQ(WriteReport("/dev/full", "x", Json::object()).code(), StatusCode::kIoError);
  EXPECT_TRUE(WriteReport("/dev/null", "x", Json::object()).ok());
}

}  // namespace report_page_test
}  // namespace varve::cli
