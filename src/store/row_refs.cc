// The mode "row refs": each row of a part is a row of the dictionary, an earlier row of the part,
// or a literal. The literals follow.

#include <array>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "base/inline_buffer.h"
#include "store/literal_rows.h"
#include "store/pack_modes.h"

namespace varve::store {
namespace {

constexpr uint16_t kLiteral = 0xFFFF;
constexpr uint16_t kOwnRow = 0x8000;  // + an earlier row of the part

bool MayHaveRows(const PartShape& shape) {
  return IsFloat(shape.lane) && shape.layout != PartLayout::kKey;
}

size_t RowBytes(const PartShape& shape) {
  return shape.Bytes() / static_cast<size_t>(shape.num_rows);
}

struct Literals {
  std::vector<uint16_t> refs;   // [num_rows]
  std::vector<std::byte> rows;  // [num_literals][row bytes]
};

Literals FindLiterals(const PartView& part, const Dictionary* dictionary) {
  const size_t row_bytes = RowBytes(part.shape);
  Literals found;
  std::vector<std::byte> all(part.shape.Bytes());  // row by row
  std::unordered_multimap<uint64_t, int> earlier;
  for (int r = 0; r < part.shape.num_rows; ++r) {
    std::byte* row = all.data() + static_cast<size_t>(r) * row_bytes;
    GatherRow(part, r, row);
    const std::span<const std::byte> bytes(row, row_bytes);
    const int known = dictionary != nullptr ? dictionary->FindRow(bytes) : -1;
    uint16_t ref = known >= 0 ? static_cast<uint16_t>(known) : kLiteral;
    const uint64_t hash = known >= 0 ? 0 : HashRow(bytes);
    if (known < 0) {
      const auto [begin, end] = earlier.equal_range(hash);
      for (auto it = begin; it != end && ref == kLiteral; ++it) {
        const std::byte* other = all.data() + static_cast<size_t>(it->second) * row_bytes;
        if (std::memcmp(other, row, row_bytes) == 0) {
          ref = static_cast<uint16_t>(kOwnRow + it->second);
        }
      }
    }
    if (ref == kLiteral) {
      earlier.emplace(hash, r);
      AppendBytes(found.rows, bytes);
    }
    found.refs.push_back(ref);
  }
  return found;
}

}  // namespace

bool AppendRowRefs(const PartView& part, const Dictionary* dictionary, PackGoal goal, size_t limit,
                   std::vector<std::byte>& out) {
  if (!MayHaveRows(part.shape)) return false;
  const size_t row_bytes = RowBytes(part.shape);
  const Literals found = FindLiterals(part, dictionary);
  const size_t num_literals = found.rows.size() / row_bytes;
  // Pairs alone save about an eighth.
  if (8 * num_literals > 7 * static_cast<size_t>(part.shape.num_rows)) return false;
  const size_t before = out.size();
  AppendBytes(out, std::as_bytes(std::span(found.refs)));
  AppendLiteralRows(part.shape, found.rows, dictionary, goal, out);
  if (out.size() - before <= limit) return true;
  out.resize(before);
  return false;
}

Status ReadRowRefs(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                   const PartBuffer& out) {
  if (!MayHaveRows(shape)) return reader.Bad("mode row refs in a part that has no rows");
  const size_t row_bytes = RowBytes(shape);
  const size_t num_rows = static_cast<size_t>(shape.num_rows);
  std::span<const std::byte> ref_bytes;
  VARVE_RETURN_IF_ERROR(reader.Take("refs", 2 * num_rows, ref_bytes));
  std::array<uint16_t, kMaxPartRows> refs;
  std::memcpy(refs.data(), ref_bytes.data(), ref_bytes.size());
  const size_t known_rows = dictionary != nullptr ? dictionary->num_rows() : 0;
  size_t num_literals = 0;
  for (size_t r = 0; r < num_rows; ++r) {
    if (refs[r] == kLiteral) {
      ++num_literals;
    } else if (refs[r] >= kOwnRow) {
      if (static_cast<size_t>(refs[r] - kOwnRow) >= r) {
        return reader.Bad(fmt::format("row {} refers to row {}", r, refs[r] - kOwnRow));
      }
    } else if (refs[r] >= known_rows) {
      return reader.Bad(
          fmt::format("row {} refers to dictionary row {} >= {}", r, refs[r], known_rows));
    }
  }
  LiteralRows literals;
  VARVE_RETURN_IF_ERROR(literals.Read(reader, shape, num_literals, dictionary));
  // Literals that lie in pieces are put together first.
  const bool whole = literals.whole();
  InlineBuffer<std::byte, 8192> joined(whole ? 0 : num_literals * row_bytes);
  std::array<const std::byte*, kMaxPartRows> rows;
  size_t next = 0;
  for (size_t r = 0; r < num_rows; ++r) {
    if (refs[r] == kLiteral) {
      std::byte* copy = joined.data() + next * row_bytes;
      if (!whole) literals.Copy(next, copy);
      rows[r] = whole ? literals.At(next, 0, 0) : copy;
      ++next;
    } else if (refs[r] >= kOwnRow) {
      rows[r] = rows[static_cast<size_t>(refs[r] - kOwnRow)];
    } else if (dictionary != nullptr) {  // without one every reference was refused above
      rows[r] = dictionary->row(refs[r]).data();
    }
  }
  ScatterRows(shape, std::span(rows).first(num_rows), out);
  return Status();
}

}  // namespace varve::store
