// MergeTable: the merges of byte-level BPE, by the two tokens that are joined.
//
// A flat hash table with linear probing: encoding asks it twice per byte of text, mostly for pairs
// that are not there, and a node-based map answers those in two cache misses instead of one.
// Immutable after Load.

#ifndef VARVE_RUNTIME_TOKENIZER_MERGE_TABLE_H_
#define VARVE_RUNTIME_TOKENIZER_MERGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/pair_merge.h"
#include "runtime/tokenizer/vocabulary.h"
#include "varve/status.h"

namespace varve {

class MergeTable {
 public:
  // Reads tokenizer.ggml.merges, "LEFT RIGHT" each; their order is their rank. An entry without the
  // blank, or with a piece or a result that is no token, is an error that names it. Of two equal
  // entries the later one counts, as with the Hugging Face tokenizers.
  static Result<MergeTable> Load(const GgufFile& file, const Vocabulary& vocabulary);

  PairMerge Find(int32_t left, int32_t right) const {
    if (left < 0 || right < 0) return {};
    const uint64_t key = Key(left, right);
    for (size_t slot = Slot(key);; slot = (slot + 1) & mask_) {
      if (entries_[slot].key == key) return entries_[slot].merge;
      if (entries_[slot].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair: ids are below 2^31
  struct Entry {
    uint64_t key = kEmpty;
    PairMerge merge;
  };

  explicit MergeTable(size_t num_merges);
  void Insert(int32_t left, int32_t right, PairMerge merge);
  static uint64_t Key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
  }
  size_t Slot(uint64_t key) const { return ((key * 0x9E3779B97F4A7C15u) >> 32) & mask_; }

  std::vector<Entry> entries_;  // a power of two, at most half full
  size_t mask_ = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_MERGE_TABLE_H_
