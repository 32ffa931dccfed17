// The payloads of the modes, each a function that appends and one that reads; private to src/store.
// The appending ones return false, with `out` as it was, if the payload would be longer than
// `limit`.

#ifndef VARVE_STORE_PACK_MODES_H_
#define VARVE_STORE_PACK_MODES_H_

#include <cstddef>
#include <vector>

#include "base/byte_io.h"
#include "store/dictionary.h"
#include "store/pack_goal.h"
#include "store/part_image.h"

namespace varve::store {

// `dictionary` gives the codes of the units; null: the payload brings them.
bool AppendPairs(const PartView& part, const Dictionary* dictionary, size_t limit,
                 std::vector<std::byte>& out);
Status ReadPairs(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                 const PartBuffer& out);

// Strips of 16-bit floats that can be cut into blocks; false for others.
bool AppendPlanes(const PartView& part, size_t limit, std::vector<std::byte>& out);
Status ReadPlanes(ByteReader& reader, const PartShape& shape, const PartBuffer& out);

// Also returns false if rows hardly repeat.
bool AppendRowRefs(const PartView& part, const Dictionary* dictionary, PackGoal goal, size_t limit,
                   std::vector<std::byte>& out);
Status ReadRowRefs(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                   const PartBuffer& out);

// Strips of K with a dictionary that knows how they turn; false without one, and if too few rows
// are in it. The misses are planes where the goal is kQuick, pairs otherwise.
bool AppendRotatedRows(const PartView& part, const Dictionary* dictionary, PackGoal goal,
                       size_t limit, std::vector<std::byte>& out);
Status ReadRotatedRows(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                       PackGoal goal, const PartBuffer& out);

bool AppendBlocks(const PartView& part, const Dictionary* dictionary, size_t limit,
                  std::vector<std::byte>& out);
Status ReadBlocks(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                  const PartBuffer& out);

bool AppendZstd(const PartView& part, size_t limit, std::vector<std::byte>& out);
Status ReadZstd(ByteReader& reader, const PartShape& shape, const PartBuffer& out);

}  // namespace varve::store

#endif  // VARVE_STORE_PACK_MODES_H_
