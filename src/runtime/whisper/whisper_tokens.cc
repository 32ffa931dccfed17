#include "runtime/whisper/whisper_tokens.h"

#include <zstd.h>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "runtime/embedded_model.h"

namespace varve {
namespace {

constexpr const char* kWhat = "Whisper's tokens";
constexpr unsigned long long kMaxBytes = 1 << 24;

}  // namespace

Result<std::vector<std::string>> UnpackWhisperTokens(std::span<const std::byte> frame) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size > kMaxBytes) return DataLoss(fmt::format("{}: no zstd frame with its size", kWhat));
  std::vector<std::byte> bytes(size);
  const size_t unpacked = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(unpacked) != 0 || unpacked != bytes.size()) {
    return DataLoss(fmt::format("{}: zstd: {}", kWhat, ZSTD_getErrorName(unpacked)));
  }
  std::vector<std::string> tokens;
  ByteReader reader(kWhat, bytes);
  while (reader.left() > 0) {
    uint8_t token_bytes = 0;
    std::span<const std::byte> token;
    VARVE_RETURN_IF_ERROR(reader.Read("size of a token", token_bytes));
    VARVE_RETURN_IF_ERROR(reader.Take("token", token_bytes, token));
    tokens.emplace_back(reinterpret_cast<const char*>(token.data()), token.size());
  }
  return tokens;
}

Result<std::vector<std::string>> WhisperTokens(bool multilingual) {
  return UnpackWhisperTokens(EmbeddedWhisperTokens(multilingual));
}

}  // namespace varve
