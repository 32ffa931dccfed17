#include "cli/lossless/lossless_report.h"

#include <gtest/gtest.h>

namespace varve::cli {
namespace lossless_report_test {

LosslessStats Stats() {
  LosslessStats stats;
  stats.layers = 2;
  stats.pages_packed = 10;
  stats.raw_bytes = 1000;
  stats.compressed_bytes = 800;
  return stats;
}

TEST(LosslessReport, TheRatioIsOfWhatIsPackedNowWithDictionaries) {
  LosslessStats stats = Stats();
  EXPECT_DOUBLE_EQ(stats.ratio(), 1.25);  // nothing kept: of what was tried,
  stats.dictionary_bytes = 200;
  EXPECT_DOUBLE_EQ(stats.ratio(), 1.0);  // with the dictionaries that it needs
  stats.pages_now = 5;
  stats.raw_bytes_now = 600;
  stats.packed_bytes_now = 390;
  stats.dictionary_bytes = 10;
  EXPECT_DOUBLE_EQ(stats.ratio(), 1.5);
  EXPECT_DOUBLE_EQ(LosslessStats().ratio(), 1.0);
}

TEST(LosslessReport, TheLineTellsWhatHappened) {
  EXPECT_EQ(LosslessLine(LosslessStats()), "");
  LosslessStats stats = Stats();
  EXPECT_NE(LosslessLine(stats).find("10 pages tried"), std::string::npos);
  stats.pages_now = 5;
  EXPECT_NE(LosslessLine(stats).find("5 pages packed"), std::string::npos);
  EXPECT_EQ(LosslessLine(stats).find("spill"), std::string::npos);
  stats.pages_spilled = 3;
  stats.spill_refused = 2;
  EXPECT_NE(LosslessLine(stats).find("3 pages spilled"), std::string::npos);
  EXPECT_NE(LosslessLine(stats).find("spill file full (2 times)"), std::string::npos);
  stats.pages_packed = 0;  // they came from a file
  EXPECT_NE(LosslessLine(stats).find("5 pages packed"), std::string::npos);
  stats.pages_now = 0;
  EXPECT_NE(LosslessLine(stats).find("nothing was cold"), std::string::npos);
}

}  // namespace lossless_report_test
}  // namespace varve::cli
