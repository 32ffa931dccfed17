// Constants of the compressor file (docs/format/compressor.md) and the order of its blocks.

#ifndef VARVE_FOLD_COMPRESSOR_FORMAT_H_
#define VARVE_FOLD_COMPRESSOR_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "varve/compressor.h"
#include "varve/status.h"

namespace varve {

inline constexpr uint32_t kCompressorMagic = 0x4B56434D;
inline constexpr uint32_t kCompressorVersion = 1;
inline constexpr size_t kCompressorHeaderBytes = 44;
inline constexpr size_t kCompressorBlockHeaderBytes = 12;  // rows, cols, has_bias
inline constexpr uint32_t kCompressorTextBlocks = 2 * kCompressorSlots;
inline constexpr uint32_t kCompressorAllBlocks = kCompressorParts * kCompressorSlots;

// Whether the bytes begin as a zip does: a .pth.
bool IsZip(std::span<const std::byte> bytes);

// "compress_tk.3": the name of a block, `slot` is 0 … 2.
std::string CompressorBlockName(CompressorPart part, int slot);

// Ok if every part and every slot comes once.
Status CheckCompressorOrder(const CompressorOrder& order);
// "compress_tv,compress_tk" or "tv,tk": parts in the order of the text; those that it does not name
// follow in theirs. "6,3,0": all slots.
Result<CompressorOrder> ParseCompressorOrder(std::string_view parts, std::string_view slots);

}  // namespace varve

#endif  // VARVE_FOLD_COMPRESSOR_FORMAT_H_
