// Rows of a part that are in no dictionary. As pairs they lie in the layout of a page, so that they
// decode as quickly as one does; that needs an even number of them, and of an odd number the last
// is stored raw. As planes they lie row by row. If neither pays they are raw. Private to src/store.

#ifndef VARVE_STORE_LITERAL_ROWS_H_
#define VARVE_STORE_LITERAL_ROWS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "base/inline_buffer.h"
#include "store/dictionary.h"
#include "store/pack_goal.h"
#include "store/part_image.h"

namespace varve::store {

// `rows` is [num_rows][num_heads][head_dim], `shape` that of the part.
void AppendLiteralRows(const PartShape& shape, std::span<const std::byte> rows,
                       const Dictionary* dictionary, PackGoal goal, std::vector<std::byte>& out);

// Rows that were read.
class LiteralRows {
 public:
  // Reads to the end of `reader`.
  Status Read(ByteReader& reader, const PartShape& shape, size_t num_rows,
              const Dictionary* dictionary);

  // Channels of a row from `channel` on: run() of them lie side by side, and runs begin at
  // multiples of that.
  const std::byte* At(size_t row, int head, int channel) const;
  int run() const { return run_; }
  // Elements from a run of a row to its next one.
  size_t step(size_t row) const {
    const size_t even = static_cast<size_t>(shape_.num_rows);
    return static_cast<size_t>(run_) * (row < even ? even : 1);
  }
  // Whether rows lie one after the other.
  bool whole() const { return shape_.num_rows == 0; }
  // All heads.
  void Copy(size_t row, std::byte* out) const;

 private:
  PartShape shape_;  // of the pairs; num_rows: how many, 0 if they are planes or raw
  size_t row_bytes_ = 0;
  size_t value_bytes_ = 0;
  int run_ = 0;
  InlineBuffer<std::byte, 8192> rows_;  // the strips of the pairs, then row by row
};

}  // namespace varve::store

#endif  // VARVE_STORE_LITERAL_ROWS_H_
