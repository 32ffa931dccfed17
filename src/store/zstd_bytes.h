// zstd on byte strings: the one place of src/store that calls the library.

#ifndef VARVE_STORE_ZSTD_BYTES_H_
#define VARVE_STORE_ZSTD_BYTES_H_

#include <cstddef>
#include <span>
#include <vector>

#include "varve/status.h"

namespace varve::store {

inline constexpr int kZstdLevel = 3;

// One frame; empty if the library fails, which it does only for lack of memory.
std::vector<std::byte> CompressZstd(std::span<const std::byte> bytes);

// The frame must give exactly out.size() bytes; the message begins with `what`.
Status DecompressZstd(const char* what, std::span<const std::byte> frame, std::span<std::byte> out);

}  // namespace varve::store

#endif  // VARVE_STORE_ZSTD_BYTES_H_
