#include "rungs/turned/turned_strip.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/half.h"

namespace varve {
namespace {

using Planes = uint8_t[kTurnedPlanes][kTurnedPlaneCodes];

// Where a code of a strip is: its cell, and plane and place in it.
struct CodePlace {
  size_t cell;
  int plane;
  int place;
};

CodePlace PlaceOf(Part part, const StripShape& shape, int token, int d) {
  const int group = token / kTileTokens;
  const int block = d / kTurnedBlock;
  if (part == Part::kKey) {
    return {static_cast<size_t>(group) * (shape.dim / kTurnedBlock) + block, d % kTurnedBlock / 4,
            token % kTileTokens * 4 + d % 4};
  }
  return {static_cast<size_t>(block) * (shape.page_tokens / kTileTokens) + group,
          2 * (token % kTileTokens / 4) + d % kTurnedBlock / 16, 4 * (d % 16) + token % 4};
}

// 16 rows of 32 codes, row_stride apart, to planes. Missing rows are null.
void GatherPlanes(Part part, const uint8_t* const (&rows)[kTileTokens], Planes& planes) {
  for (int token = 0; token < kTileTokens; ++token) {
    const uint8_t* row = rows[token];
    if (row == nullptr) continue;
    if (part == Part::kKey) {
      for (int p = 0; p < kTurnedPlanes; ++p) std::memcpy(&planes[p][4 * token], row + 4 * p, 4);
      continue;
    }
    uint8_t* low = &planes[2 * (token / 4)][token % 4];
    uint8_t* high = &planes[2 * (token / 4) + 1][token % 4];
    for (int c = 0; c < 16; ++c) {
      low[4 * c] = row[c];
      high[4 * c] = row[16 + c];
    }
  }
}

std::string NumberText(float x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", static_cast<double>(x));
  return text;
}

// line |= bits `mask` of the plane's codes, moved up by `shift`.
void AddBits(const uint8_t* plane, int mask, int shift, uint8_t* line) {
  for (int j = 0; j < kTurnedPlaneCodes; ++j)
    line[j] = static_cast<uint8_t>(line[j] | (plane[j] & mask) << shift);
}

void WriteCell(int bits, const Planes& planes, std::byte* cell) {
  uint8_t lines[kMaxTurnedBits][kTurnedPlaneCodes] = {};
  const int planes_per_line = bits == 2 ? 4 : 2;
  for (int p = 0; p < kTurnedPlanes; ++p) {
    if (bits == 3 && p >= 6) {
      AddBits(planes[p], 3, 6, lines[p == 6 ? 0 : 2]);
      AddBits(planes[p], 4, p - 2, lines[1]);
    } else {
      AddBits(planes[p], (1 << bits) - 1, p % planes_per_line * bits, lines[p / planes_per_line]);
    }
  }
  std::memcpy(cell, lines, TurnedCellBytes(bits));
}

}  // namespace

void PackTurnedCodes(int bits, Part part, const StripShape& shape, const uint8_t* codes,
                     int num_rows, std::byte* strip) {
  std::byte* cells = strip + TurnedCodesOffset(part == Part::kKey, shape.dim, shape.page_tokens);
  for (int first = 0; first < shape.page_tokens; first += kTileTokens) {
    for (int d = 0; d < shape.dim; d += kTurnedBlock) {
      const uint8_t* rows[kTileTokens];
      for (int i = 0; i < kTileTokens; ++i) {
        const int row = first + i;
        rows[i] = row < num_rows ? codes + static_cast<size_t>(row) * shape.dim + d : nullptr;
      }
      Planes planes = {};
      GatherPlanes(part, rows, planes);
      WriteCell(bits, planes, cells + PlaceOf(part, shape, first, d).cell * TurnedCellBytes(bits));
    }
  }
}

void UnpackTurnedCodes(int bits, Part part, const StripShape& shape, const std::byte* strip,
                       int first, int count, uint8_t* codes) {
  const std::byte* cells =
      strip + TurnedCodesOffset(part == Part::kKey, shape.dim, shape.page_tokens);
  for (int token = first; token < first + count; ++token) {
    for (int d = 0; d < shape.dim; ++d) {
      const CodePlace at = PlaceOf(part, shape, token, d);
      *codes++ = static_cast<uint8_t>(
          ReadTurnedCode(bits, cells + at.cell * TurnedCellBytes(bits), at.plane, at.place));
    }
  }
}

Status CheckTurnedStrip(std::string_view name, Part part, const StripShape& shape,
                        const std::byte* strip) {
  const auto half_at = [strip](size_t offset, int i) {
    uint16_t bits;
    std::memcpy(&bits, strip + offset + 2 * static_cast<size_t>(i), 2);
    return bits;
  };
  for (int d = 0; part == Part::kKey && d < shape.dim; ++d) {
    const uint16_t bits = half_at(0, d);
    if ((bits & 0x7C00) == 0x7C00)
      return DataLoss("rung " + std::string(name) + ": mean " + std::to_string(d) + " is " +
                      NumberText(F16ToF32(bits)) + ", not finite");
  }
  for (int token = 0; token < shape.page_tokens; ++token) {
    const uint16_t bits = half_at(TurnedScalesOffset(part, shape), token);
    if (bits <= 0x7BFF) continue;
    const float scale = F16ToF32(bits);
    return DataLoss("rung " + std::string(name) + ": scale " + std::to_string(token) + " is " +
                    NumberText(scale) + (std::isfinite(scale) ? " < 0" : ", not finite"));
  }
  return Status();
}

}  // namespace varve
