#include "runtime/tokenizer/merge_table.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <string>

#include "base/quoted.h"

namespace varve {

namespace {

constexpr std::string_view kMerges = "tokenizer.ggml.merges";

Status BadMerge(size_t rank, std::string_view text, const std::string& why) {
  return InvalidArgument(fmt::format("{}: merge {} {}: {}", kMerges, rank, Quoted(text), why));
}

}  // namespace

MergeTable::MergeTable(size_t num_merges)
    : entries_(std::bit_ceil(2 * num_merges + 2)), mask_(entries_.size() - 1) {}

void MergeTable::Insert(int32_t left, int32_t right, PairMerge merge) {
  const uint64_t key = Key(left, right);
  size_t slot = Slot(key);
  while (entries_[slot].key != kEmpty && entries_[slot].key != key) slot = (slot + 1) & mask_;
  entries_[slot] = {key, merge};
}

Result<MergeTable> MergeTable::Load(const GgufFile& file, const Vocabulary& vocabulary) {
  VARVE_ASSIGN_OR_RETURN(std::vector<std::string_view> merges, file.GetStrings(kMerges));
  if (merges.size() > std::numeric_limits<uint32_t>::max() / 4) {
    return InvalidArgument(fmt::format("{}: {} merges > {}", kMerges, merges.size(),
                                       std::numeric_limits<uint32_t>::max() / 4));
  }
  MergeTable table(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view text = merges[rank];
    // Pieces have no blank in them (it is U+0120 in the alphabet), but a file may say otherwise: as
    // in llama.cpp the first blank after the first character divides.
    const size_t blank = text.find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == text.size()) {
      return BadMerge(rank, text, "is not two pieces with a blank between");
    }
    const std::string_view pieces[2] = {text.substr(0, blank), text.substr(blank + 1)};
    int32_t ids[2] = {-1, -1};
    for (int side = 0; side < 2; ++side) {
      ids[side] = vocabulary.Find(pieces[side]);
      if (ids[side] < 0) {
        return BadMerge(rank, text, fmt::format("{} is no token", Quoted(pieces[side])));
      }
    }
    joined.assign(pieces[0]);
    joined += pieces[1];
    const int32_t id = vocabulary.Find(joined);
    if (id < 0) return BadMerge(rank, text, fmt::format("{} is no token", Quoted(joined)));
    table.Insert(ids[0], ids[1], {static_cast<uint32_t>(rank), id});
  }
  return table;
}

}  // namespace varve
