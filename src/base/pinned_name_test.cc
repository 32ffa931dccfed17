#include "base/pinned_name.h"

#include <gtest/gtest.h>

#include <string>

namespace varve {
namespace pinned_name_test {

TEST(PinnedName, IsTheNameAndTheHash) {
  const Result<PinnedName> pinned = ParsePinnedName("a/b.bin#xxh3:00ff00ff00ff00ff");
  ASSERT_TRUE(pinned.ok()) << pinned.status().ToString();
  EXPECT_EQ(pinned->name, "a/b.bin");
  EXPECT_EQ(*pinned->hash, 0x00ff00ff00ff00ffu);
  EXPECT_EQ(HashText(*pinned->hash), "xxh3:00ff00ff00ff00ff");
  EXPECT_TRUE(pinned->Check(0x00ff00ff00ff00ffu).ok());
}

TEST(PinnedName, WithoutAHashAnyContentWillDo) {
  for (const char* name : {"a.bin", "a#1.bin", "#", "a#xxh64:12", ""}) {
    const Result<PinnedName> pinned = ParsePinnedName(name);
    ASSERT_TRUE(pinned.ok()) << name;
    EXPECT_EQ(pinned->name, name);
    EXPECT_FALSE(pinned->hash.has_value());
    EXPECT_TRUE(pinned->Check(7).ok());
  }
}

TEST(PinnedName, AnotherContentIsRefusedWithBothHashes) {
  const Result<PinnedName> pinned = ParsePinnedName("a.bin#xxh3:0000000000000001");
  const Status status = pinned->Check(0xabcdef);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "a.bin: its hash is xxh3:0000000000abcdef, not xxh3:0000000000000001 as was asked for");
}

TEST(PinnedName, AHashThatIsNoneIsRefused) {
  for (const char* text : {"xxh3:", "xxh3:12", "xxh3:00000000000000001", "xxh3:000000000000000g",
                           "md5:0000000000000001", "xxh3:-000000000000001", ""}) {
    EXPECT_EQ(ParseHash(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParsePinnedName("a.bin#xxh3:12").ok());
}

}  // namespace pinned_name_test
}  // namespace varve
