// Between ggml's block rows and the order inside a strip. ggml stores a row as consecutive blocks
// of an f16 scale and 32 (q8_0) or 16 (q4_0) code bytes; a strip holds the same scales and the same
// codes, transposed so that one vector load serves 16 tokens (K) or 4 tokens of 16 channels (V).
// Exchange is exact in both directions.

#ifndef VARVE_RUNGS_BLOCK_BLOCK_STRIP_H_
#define VARVE_RUNGS_BLOCK_BLOCK_STRIP_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/kernels.h"
#include "rungs/rung_table.h"

namespace varve {

// Bytes of one ggml block: 34 or 18.
constexpr size_t GgmlBlockBytes(BlockType type) { return 2 + BlockCodeBytes(type); }

size_t BlockStripBytes(BlockType type, const StripShape& shape);

// Ok if every scale is finite and, in q8_0, none is negative. `name` is the rung's, for the
// message.
Status CheckBlockScales(std::string_view name, BlockType type, const StripShape& shape,
                        const std::byte* strip);

// Scales [num_rows, dim/32] and codes [num_rows, dim/32, BlockCodeBytes] in ggml's order -> strip.
// Rows from num_rows on become zero.
void PackBlockStrip(BlockType type, Part part, const StripShape& shape, const uint16_t* scales,
                    const uint8_t* codes, int num_rows, std::byte* strip);

// The inverse, for rows [first, first + count).
void UnpackBlockStrip(BlockType type, Part part, const StripShape& shape, const std::byte* strip,
                      int first, int count, uint16_t* scales, uint8_t* codes);

// ggml's bytes, [num_rows, dim/32] blocks of 34 or 18 bytes, in and out of a strip. Import refuses
// scales that ggml never writes and attention does not expect: NaN, infinity, negative ones in
// q8_0.
Status ImportGgmlRows(BlockType type, Part part, const StripShape& shape, const std::byte* ggml,
                      int num_rows, std::byte* strip);
void ExportGgmlRows(BlockType type, Part part, const StripShape& shape, const std::byte* strip,
                    int first, int count, std::byte* ggml);

}  // namespace varve

#endif  // VARVE_RUNGS_BLOCK_BLOCK_STRIP_H_
