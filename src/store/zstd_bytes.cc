#include "store/zstd_bytes.h"

#include <zstd.h>

#include <fmt/format.h>

namespace varve::store {

std::vector<std::byte> CompressZstd(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kZstdLevel);
  out.resize(ZSTD_isError(size) != 0 ? 0 : size);
  return out;
}

Status DecompressZstd(const char* what, std::span<const std::byte> frame,
                      std::span<std::byte> out) {
  const size_t size = ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) != 0) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{}: zstd: {}", what, ZSTD_getErrorName(size)));
  }
  if (size == out.size()) return Status();
  return Status(StatusCode::kDataLoss,
                fmt::format("{}: zstd frame of {} bytes, {} expected", what, size, out.size()));
}

}  // namespace varve::store
