// The mode "rotated rows": a row of a strip of K is a row of the dictionary, turned on to its
// position and corrected by what that misses, or a literal. What is missed is a byte per element,
// mostly 0, 1 or -1 steps of the format, and goes through the pair coder. Elements that are missed
// by more than a byte holds are listed. The row that the dictionary took is a copy, with no misses.

#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/inline_buffer.h"
#include "store/exponent_coder.h"
#include "store/exponent_tables.h"
#include "store/literal_rows.h"
#include "store/pack_modes.h"
#include "store/plane_coder.h"
#include "store/rotated_row.h"

namespace varve::store {
namespace {

constexpr size_t kTileRows = 16;
static_assert(kMissBase == kRotationMissBias);
constexpr uint16_t kCopied = 0x8000;  // + a row of the dictionary

size_t RowWords(const PartShape& shape) {
  return static_cast<size_t>(shape.num_heads) * static_cast<size_t>(shape.head_dim);
}

// The misses of `num_rows` rows, as tiles: their order does not matter, they are all alike.
FloatPlane MissPlane(const PartShape& shape, size_t num_rows) {
  FloatPlane plane;
  plane.layout = PairLayout::kTiles;
  plane.num_heads = 1;
  plane.num_rows = kTileRows;
  plane.dim = static_cast<int>(num_rows * RowWords(shape) / kTileRows);
  plane.bytes = true;
  return plane;
}

constexpr UnitCode kMissCode = {{kRotationMissBias - kMissNibble, kRotationMissBias - kMissNibble},
                                kMissTable};

// An element whose miss is not a byte.
struct Listed {
  uint32_t element;  // among those of all rotated rows
  uint16_t word;
};
constexpr size_t kListedBytes = 6;

// What the rows of a part become.
struct Split {
  std::vector<uint8_t> is_known;  // [num_rows / 8] a bit per row
  std::vector<uint16_t> refs;     // of the rotated and copied rows
  std::vector<uint8_t> misses;    // [rotated rows][row]
  std::vector<Listed> listed;
  std::vector<std::byte> literals;  // [rows][row bytes]
};

Split SplitRows(const PartView& part, const Dictionary& dictionary) {
  const size_t row_words = RowWords(part.shape);
  Split split;
  split.is_known.resize(static_cast<size_t>(part.shape.num_rows) / 8);
  RotatedRow predicted(part.shape, *dictionary.rotation());
  std::vector<uint16_t> row(row_words);
  for (int r = 0; r < part.shape.num_rows; ++r) {
    GatherRow(part, r, reinterpret_cast<std::byte*>(row.data()));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(row));
    const uint32_t position = static_cast<uint32_t>(part.first_position + r);
    const int ref = dictionary.FindRotatedRow(bytes, position);
    if (ref < 0) {
      AppendBytes(split.literals, bytes);
      continue;
    }
    const size_t index = static_cast<size_t>(ref);
    split.is_known[static_cast<size_t>(r) / 8] |= static_cast<uint8_t>(1 << r % 8);
    if (std::memcmp(dictionary.row(index).data(), bytes.data(), bytes.size()) == 0) {
      split.refs.push_back(static_cast<uint16_t>(kCopied + ref));
      continue;
    }
    split.refs.push_back(static_cast<uint16_t>(ref));
    predicted.Predict(dictionary.row(index), position - dictionary.position(index));
    for (size_t i = 0; i < row_words; ++i) {
      const int miss = predicted.Miss(i, row[i]) + kRotationMissBias;
      const bool fits = miss >= 0 && miss <= 0xFF;
      if (!fits) split.listed.push_back({static_cast<uint32_t>(split.misses.size()), row[i]});
      split.misses.push_back(static_cast<uint8_t>(fits ? miss : kRotationMissBias));
    }
  }
  return split;
}

// What the rows are: kLiteral, a row of the dictionary, or kCopied and one.
struct Refs {
  static constexpr uint16_t kLiteral = 0xFFFF;
  std::array<uint16_t, kMaxPartRows> of_row;  // [num_rows]
  size_t rotated = 0;
  size_t literals = 0;
};

Status ReadRefs(ByteReader& reader, const PartShape& shape, const Dictionary& dictionary,
                Refs& refs) {
  const size_t num_rows = static_cast<size_t>(shape.num_rows);
  std::span<const std::byte> bits;
  VARVE_RETURN_IF_ERROR(reader.Take("known", num_rows / 8, bits));
  for (size_t r = 0; r < num_rows; ++r) {
    refs.of_row[r] = Refs::kLiteral;
    if ((static_cast<int>(bits[r / 8]) >> r % 8 & 1) == 0) {
      ++refs.literals;
      continue;
    }
    uint16_t& ref = refs.of_row[r];
    VARVE_RETURN_IF_ERROR(reader.Read("refs", ref));
    refs.rotated += ref < kCopied ? 1 : 0;
    if ((ref & ~kCopied) < static_cast<int>(dictionary.num_rows())) continue;
    return reader.Bad(fmt::format("row {} refers to dictionary row {} >= {}", r, ref & ~kCopied,
                                  dictionary.num_rows()));
  }
  return Status();
}

bool AppendMisses(const FloatPlane& plane, std::span<const uint8_t> misses, PackGoal goal,
                  size_t limit, std::vector<std::byte>& out) {
  const size_t size_at = out.size();
  AppendNumber(out, uint32_t{0});
  const SplitElements elements = {{misses.begin(), misses.end()}, {}};
  const bool appended =
      goal == PackGoal::kQuick
          ? AppendPlaneStream(plane, elements, {}, limit, out)
          : AppendPairStream(plane, elements, std::vector<UnitCode>(plane.units(), kMissCode),
                             limit, out);
  const uint32_t stream_bytes = static_cast<uint32_t>(out.size() - size_at - 4);
  std::memcpy(out.data() + size_at, &stream_bytes, 4);
  return appended;
}

Status ReadMisses(ByteReader& reader, const PartShape& shape, size_t num_rows, PackGoal goal,
                  uint16_t* misses) {
  uint32_t stream_bytes = 0;
  std::span<const std::byte> stream;
  VARVE_RETURN_IF_ERROR(reader.Read("miss_bytes", stream_bytes));
  VARVE_RETURN_IF_ERROR(reader.Take("misses", stream_bytes, stream));
  const FloatPlane plane = MissPlane(shape, num_rows);
  if (goal == PackGoal::kQuick) {
    ByteReader plane_reader("packed part: misses", stream);
    return ReadPlaneStream(plane_reader, plane, {}, reinterpret_cast<std::byte*>(misses), 0);
  }
  const DecodeUnits code = ExpandUnits(LaneType::kF32, std::span(&kMissCode, 1));
  const DecodeUnits units = {std::vector<uint32_t>(plane.units(), code.table[0]),
                             std::vector<uint32_t>(plane.units(), code.base[0])};
  ByteReader stream_reader("packed part: misses", stream);
  return ReadPairStream(stream_reader, plane, units, false, reinterpret_cast<std::byte*>(misses),
                        2 * num_rows * RowWords(shape));
}

Status PatchListed(ByteReader& reader, std::span<uint16_t> words) {
  uint16_t count = 0;
  std::span<const std::byte> bytes;
  VARVE_RETURN_IF_ERROR(reader.Read("num_listed", count));
  VARVE_RETURN_IF_ERROR(reader.Take("listed", count * kListedBytes, bytes));
  for (size_t i = 0; i < count; ++i) {
    Listed listed;
    std::memcpy(&listed.element, bytes.data() + i * kListedBytes, 4);
    std::memcpy(&listed.word, bytes.data() + i * kListedBytes + 4, 2);
    if (listed.element >= words.size()) {
      return reader.Bad(fmt::format("listed element {} >= {}", listed.element, words.size()));
    }
    words[listed.element] = listed.word;
  }
  return Status();
}

// All rows into the strips of a page.
void WriteTiles(const PartShape& shape, const Refs& refs, const Dictionary& dictionary,
                const uint16_t* rotated, const LiteralRows& literals, const PartBuffer& out) {
  const RotationKernels& kernels = ActiveRotationKernels();
  const size_t dim = static_cast<size_t>(shape.head_dim), row_words = RowWords(shape);
  const size_t run = literals.whole() ? dim : static_cast<size_t>(literals.run());
  size_t next_literal = 0;
  std::array<size_t, kTileRows> literal;         // its number
  std::array<const uint16_t*, kTileRows> whole;  // the row, if it is none
  std::array<const uint16_t*, kTileRows> rows;   // where the next run begins
  std::array<size_t, kTileRows> step;            // from run to run
  for (size_t first = 0; first < static_cast<size_t>(shape.num_rows); first += kTileRows) {
    for (size_t i = 0; i < kTileRows; ++i) {
      const uint16_t ref = refs.of_row[first + i];
      if (ref == Refs::kLiteral) {
        literal[i] = next_literal++;
        whole[i] = nullptr;
      } else if (ref >= kCopied) {
        const size_t row = static_cast<size_t>(ref - kCopied);
        whole[i] = reinterpret_cast<const uint16_t*>(dictionary.row(row).data());
      } else {
        whole[i] = rotated;
        rotated += row_words;
      }
    }
    for (int head = 0; head < shape.num_heads; ++head) {
      for (size_t i = 0; i < kTileRows; ++i) {
        const bool is_whole = whole[i] != nullptr;
        rows[i] = is_whole ? whole[i] + static_cast<size_t>(head) * dim
                           : reinterpret_cast<const uint16_t*>(literals.At(literal[i], head, 0));
        step[i] = is_whole ? run : literals.step(literal[i]);
      }
      auto* tile = reinterpret_cast<uint16_t*>(out.Strip(shape, head)) + first * dim;
      for (size_t channel = 0; channel < dim; channel += run) {
        kernels.fill_tile(rows.data(), static_cast<int>(run), tile + channel * kTileRows);
        for (size_t i = 0; i < kTileRows; ++i) rows[i] += step[i];
      }
    }
  }
}

}  // namespace

bool AppendRotatedRows(const PartView& part, const Dictionary* dictionary, PackGoal goal,
                       size_t limit, std::vector<std::byte>& out) {
  if (dictionary == nullptr || !MayRotate(part.shape) || part.first_position < 0) return false;
  if (dictionary->rotation() == nullptr) return false;
  const Split split = SplitRows(part, *dictionary);
  // Two streams cost what two rows save.
  if (split.refs.size() < 3 || split.listed.size() > 0xFFFF) return false;
  const FloatPlane plane = MissPlane(part.shape, split.misses.size() / RowWords(part.shape));
  if (goal == PackGoal::kQuick && !HasPlanes(plane)) return false;
  const size_t before = out.size();
  AppendNumber(out, static_cast<uint32_t>(part.first_position));
  AppendBytes(out, std::as_bytes(std::span(split.is_known)));
  AppendBytes(out, std::as_bytes(std::span(split.refs)));
  if (AppendMisses(plane, split.misses, goal, limit, out)) {
    AppendNumber(out, static_cast<uint16_t>(split.listed.size()));
    for (const Listed& listed : split.listed) {
      AppendNumber(out, listed.element);
      AppendNumber(out, listed.word);
    }
    AppendLiteralRows(part.shape, split.literals, dictionary, goal, out);
    if (out.size() - before <= limit) return true;
  }
  out.resize(before);
  return false;
}

Status ReadRotatedRows(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                       PackGoal goal, const PartBuffer& out) {
  if (!MayRotate(shape)) return reader.Bad("mode rotated rows in a part whose rows do not turn");
  if (dictionary == nullptr || dictionary->rotation() == nullptr) {
    return reader.Bad("mode rotated rows without a dictionary that has some");
  }
  uint32_t position = 0;
  Refs refs;
  VARVE_RETURN_IF_ERROR(reader.Read("first_position", position));
  VARVE_RETURN_IF_ERROR(ReadRefs(reader, shape, *dictionary, refs));
  const size_t row_words = RowWords(shape), words = refs.rotated * row_words;
  InlineBuffer<uint16_t, 4096> misses(words), rotated(words);
  VARVE_RETURN_IF_ERROR(ReadMisses(reader, shape, refs.rotated, goal, misses.data()));
  const RotatedRow restore(shape, *dictionary->rotation());
  size_t at = 0;
  for (const uint16_t ref : std::span(refs.of_row).first(static_cast<size_t>(shape.num_rows))) {
    if (ref < kCopied) {
      restore.Restore(dictionary->row(ref), position - dictionary->position(ref),
                      misses.data() + at, rotated.data() + at);
      at += row_words;
    }
    ++position;
  }
  VARVE_RETURN_IF_ERROR(PatchListed(reader, {rotated.data(), words}));
  LiteralRows literals;
  VARVE_RETURN_IF_ERROR(literals.Read(reader, shape, refs.literals, dictionary));
  WriteTiles(shape, refs, *dictionary, rotated.data(), literals, out);
  return Status();
}

}  // namespace varve::store
