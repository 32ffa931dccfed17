#include "cli/report/progress.h"

#include <gtest/gtest.h>

#include <cmath>

namespace varve::cli {
namespace progress_test {

TEST(Progress, DurationsReadLikeAClockAndRoundUp) {
  EXPECT_EQ(HumanDuration(0), "0:00");
  EXPECT_EQ(HumanDuration(-3), "0:00");
  EXPECT_EQ(HumanDuration(0.2), "0:01");
  EXPECT_EQ(HumanDuration(59.5), "1:00");
  EXPECT_EQ(HumanDuration(750), "12:30");
  EXPECT_EQ(HumanDuration(7500), "2:05:00");
  EXPECT_EQ(HumanDuration(std::nan("")), "0:00");
  EXPECT_EQ(HumanDuration(1e300), HumanDuration(1e12));
}

TEST(Progress, TheBarTellsShareAndTimeLeft) {
  EXPECT_EQ(RenderProgress("eval", 0.25, 10, "window 2 of 8", 100),
            "eval  [######..................]  25 %  0:30 left  window 2 of 8");
  EXPECT_EQ(RenderProgress("eval", 0, 10, "", 100), "eval  [........................]   0 %");
  EXPECT_EQ(RenderProgress("eval", 7, 10, "", 100),
            "eval  [########################] 100 %  0:00 left");
}

TEST(Progress, ANarrowTerminalCutsTheLine) {
  EXPECT_EQ(RenderProgress("eval", 0.5, 10, "note", 12), "eval  [#####");
  EXPECT_EQ(RenderProgress("eval", std::nan(""), 1, "", 8), "eval  [.");
}

TEST(Progress, AFileGetsNoControlCharacters) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Progress progress("eval", 100, file);
    for (int done = 0; done <= 100; ++done) progress.Update(done, "note");
    progress.Clear();
  }
  std::fflush(file);
  EXPECT_EQ(std::ftell(file), 0);  // a short run leaves a log alone
  std::fclose(file);
}

}  // namespace progress_test
}  // namespace varve::cli
