#include "base/timer.h"

#include <gtest/gtest.h>

#include <thread>

namespace varve {
namespace timer_test {

TEST(Timer, CountsMicrosecondsAndSeconds) {
  const Timer timer;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const double us = timer.us();
  const double seconds = timer.seconds();
  EXPECT_GE(us, 2000);
  EXPECT_GE(seconds, us / 1e6);
  EXPECT_LT(seconds, us / 1e6 + 10);
}

TEST(Timer, LapsAddUpToTheWhole) {
  const Timer whole;
  Timer laps = whole;
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += laps.LapUs();
  // The last lap ended before the whole is read, the rest is in the next lap.
  const double rest = laps.us();
  EXPECT_LE(sum, whole.us());
  EXPECT_NEAR(sum + rest, whole.us(), 1e5);
  EXPECT_GT(sum, 0);
}

TEST(Timer, RestartForgetsWhatWas) {
  Timer timer;
  const Timer before = timer;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  timer.Restart();
  EXPECT_GE(before.us() - timer.us(), 2000);
}

}  // namespace timer_test
}  // namespace varve
