// The payloads of the modes, each a function that appends and one that reads; private to src/store.
// The appending ones return false, with `out` as it was, if the payload would be longer than
// `limit`.

#ifndef VARVE_STORE_PACK_MODES_H_
#define VARVE_STORE_PACK_MODES_H_

#include <cstddef>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "store/dictionary.h"
#include "store/part_image.h"

namespace varve::store {

// `dictionary` gives the codes of the units; null: the payload brings them.
bool AppendPairs(const PartView& part, const Dictionary* dictionary, size_t limit,
                 std::vector<std::byte>& out);
Status ReadPairs(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                 const PartBuffer& out);

// Also returns false if rows hardly repeat.
bool AppendRowRefs(const PartView& part, const Dictionary* dictionary, size_t limit,
                   std::vector<std::byte>& out);
Status ReadRowRefs(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                   const PartBuffer& out);

// Strips of K with a dictionary that knows how they turn; false without one, and if too few rows
// are in it.
bool AppendRotatedRows(const PartView& part, const Dictionary* dictionary, size_t limit,
                       std::vector<std::byte>& out);
Status ReadRotatedRows(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                       const PartBuffer& out);

// Rows that are in no dictionary, [num_rows][num_heads][head_dim]: as pairs in the layout of a
// page, so that they decode as quickly as one does, if that pays. It needs an even number of them;
// of an odd number the last is stored raw. `shape` is that of the part.
void AppendLiteralRows(const PartShape& shape, std::span<const std::byte> rows,
                       const Dictionary* dictionary, std::vector<std::byte>& out);
// To the end of `reader`.
Status ReadLiteralRows(ByteReader& reader, const PartShape& shape, size_t num_rows,
                       const Dictionary* dictionary, std::vector<std::byte>& rows);

bool AppendBlocks(const PartView& part, const Dictionary* dictionary, size_t limit,
                  std::vector<std::byte>& out);
Status ReadBlocks(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                  const PartBuffer& out);

bool AppendZstd(const PartView& part, size_t limit, std::vector<std::byte>& out);
Status ReadZstd(ByteReader& reader, const PartShape& shape, const PartBuffer& out);

}  // namespace varve::store

#endif  // VARVE_STORE_PACK_MODES_H_
