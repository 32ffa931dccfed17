// The merging loop that both families of BPE share: neighbours are joined, the best pair first,
// until no pair is left that may be joined.
//
// Best is the lowest rank, among equals the leftmost: what sentencepiece and the Hugging Face
// tokenizers do. A heap of candidate pairs makes it O(n log n) for a word of n symbols; pairs that
// a merge has made stale stay in the heap and are skipped when they come up.

#ifndef VARVE_RUNTIME_TOKENIZER_PAIR_MERGE_H_
#define VARVE_RUNTIME_TOKENIZER_PAIR_MERGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace varve {

// A stretch of the word: bytes [begin, begin + bytes) and the token that it is, -1 if none.
struct MergeSymbol {
  uint32_t begin = 0;
  uint32_t bytes = 0;  // 0: merged into the one before it
  int32_t id = -1;
  int32_t previous = -1;
  int32_t next = -1;
};

struct PairMerge {
  uint32_t rank = 0;
  int32_t id = -1;  // -1: the pair may not be joined
};

// Texts are cut into words of at most this size before they come here, so that indices fit.
inline constexpr size_t kMaxWordBytes = size_t{1} << 30;

// Links the symbols and merges in place; those left are found from index 0 along `next`.
// `find(left, right)` gives the PairMerge of two neighbouring symbols.
template <typename FindPair>
void MergePairs(std::vector<MergeSymbol>& symbols, const FindPair& find) {
  struct Candidate {
    uint32_t rank;
    int32_t left;
    int32_t right;
    uint32_t bytes;  // of both: stale if the symbols have grown since
    int32_t id;
    // For a heap whose top is the best.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Candidate> heap;
  const auto candidate = [&](int32_t left, int32_t right) {
    const PairMerge merge = find(symbols[left], symbols[right]);
    if (merge.id < 0) return false;
    heap.push_back({merge.rank, left, right, symbols[left].bytes + symbols[right].bytes, merge.id});
    return true;
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
    if (i > 0) candidate(i - 1, i);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    const Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    MergeSymbol& left = symbols[best.left];
    MergeSymbol& right = symbols[best.right];
    if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != best.bytes) continue;
    left.bytes = best.bytes;
    left.id = best.id;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    if (left.previous >= 0 && candidate(left.previous, best.left)) {
      std::push_heap(heap.begin(), heap.end());
    }
    if (left.next >= 0 && candidate(best.left, left.next)) {
      std::push_heap(heap.begin(), heap.end());
    }
  }
}

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_PAIR_MERGE_H_
