// Between codes, a byte each in the order of rows, and the cells of a strip (turned_kernels.h).
// Knows where things lie, not what they mean. Exact in both directions.

#ifndef VARVE_RUNGS_TURNED_TURNED_STRIP_H_
#define VARVE_RUNGS_TURNED_TURNED_STRIP_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/turned_kernels.h"
#include "rungs/rung_table.h"

namespace varve {

// codes [num_rows, dim] -> the cells of a strip. Codes of missing rows are 0.
void PackTurnedCodes(int bits, Part part, const StripShape& shape, const uint8_t* codes,
                     int num_rows, std::byte* strip);

// The inverse, for rows [first, first + count).
void UnpackTurnedCodes(int bits, Part part, const StripShape& shape, const std::byte* strip,
                       int first, int count, uint8_t* codes);

// Where the scales [page_tokens] f16 of a strip begin.
inline size_t TurnedScalesOffset(Part part, const StripShape& shape) {
  return part == Part::kKey ? 2 * static_cast<size_t>(shape.dim) : 0;
}

// Ok if every scale is finite and not negative and, in K, every mean finite. `name` is the rung's,
// for the message.
Status CheckTurnedStrip(std::string_view name, Part part, const StripShape& shape,
                        const std::byte* strip);

}  // namespace varve

#endif  // VARVE_RUNGS_TURNED_TURNED_STRIP_H_
