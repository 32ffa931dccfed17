// PartShape and PartView: the K or the V bytes of one page, as the lossless codec sees them.
//
// An image is one strip per KV head, in the layout of the rung (docs/format/pages.md); strips may
// lie apart, as in a page, where K and V of a head alternate. A view owns nothing.

#ifndef VARVE_STORE_PART_IMAGE_H_
#define VARVE_STORE_PART_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/lane_type.h"
#include "varve/status.h"

namespace varve::store {

// kBytes is a strip that is taken as it is (pq): num_rows * head_dim bytes, in any two factors.
using varve::LaneType;
// Numbers are part of the format.
enum class PartLayout : uint8_t {
  kKey = 0,    // strips of K: rows in tiles of 16
  kValue = 1,  // strips of V: channels in chunks of 32 or 16; blocks: rows in fours
  kRows = 2,   // [num_rows][head_dim], floats: rows that are not in a page; bytes: always
};

constexpr bool IsFloat(LaneType lane) { return lane <= LaneType::kBF16; }

inline constexpr int kMaxPartHeads = 1024;
inline constexpr int kMaxPartRows = 128;
inline constexpr int kMaxPartDim = 512;
inline constexpr int kMaxPartBytes = 65535;  // head_dim of kBytes

struct PartShape {
  LaneType lane = LaneType::kF16;
  PartLayout layout = PartLayout::kRows;
  int num_heads = 0;  // 1 … 1024
  int num_rows = 0;   // 1 … 128: page_tokens, written or not; kKey: of 16, kValue of blocks: of 4
  int head_dim = 0;   // 1 … 512; strips: a multiple of 16, blocks: of 32; kBytes: 1 … 65535

  bool operator==(const PartShape&) const = default;

  // Names the field that is out of range.
  Status Check() const;
  // Of a shape that passes Check. At most 2^23 and 2^33.
  size_t StripBytes() const;
  size_t Bytes() const { return static_cast<size_t>(num_heads) * StripBytes(); }
};

struct PartView {
  PartShape shape;
  const std::byte* data = nullptr;
  size_t head_stride = 0;  // bytes from strip to strip; 0: they lie side by side
  // Of the first row; the others follow one by one. -1: unknown, or they do not. Helps with keys
  // (key_rotation.h).
  int64_t first_position = -1;

  const std::byte* Strip(int head) const {
    const size_t stride = head_stride != 0 ? head_stride : shape.StripBytes();
    return data + static_cast<size_t>(head) * stride;
  }
};

// Where a part is decoded to. Nothing outside `bytes` is ever written.
struct PartBuffer {
  std::span<std::byte> bytes;
  size_t head_stride = 0;  // as in PartView

  std::byte* Strip(const PartShape& shape, int head) const {
    return bytes.data() +
           static_cast<size_t>(head) * (head_stride != 0 ? head_stride : shape.StripBytes());
  }
  // An error if the strips of a shape would overlap or pass the end.
  Status Check(const PartShape& shape) const;
};

// XXH3-64 of the strips, one after the other.
uint64_t HashPart(const PartView& part);

// Byte offset of element (row, channel) in a float strip.
size_t FloatOffset(const PartShape& shape, int row, int channel);
// How many consecutive channels of a row lie side by side in a float strip.
int ChannelRun(const PartShape& shape);
// A row of all heads, [num_heads][head_dim] elements, out of or into float strips.
void GatherRow(const PartView& part, int row, std::byte* out);
void ScatterRow(const PartShape& shape, const std::byte* row_bytes, int row, const PartBuffer& out);
// All rows of a part, [num_rows] of such rows.
void ScatterRows(const PartShape& shape, std::span<const std::byte* const> rows,
                 const PartBuffer& out);

}  // namespace varve::store

#endif  // VARVE_STORE_PART_IMAGE_H_
