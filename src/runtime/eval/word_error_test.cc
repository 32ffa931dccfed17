#include "runtime/eval/word_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace varve {
namespace word_error_test {
namespace {

EditCounts Counts(int64_t matches, int64_t substitutions, int64_t deletions, int64_t insertions) {
  return {matches, substitutions, deletions, insertions};
}

TEST(AlignWords, CountsEachKindOfError) {
  EXPECT_EQ(AlignWords("the cat sat", "the cat sat"), Counts(3, 0, 0, 0));
  EXPECT_EQ(AlignWords("the cat sat", "the dog sat"), Counts(2, 1, 0, 0));
  EXPECT_EQ(AlignWords("the cat sat", "cat sat"), Counts(2, 0, 1, 0));
  EXPECT_EQ(AlignWords("the cat sat", "the big cat sat down"), Counts(3, 0, 0, 2));
  EXPECT_EQ(AlignWords("a b c d", "b x d e"), Counts(2, 1, 1, 1));
}

TEST(AlignWords, TakesAnyBlanks) {
  EXPECT_EQ(AlignWords("  the\tcat \n", "the cat"), Counts(2, 0, 0, 0));
}

TEST(AlignWords, OfEmptyTextsHasARate) {
  EXPECT_EQ(AlignWords("", "").rate(), 0.0);
  EXPECT_EQ(AlignWords("", "so it goes"), Counts(0, 0, 0, 3));
  EXPECT_EQ(AlignWords("", "so it goes").rate(), 3.0);
  EXPECT_EQ(AlignWords("so it goes", "").rate(), 1.0);
}

TEST(AlignCharacters, CountsCharactersNotBytes) {
  EXPECT_EQ(AlignCharacters("café", "cafe"), Counts(3, 1, 0, 0));
  EXPECT_EQ(AlignCharacters("a  b", " a b "), Counts(3, 0, 0, 0));
  EXPECT_EQ(AlignCharacters("a b", "ab"), Counts(2, 0, 1, 0));
}

TEST(EditCounts, PoolUtterances) {
  EditCounts sum = AlignWords("one two three four", "one two three");
  sum += AlignWords("five", "six seven");
  EXPECT_EQ(sum, Counts(3, 1, 1, 1));
  EXPECT_DOUBLE_EQ(sum.rate(), 3.0 / 5.0);
}

// The distance by its recursive definition.
int64_t Distance(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return static_cast<int64_t>(a.size() + b.size());
  const std::string a1 = a.substr(1);
  const std::string b1 = b.substr(1);
  if (a[0] == b[0]) return Distance(a1, b1);
  return 1 + std::min({Distance(a1, b1), Distance(a1, b), Distance(a, b1)});
}

TEST(AlignCharacters, FindsTheFewestErrors) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string a(random() % 7, ' ');
    std::string b(random() % 7, ' ');
    for (char& c : a) c = static_cast<char>('a' + random() % 3);
    for (char& c : b) c = static_cast<char>('a' + random() % 3);
    const EditCounts counts = AlignCharacters(a, b);
    EXPECT_EQ(counts.errors(), Distance(a, b)) << a << " " << b;
    EXPECT_EQ(counts.reference_length(), static_cast<int64_t>(a.size()));
    EXPECT_EQ(counts.hypothesis_length(), static_cast<int64_t>(b.size()));
  }
}

}  // namespace
}  // namespace word_error_test
}  // namespace varve
