#include "base/quoted.h"

#include <gtest/gtest.h>

namespace varve {
namespace quoted_test {

TEST(Quoted, IsSafeForATerminal) {
  EXPECT_EQ(Printable("Grüße 世界 🌍", 20), "Grüße 世界 🌍");
  EXPECT_EQ(Printable("a\nb\x1b[0m\x7f", 20), "a\\nb\\x1b[0m\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b\xff\xe4\xb8", 20), "\\xc2\\x9b\\xff\\xe4\\xb8");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Quoted, CountsCharactersNotBytes) {
  EXPECT_EQ(Printable("世界🌍", 2), "世界…");
  EXPECT_EQ(Printable("世界", 2), "世界");
  EXPECT_EQ(Quoted(std::string(90, 'n')), "\"" + std::string(80, 'n') + "…\"");
  EXPECT_EQ(Quoted(std::string(80, 'n')), "\"" + std::string(80, 'n') + "\"");
  EXPECT_EQ(Quoted(""), "\"\"");
}

TEST(Quoted, OnlyTheOuterQuotesAreQuotes) {
  EXPECT_EQ(Quoted(R"(a "b" \x00)"), R"("a \x22b\x22 \x5cx00")");
  EXPECT_EQ(Printable(R"(a "b" \)"), R"(a "b" \)");
}

}  // namespace quoted_test
}  // namespace varve
