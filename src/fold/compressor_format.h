// Constants of the compressor file (docs/format/compressor.md) and the order of its blocks.

#ifndef VARVE_FOLD_COMPRESSOR_FORMAT_H_
#define VARVE_FOLD_COMPRESSOR_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/compressor.h"
#include "varve/status.h"

namespace varve {

inline constexpr uint32_t kCompressorMagic = 0x4B56434D;
inline constexpr uint32_t kCompressorVersion = 1;
inline constexpr size_t kCompressorHeaderBytes = 44;
inline constexpr size_t kCompressorBlockHeaderBytes = 12;  // rows, cols, has_bias
inline constexpr uint32_t kCompressorTextParts = 2;

// Whether the bytes begin as a zip does: a .pth.
bool IsZip(std::span<const std::byte> bytes);

// "compress_tk.3": the name of a block, `slot` is 0 … 2.
std::string CompressorBlockName(CompressorPart part, int slot);

// Ok if every part comes once, and every slot from 0 to the last.
Status CheckCompressorOrder(const CompressorOrder& order);
// Names in a list: "compress_tv,compress_tk" is two of them.
std::vector<std::string_view> SplitList(std::string_view text, char separator = ',');
// "compress_tv,compress_tk" or "tv,tk": parts in the order of the text; those that it does not name
// follow in theirs. "6,3,0" or "fc1,fc2": one to three slots as a state dict calls them. Numbers
// are computed in ascending order, names in the order of the list. Empty texts: the default.
Result<CompressorOrder> ParseCompressorOrder(std::string_view parts, std::string_view slots);
// The names of such a list of slots, in the order in which a network computes them.
Result<std::vector<std::string>> ParseSlotNames(std::string_view slots);

// What the metadata of a file says of its blocks. Nothing if it is empty or another program's.
Result<std::optional<CompressorOrder>> ParseCompressorMetadata(std::string_view metadata);
std::string PrintCompressorMetadata(const CompressorOrder& order);

}  // namespace varve

#endif  // VARVE_FOLD_COMPRESSOR_FORMAT_H_
