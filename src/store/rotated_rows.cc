// The mode "rotated rows": a row of a strip of K is a row of the dictionary, turned on to its
// position and corrected by what that misses, or a literal. What is missed is a byte per element,
// mostly 0, 1 or -1 steps of the format, and goes through the pair coder. Elements that are missed
// by more than a byte holds are listed.

#include <array>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "store/exponent_coder.h"
#include "store/exponent_tables.h"
#include "store/literal_rows.h"
#include "store/pack_modes.h"
#include "store/rotated_row.h"

namespace varve::store {
namespace {

constexpr size_t kTileRows = 16;

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
  std::vector<uint8_t> is_rotated;  // [num_rows / 8] a bit per row
  std::vector<uint16_t> refs;       // of the rotated rows
  std::vector<uint8_t> misses;      // [refs][row]
  std::vector<Listed> listed;
  std::vector<std::byte> literals;  // [rows][row bytes]
};

Split SplitRows(const PartView& part, const Dictionary& dictionary) {
  const size_t row_words = RowWords(part.shape);
  Split split;
  split.is_rotated.resize(static_cast<size_t>(part.shape.num_rows) / 8);
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
    predicted.Predict(dictionary.row(index), position - dictionary.position(index));
    for (size_t i = 0; i < row_words; ++i) {
      const int miss = predicted.Miss(i, row[i]) + kRotationMissBias;
      const bool fits = miss >= 0 && miss <= 0xFF;
      if (!fits) split.listed.push_back({static_cast<uint32_t>(split.misses.size()), row[i]});
      split.misses.push_back(static_cast<uint8_t>(fits ? miss : kRotationMissBias));
    }
    split.is_rotated[static_cast<size_t>(r) / 8] |= static_cast<uint8_t>(1 << r % 8);
    split.refs.push_back(static_cast<uint16_t>(ref));
  }
  return split;
}

// Which rows are rotated, what they refer to, and how many they are.
struct Refs {
  std::vector<uint8_t> is_rotated;  // [num_rows] 0 or 1
  std::vector<uint16_t> rows;
};

Status ReadRefs(ByteReader& reader, const PartShape& shape, const Dictionary& dictionary,
                Refs& refs) {
  const size_t num_rows = static_cast<size_t>(shape.num_rows);
  std::span<const std::byte> bits, bytes;
  VARVE_RETURN_IF_ERROR(reader.Take("rotated", num_rows / 8, bits));
  refs.is_rotated.resize(num_rows);
  size_t count = 0;
  for (size_t r = 0; r < num_rows; ++r) {
    refs.is_rotated[r] = static_cast<uint8_t>(static_cast<int>(bits[r / 8]) >> r % 8 & 1);
    count += refs.is_rotated[r];
  }
  if (count == 0) return reader.Bad("no row is rotated");
  refs.rows.resize(count);
  VARVE_RETURN_IF_ERROR(reader.Take("refs", 2 * count, bytes));
  std::memcpy(refs.rows.data(), bytes.data(), bytes.size());
  for (const uint16_t row : refs.rows) {
    if (row < dictionary.num_rows()) continue;
    return reader.Bad(
        fmt::format("a row refers to dictionary row {} >= {}", row, dictionary.num_rows()));
  }
  return Status();
}

Status ReadMisses(ByteReader& reader, const PartShape& shape, size_t num_rows, uint16_t* misses) {
  uint32_t stream_bytes = 0;
  std::span<const std::byte> stream;
  VARVE_RETURN_IF_ERROR(reader.Read("miss_bytes", stream_bytes));
  VARVE_RETURN_IF_ERROR(reader.Take("misses", stream_bytes, stream));
  const FloatPlane plane = MissPlane(shape, num_rows);
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

// Rotated rows and literals into the strips of a page.
void WriteTiles(const PartShape& shape, const Refs& refs, const uint16_t* rotated,
                const LiteralRows& literals, const PartBuffer& out) {
  const RotationKernels& kernels = ActiveRotationKernels();
  const size_t dim = static_cast<size_t>(shape.head_dim), row_words = RowWords(shape);
  const size_t run = static_cast<size_t>(literals.run());
  size_t next_rotated = 0, next_literal = 0;
  std::array<size_t, kTileRows> index;
  std::array<const uint16_t*, kTileRows> rows;
  std::array<size_t, kTileRows> step;  // from run to run
  for (size_t first = 0; first < refs.is_rotated.size(); first += kTileRows) {
    for (size_t i = 0; i < kTileRows; ++i) {
      index[i] = refs.is_rotated[first + i] != 0 ? next_rotated++ : next_literal++;
    }
    for (int head = 0; head < shape.num_heads; ++head) {
      for (size_t i = 0; i < kTileRows; ++i) {
        const bool is_rotated = refs.is_rotated[first + i] != 0;
        rows[i] = is_rotated ? rotated + index[i] * row_words + static_cast<size_t>(head) * dim
                             : reinterpret_cast<const uint16_t*>(literals.At(index[i], head, 0));
        step[i] = is_rotated ? run : literals.step(index[i]);
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

bool AppendRotatedRows(const PartView& part, const Dictionary* dictionary, size_t limit,
                       std::vector<std::byte>& out) {
  if (dictionary == nullptr || !MayRotate(part.shape) || part.first_position < 0) return false;
  if (dictionary->rotation() == nullptr) return false;
  const Split split = SplitRows(part, *dictionary);
  // Two streams cost what two rows save.
  if (split.refs.size() < 3 || split.listed.size() > 0xFFFF) return false;
  const size_t before = out.size();
  AppendNumber(out, static_cast<uint32_t>(part.first_position));
  AppendBytes(out, std::as_bytes(std::span(split.is_rotated)));
  AppendBytes(out, std::as_bytes(std::span(split.refs)));
  const size_t size_at = out.size();
  AppendNumber(out, uint32_t{0});
  const FloatPlane plane = MissPlane(part.shape, split.refs.size());
  const std::vector<UnitCode> codes(plane.units(), kMissCode);
  const SplitElements elements = {split.misses, {}};
  if (AppendPairStream(plane, elements, codes, limit, out)) {
    const uint32_t stream_bytes = static_cast<uint32_t>(out.size() - size_at - 4);
    std::memcpy(out.data() + size_at, &stream_bytes, 4);
    AppendNumber(out, static_cast<uint16_t>(split.listed.size()));
    for (const Listed& listed : split.listed) {
      AppendNumber(out, listed.element);
      AppendNumber(out, listed.word);
    }
    AppendLiteralRows(part.shape, split.literals, dictionary, out);
    if (out.size() - before <= limit) return true;
  }
  out.resize(before);
  return false;
}

Status ReadRotatedRows(ByteReader& reader, const PartShape& shape, const Dictionary* dictionary,
                       const PartBuffer& out) {
  if (!MayRotate(shape)) return reader.Bad("mode rotated rows in a part whose rows do not turn");
  if (dictionary == nullptr || dictionary->rotation() == nullptr) {
    return reader.Bad("mode rotated rows without a dictionary that has some");
  }
  uint32_t position = 0;
  Refs refs;
  VARVE_RETURN_IF_ERROR(reader.Read("first_position", position));
  VARVE_RETURN_IF_ERROR(ReadRefs(reader, shape, *dictionary, refs));
  const size_t num_rows = refs.is_rotated.size(), row_words = RowWords(shape);
  const size_t words = refs.rows.size() * row_words;
  const auto misses = std::make_unique_for_overwrite<uint16_t[]>(words);
  const auto rotated = std::make_unique_for_overwrite<uint16_t[]>(words);
  VARVE_RETURN_IF_ERROR(ReadMisses(reader, shape, refs.rows.size(), misses.get()));
  const RotatedRow restore(shape, *dictionary->rotation());
  size_t next = 0;
  for (size_t r = 0; r < num_rows; ++r, ++position) {
    if (refs.is_rotated[r] == 0) continue;
    const size_t ref = refs.rows[next];
    const size_t at = next++ * row_words;
    restore.Restore(dictionary->row(ref), position - dictionary->position(ref), misses.get() + at,
                    rotated.get() + at);
  }
  VARVE_RETURN_IF_ERROR(PatchListed(reader, {rotated.get(), words}));
  LiteralRows literals;
  VARVE_RETURN_IF_ERROR(literals.Read(reader, shape, num_rows - refs.rows.size(), dictionary));
  WriteTiles(shape, refs, rotated.get(), literals, out);
  return Status();
}

}  // namespace varve::store
