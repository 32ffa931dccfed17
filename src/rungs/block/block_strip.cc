#include "rungs/block/block_strip.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/half.h"

namespace varve {
namespace {

constexpr uint32_t kSignFlip = 0x80808080u;  // q8_0 K codes are stored + 128

// Sizes and addresses of one strip; layouts in kernels.h.
struct StripView {
  BlockType type;
  size_t tokens;
  size_t blocks;      // per row
  size_t code_bytes;  // per block

  StripView(BlockType t, const StripShape& shape)
      : type(t),
        tokens(shape.page_tokens),
        blocks(static_cast<size_t>(shape.dim) / kBlockValues),
        code_bytes(BlockCodeBytes(t)) {}

  size_t ScaleOffset(Part part, size_t token, size_t b) const {
    if (part == Part::kValue) return 2 * (b * tokens + token);
    return 2 * ((token / kTileTokens * blocks + b) * kTileTokens + token % kTileTokens);
  }
  // K: offset of dword j of the block; dwords of a token lie 64 bytes apart.
  size_t KeyOffset(size_t token, size_t b) const {
    return 2 * tokens * blocks + (token / kTileTokens * blocks + b) * code_bytes * kTileTokens +
           token % kTileTokens * 4;
  }
  // V: offset of the first code byte of the block; bytes of a token lie 4 bytes apart.
  size_t ValueOffset(size_t token, size_t b) const {
    return 2 * tokens * blocks + b * code_bytes * tokens + token / 4 * code_bytes * 4 + token % 4;
  }
};

void PackKeyBlock(const StripView& view, size_t token, size_t b, const uint8_t* codes,
                  std::byte* strip) {
  std::byte* out = strip + view.KeyOffset(token, b);
  for (size_t j = 0; j < view.code_bytes / 4; ++j) {
    uint32_t dword;
    std::memcpy(&dword, codes + 4 * j, 4);
    if (view.type == BlockType::kQ8) dword ^= kSignFlip;
    std::memcpy(out + 64 * j, &dword, 4);
  }
}

}  // namespace

size_t BlockStripBytes(BlockType type, const StripShape& shape) {
  const StripView view(type, shape);
  return view.tokens * view.blocks * (2 + view.code_bytes);
}

Status CheckBlockScales(std::string_view name, BlockType type, const StripShape& shape,
                        const std::byte* strip) {
  // They come first, in any part. As bits: exponent 31 is no number, -0 is one.
  const size_t count = static_cast<size_t>(shape.page_tokens) * (shape.dim / kBlockValues);
  const auto is_bad = [type](uint32_t bits) {
    return (bits & 0x7C00) == 0x7C00 || (type == BlockType::kQ8 && bits > 0x8000);
  };
  const auto scale_bits = [strip](size_t i) {
    uint16_t bits;
    std::memcpy(&bits, strip + 2 * i, 2);
    return bits;
  };
  uint32_t num_bad = 0;
  for (size_t i = 0; i < count; ++i) num_bad += is_bad(scale_bits(i)) ? 1 : 0;
  for (size_t i = 0; num_bad > 0 && i < count; ++i) {
    if (!is_bad(scale_bits(i))) continue;
    const float scale = F16ToF32(scale_bits(i));
    return DataLoss("rung " + std::string(name) + ": scale " + std::to_string(i) + " is " +
                    std::to_string(scale) + (std::isfinite(scale) ? " < 0" : ", not finite"));
  }
  return Status();
}

void PackBlockStrip(BlockType type, Part part, const StripShape& shape, const uint16_t* scales,
                    const uint8_t* codes, int num_rows, std::byte* strip) {
  const StripView view(type, shape);
  if (num_rows < shape.page_tokens) std::memset(strip, 0, BlockStripBytes(type, shape));
  const size_t row_codes = view.blocks * view.code_bytes;
  for (size_t token = 0; token < static_cast<size_t>(num_rows); ++token) {
    for (size_t b = 0; b < view.blocks; ++b) {
      std::memcpy(strip + view.ScaleOffset(part, token, b), scales + token * view.blocks + b, 2);
      if (part == Part::kKey) {
        PackKeyBlock(view, token, b, codes + token * row_codes + b * view.code_bytes, strip);
      }
    }
  }
  if (part == Part::kKey) return;
  // V: bytes of four tokens interleave; written as whole dwords, four rows at a time.
  static const std::vector<uint8_t> zeros(kMaxDim, 0);
  for (size_t quad = 0; quad < view.tokens / 4; ++quad) {
    const uint8_t* row[4];
    for (size_t i = 0; i < 4; ++i) {
      const size_t token = quad * 4 + i;
      row[i] = token < static_cast<size_t>(num_rows) ? codes + token * row_codes : zeros.data();
    }
    if (quad * 4 >= static_cast<size_t>(num_rows)) break;
    for (size_t b = 0; b < view.blocks; ++b) {
      std::byte* out = strip + view.ValueOffset(quad * 4, b);
      const size_t at = b * view.code_bytes;
      for (size_t c = 0; c < view.code_bytes; ++c) {
        const uint32_t dword = static_cast<uint32_t>(row[0][at + c]) |
                               static_cast<uint32_t>(row[1][at + c]) << 8 |
                               static_cast<uint32_t>(row[2][at + c]) << 16 |
                               static_cast<uint32_t>(row[3][at + c]) << 24;
        std::memcpy(out + 4 * c, &dword, 4);
      }
    }
  }
}

void UnpackBlockStrip(BlockType type, Part part, const StripShape& shape, const std::byte* strip,
                      int first, int count, uint16_t* scales, uint8_t* codes) {
  const StripView view(type, shape);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const size_t token = first + i;
    for (size_t b = 0; b < view.blocks; ++b) {
      std::memcpy(scales + i * view.blocks + b, strip + view.ScaleOffset(part, token, b), 2);
      uint8_t* out = codes + (i * view.blocks + b) * view.code_bytes;
      if (part == Part::kKey) {
        for (size_t j = 0; j < view.code_bytes / 4; ++j) {
          uint32_t dword;
          std::memcpy(&dword, strip + view.KeyOffset(token, b) + 64 * j, 4);
          if (type == BlockType::kQ8) dword ^= kSignFlip;
          std::memcpy(out + 4 * j, &dword, 4);
        }
      } else {
        const std::byte* in = strip + view.ValueOffset(token, b);
        for (size_t c = 0; c < view.code_bytes; ++c) out[c] = static_cast<uint8_t>(in[4 * c]);
      }
    }
  }
}

Status ImportGgmlRows(BlockType type, Part part, const StripShape& shape, const std::byte* ggml,
                      int num_rows, std::byte* strip) {
  const StripView view(type, shape);
  const size_t count = static_cast<size_t>(num_rows) * view.blocks;
  std::vector<uint16_t> scales(count);
  std::vector<uint8_t> codes(count * view.code_bytes);
  for (size_t i = 0; i < count; ++i) {
    const std::byte* block = ggml + i * GgmlBlockBytes(type);
    std::memcpy(&scales[i], block, 2);
    const float scale = F16ToF32(scales[i]);
    if (!std::isfinite(scale) || (type == BlockType::kQ8 && scale < 0.0f)) {
      return InvalidArgument("ggml block " + std::to_string(i) + ": scale " +
                             std::to_string(scale) +
                             (std::isfinite(scale) ? " < 0 in q8_0" : " is not finite"));
    }
    std::memcpy(&codes[i * view.code_bytes], block + 2, view.code_bytes);
  }
  PackBlockStrip(type, part, shape, scales.data(), codes.data(), num_rows, strip);
  return Status();
}

void ExportGgmlRows(BlockType type, Part part, const StripShape& shape, const std::byte* strip,
                    int first, int count, std::byte* ggml) {
  const StripView view(type, shape);
  const size_t blocks = static_cast<size_t>(count) * view.blocks;
  std::vector<uint16_t> scales(blocks);
  std::vector<uint8_t> codes(blocks * view.code_bytes);
  UnpackBlockStrip(type, part, shape, strip, first, count, scales.data(), codes.data());
  for (size_t i = 0; i < blocks; ++i) {
    std::byte* block = ggml + i * GgmlBlockBytes(type);
    std::memcpy(block, &scales[i], 2);
    std::memcpy(block + 2, &codes[i * view.code_bytes], view.code_bytes);
  }
}

}  // namespace varve
