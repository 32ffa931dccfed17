// How much memory a command may take, so that it refuses what cannot fit before it begins.

#ifndef VARVE_CLI_AVAILABLE_MEMORY_H_
#define VARVE_CLI_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string_view>

#include "varve/status.h"

namespace varve::cli {

// Nine tenths of what the system can give without swapping: the rest stays for tables, the pools'
// reserves and other programs. 0 where the system does not say.
uint64_t UsableBytes();

// kOutOfMemory with both figures if `bytes` are more than UsableBytes: "WHAT take 8.00 TiB, 12.1
// GiB are available".
Status CheckMemory(std::string_view what, uint64_t bytes);

}  // namespace varve::cli

#endif  // VARVE_CLI_AVAILABLE_MEMORY_H_
