#include "runtime/tokenizer/pair_merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace varve {
namespace pair_merge_test {

using Pair = std::pair<int32_t, int32_t>;

// The definition: look at all neighbours, join the leftmost of the lowest rank, begin again.
std::vector<int32_t> MergeSlowly(std::vector<int32_t> ids,
                                 const std::map<Pair, PairMerge>& merges) {
  while (true) {
    size_t best = ids.size();
    uint32_t best_rank = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merges.find({ids[i], ids[i + 1]});
      if (found == merges.end()) continue;
      if (best == ids.size() || found->second.rank < best_rank) {
        best = i;
        best_rank = found->second.rank;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

std::vector<int32_t> Merge(const std::vector<int32_t>& ids,
                           const std::map<Pair, PairMerge>& merges) {
  std::vector<MergeSymbol> symbols;
  for (size_t i = 0; i < ids.size(); ++i) {
    MergeSymbol symbol;
    symbol.begin = static_cast<uint32_t>(i);
    symbol.bytes = 1;
    symbol.id = ids[i];
    symbols.push_back(symbol);
  }
  MergePairs(symbols, [&](const MergeSymbol& left, const MergeSymbol& right) -> PairMerge {
    EXPECT_EQ(left.begin + left.bytes, right.begin);
    const auto found = merges.find({left.id, right.id});
    return found == merges.end() ? PairMerge{} : found->second;
  });
  std::vector<int32_t> merged;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) merged.push_back(symbols[i].id);
  return merged;
}

TEST(PairMerge, DoesWhatTheDefinitionSays) {
  std::mt19937 engine(11);
  for (int round = 0; round < 300; ++round) {
    // Ranks repeat (equal scores) and need not grow with the length of what they make.
    std::map<Pair, PairMerge> merges;
    const int num_bytes = 2 + static_cast<int>(engine() % 3);
    int32_t num_tokens = num_bytes;
    for (int i = 0; i < 12; ++i) {
      const Pair pair(engine() % num_tokens, engine() % num_tokens);
      if (merges.count(pair) != 0) continue;
      merges[pair] = {static_cast<uint32_t>(engine() % 8), num_tokens++};
    }
    std::vector<int32_t> ids(1 + engine() % 60);
    for (int32_t& id : ids) id = static_cast<int32_t>(engine() % num_bytes);
    EXPECT_EQ(Merge(ids, merges), MergeSlowly(ids, merges)) << round;
  }
}

TEST(PairMerge, LeavesSymbolsWithoutATokenAlone) {
  const std::map<Pair, PairMerge> merges = {{{0, 0}, {0, 1}}};
  EXPECT_EQ(Merge({0, 0, -1, 0, 0, 0}, merges), (std::vector<int32_t>{1, -1, 1, 0}));
  EXPECT_EQ(Merge({-1}, merges), std::vector<int32_t>{-1});
}

}  // namespace pair_merge_test
}  // namespace varve
