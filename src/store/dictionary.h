// Dictionary: what the pages of one layer and part have in common, so that a page need not carry
// it.
//
// It holds two things: the code of every unit for the exponent coder (exponent_coder.h), and rows
// that repeat. (In the first layer V depends on the token alone, so the same token brings the same
// row. K does too, but for its rotation: rows of K are kept with their positions and with how they
// turn, key_rotation.h.) A dictionary is made from some pages. It is immutable from then on, shared
// by reference and safe to use from any thread. Packed pages name it by its hash and cannot be
// unpacked without it; they never refer to each other.

#ifndef VARVE_STORE_DICTIONARY_H_
#define VARVE_STORE_DICTIONARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "store/exponent_coder.h"
#include "store/key_rotation.h"
#include "store/part_image.h"
#include "varve/status.h"

namespace varve::store {

struct DictionaryOptions {
  // Rows are kept if at least this share of the samples' rows came before, …
  double min_repeats = 0.1;
  // … those that came so often (of K: twice at least), …
  size_t min_count = 1;
  // … the most frequent ones, up to so many bytes.
  size_t max_row_bytes = size_t{16} << 20;
};

// What a dictionary holds beside its base.
struct DictionaryContent {
  std::vector<UnitCode> units;      // of the part's plane
  std::vector<UnitCode> row_units;  // of K with a rotation: of RowPartShape's plane
  std::optional<KeyRotation> rotation;
  std::vector<uint32_t> positions;  // [rows] of K
  std::vector<std::byte> rows;      // [rows][num_heads][head_dim]; of K by energy, ascending
};

class Dictionary {
 public:
  static constexpr size_t kMaxRows = 0x7FFF;

  // Checks every field; kDataLoss names what is wrong. `base` is the dictionary that this one
  // extends, null if it extends none; ParseBaseHash tells which one.
  static Result<std::shared_ptr<const Dictionary>> Parse(
      std::span<const std::byte> bytes, std::shared_ptr<const Dictionary> base = nullptr);
  // The hash of the base that Parse will need; 0: none. Reads the header alone.
  static Result<uint64_t> ParseBaseHash(std::span<const std::byte> bytes);
  // Does not write the rows of the base.
  std::vector<std::byte> Serialize() const;

  // Hash of the content; never 0.
  uint64_t hash() const { return hash_; }
  // Memory that it holds, without that of its base.
  size_t bytes() const;
  const std::shared_ptr<const Dictionary>& base() const { return base_; }

  // The shape of the parts that it serves; num_rows does not matter.
  const PartShape& shape() const { return shape_; }
  bool Serves(const PartShape& shape) const;

  // One code per unit of the part's plane; empty if it has no pairs. Strips of K are kTiles;
  // kChunks is then for rows that are stored as rows.
  DecodeUnits units(PairLayout layout) const;

  // Rows of all heads, [num_heads][head_dim]: those of the base, then its own.
  size_t num_rows() const { return base_rows_ + own_rows(); }
  std::span<const std::byte> row(size_t i) const {
    if (i < base_rows_) return base_->row(i);
    return std::span(rows_).subspan((i - base_rows_) * row_bytes_, row_bytes_);
  }
  // The row with these bytes, or -1.
  int FindRow(std::span<const std::byte> row) const;

  // Of K: how rows turn, null if none are here; the position of each; and the row that comes
  // closest to these bytes at that position, or -1 if none comes close.
  const KeyRotation* rotation() const;
  uint32_t position(size_t i) const {
    return i < base_rows_ ? base_->position(i) : positions_[i - base_rows_];
  }
  int FindRotatedRow(std::span<const std::byte> row, uint32_t position) const;

 private:
  friend Result<std::shared_ptr<const Dictionary>> BuildDictionary(std::span<const PartView>,
                                                                   const DictionaryOptions&);
  friend Result<std::shared_ptr<const Dictionary>> ExtendDictionary(
      std::shared_ptr<const Dictionary>, std::span<const PartView>, const DictionaryOptions&);
  Dictionary(const PartShape& shape, const DictionaryContent& content,
             std::shared_ptr<const Dictionary> base);
  size_t own_rows() const { return rows_.size() / row_bytes_; }
  std::vector<std::byte> Body() const;

  // A code in three bytes: dictionaries are small, and there are many.
  struct SmallUnit {
    uint8_t base[2];  // + 16
    uint8_t table;
  };
  static std::vector<SmallUnit> Shrink(const std::vector<UnitCode>& units);
  static std::vector<UnitCode> Grow(const std::vector<SmallUnit>& units);

  PartShape shape_;  // num_rows: 16, for what depends on it
  std::vector<SmallUnit> units_;
  std::vector<SmallUnit> row_units_;
  std::optional<KeyRotation> rotation_;  // of a base: there
  std::vector<uint32_t> positions_;
  std::vector<float> energies_;  // of the rows of K, ascending
  size_t row_bytes_ = 1;
  std::shared_ptr<const Dictionary> base_;
  size_t base_rows_ = 0;
  std::vector<std::byte> rows_;    // [own_rows()][row_bytes_]
  std::vector<uint32_t> buckets_;  // open addressing by hash: row + 1, or 0
  uint64_t hash_ = 0;
};

// Made from samples of the parts to come: same lane type, layout, heads and dimension. Takes a few
// milliseconds for a handful of pages. Fails without samples, or if they differ in shape.
Result<std::shared_ptr<const Dictionary>> BuildDictionary(
    std::span<const PartView> samples, const DictionaryOptions& options = DictionaryOptions());

// A dictionary that extends `base`: codes of the units chosen by `samples`, the rows of the base,
// and, if the base has rows at all, the rows of the samples that it does not have. Chains are meant
// to have tens of links, not thousands.
Result<std::shared_ptr<const Dictionary>> ExtendDictionary(
    std::shared_ptr<const Dictionary> base, std::span<const PartView> samples,
    const DictionaryOptions& options = DictionaryOptions());

// The shape in which rows of a part lie that are stored as rows: that of strips of V.
PartShape RowPartShape(const PartShape& shape, size_t num_rows);

// XXH3-64 of a row, for finding it again.
uint64_t HashRow(std::span<const std::byte> row);

}  // namespace varve::store

#endif  // VARVE_STORE_DICTIONARY_H_
