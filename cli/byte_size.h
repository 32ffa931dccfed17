// Sizes in bytes as people type them.

#ifndef VARVE_CLI_BYTE_SIZE_H_
#define VARVE_CLI_BYTE_SIZE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::cli {

// "0", "4096", "64MiB", up to 1PiB. The message names the option and what was typed.
Result<int64_t> ParseByteSize(std::string_view option, const std::string& text);

}  // namespace varve::cli

#endif  // VARVE_CLI_BYTE_SIZE_H_
