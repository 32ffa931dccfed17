#include "runtime/stop_text.h"

#include <gtest/gtest.h>

namespace varve {
namespace stop_text_test {

// Everything shown of a text that comes byte by byte.
std::string ByteByByte(std::vector<std::string> stops, std::string_view text) {
  StopText stop(std::move(stops));
  std::string shown;
  for (const char c : text) shown += stop.Next(std::string_view(&c, 1));
  return shown + stop.Finish();
}

TEST(StopText, ShowsUpToTheFirstStop) {
  StopText stop({"###", "User:"});
  EXPECT_EQ(stop.Next("Hello"), "Hello");
  EXPECT_EQ(stop.Next(", you#"), ", you");
  EXPECT_EQ(stop.Next("#"), "");
  EXPECT_EQ(stop.Next("1 Us"), "##1 ");
  EXPECT_FALSE(stop.stopped());
  EXPECT_EQ(stop.Next("er: hi ###"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.Next("more"), "");
  EXPECT_EQ(stop.Finish(), "");
}

TEST(StopText, WhatWaitedIsShownAtTheEnd) { EXPECT_EQ(ByteByByte({"END"}, "the EN"), "the EN"); }

TEST(StopText, OverlappingBeginningsAreFound) {
  EXPECT_EQ(ByteByByte({"aab"}, "aaaab!"), "aa");
  EXPECT_EQ(ByteByByte({"abcx", "bc"}, "zabcx"), "za");
  EXPECT_EQ(ByteByByte({"\n\n"}, "one\ntwo\n\nthree"), "one\ntwo");
}

TEST(StopText, EmptyStopsAreNone) {
  EXPECT_EQ(ByteByByte({""}, "all of it"), "all of it");
  EXPECT_EQ(ByteByByte({}, "all of it"), "all of it");
}

}  // namespace stop_text_test
}  // namespace varve
