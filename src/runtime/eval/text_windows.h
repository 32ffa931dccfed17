// The windows that a text is scored in: consecutive, of one length, none overlapping.

#ifndef VARVE_RUNTIME_EVAL_TEXT_WINDOWS_H_
#define VARVE_RUNTIME_EVAL_TEXT_WINDOWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "varve/status.h"

namespace varve {

// Cuts `tokens` into windows of exactly `ctx` tokens, each with `bos` (-1: none) as its first; what
// is left at the end of the text is not used. At most `max_windows` (0: no limit). Refuses a text
// that does not fill one window, naming both lengths.
Result<std::vector<std::vector<int32_t>>> CutWindows(std::span<const int32_t> tokens, int64_t ctx,
                                                     int32_t bos, int64_t max_windows);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_TEXT_WINDOWS_H_
