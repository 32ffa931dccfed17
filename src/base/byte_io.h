// Little-endian numbers in byte strings. Writing needs no checks. Reading checks every field: an
// error names the field that does not fit, and nothing past the end is read.

#ifndef VARVE_BASE_BYTE_IO_H_
#define VARVE_BASE_BYTE_IO_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "varve/status.h"

namespace varve {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

template <typename T>
void AppendNumber(std::vector<std::byte>& out, T value) {
  static_assert(std::is_integral_v<T>);
  const size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

inline void AppendBytes(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

class ByteReader {
 public:
  // `what` begins every message and must outlive the reader.
  ByteReader(const char* what, std::span<const std::byte> bytes) : what_(what), bytes_(bytes) {}

  size_t left() const { return bytes_.size(); }

  template <typename T>
  Status Read(const char* field, T& value) {
    static_assert(std::is_integral_v<T>);
    std::span<const std::byte> from;
    VARVE_RETURN_IF_ERROR(Take(field, sizeof(T), from));
    std::memcpy(&value, from.data(), sizeof(T));
    return Status();
  }

  // The next `count` bytes.
  Status Take(const char* field, size_t count, std::span<const std::byte>& taken) {
    if (count > bytes_.size()) {
      return Bad(fmt::format("{} needs {} bytes, {} are left", field, count, bytes_.size()));
    }
    taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return Status();
  }

  // Fails if bytes are left.
  Status Finish() const {
    if (bytes_.empty()) return Status();
    return Bad(fmt::format("{} bytes follow its end", bytes_.size()));
  }

  Status Bad(const std::string& message) const {
    return Status(StatusCode::kDataLoss, fmt::format("{}: {}", what_, message));
  }

 private:
  const char* what_;
  std::span<const std::byte> bytes_;
};

}  // namespace varve

#endif  // VARVE_BASE_BYTE_IO_H_
