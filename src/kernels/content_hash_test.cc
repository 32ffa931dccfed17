#include "kernels/content_hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/content_hash-inl.h"

namespace varve {
namespace content_hash_test {

std::vector<unsigned char> MakeBytes(size_t count) {
  std::vector<unsigned char> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(i * i >> 3);
  return bytes;
}

TEST(ContentHash, IsXxh3) {
  // The values that the algorithm's authors give for no bytes.
  EXPECT_EQ(HashBytes("", 0), 0x2D06800538D394C2u);
  EXPECT_EQ(HashBytes("", 0), XXH3_64bits("", 0));
}

TEST(ContentHash, IsTheSameWithEveryInstructionSet) {
  for (const size_t count : {1u, 16u, 240u, 241u, 1024u, 1025u, 40000u}) {
    const std::vector<unsigned char> bytes = MakeBytes(count);
    EXPECT_EQ(HashBytes(bytes.data(), count), kFunctions.bytes(bytes.data(), count, 0)) << count;
    EXPECT_EQ(HashBytes(bytes.data(), count, 7), kFunctions.bytes(bytes.data(), count, 7));
    EXPECT_NE(HashBytes(bytes.data(), count, 7), HashBytes(bytes.data(), count));
  }
}

TEST(ContentHash, OfPiecesIsThatOfTheWhole) {
  const std::vector<unsigned char> bytes = MakeBytes(5 * 1000);
  std::vector<unsigned char> joined;
  for (size_t i = 0; i < 5; ++i) {
    joined.insert(joined.end(), bytes.begin() + static_cast<ptrdiff_t>(1000 * i),
                  bytes.begin() + static_cast<ptrdiff_t>(1000 * i + 600));
  }
  EXPECT_EQ(HashPieces(bytes.data(), 600, 1000, 5), HashBytes(joined.data(), joined.size()));
  EXPECT_EQ(HashPieces(bytes.data(), 1000, 1000, 5), HashBytes(bytes.data(), bytes.size()));
}

}  // namespace content_hash_test
}  // namespace varve
