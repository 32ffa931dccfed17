// What every function of the C ABI does around its own work: no exception gets out, a Status
// becomes a number and the thread's message, pointers and struct sizes are checked.
//
// Functions without state, apart from the message of the thread; thread-safe.

#ifndef VARVE_C_API_C_API_GUARD_H_
#define VARVE_C_API_C_API_GUARD_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <string_view>

#include <fmt/format.h>

#include "varve/status.h"
#include "varve/varve.h"

namespace varve {

// Keeps the message for varve_last_error and gives the code back as its number.
varve_status Report(StatusCode code, std::string_view message) noexcept;

// Runs `call`, which returns a Status, and reports how it ended.
template <typename Call>
varve_status Guarded(Call&& call) noexcept {
  try {
    const Status status = call();
    return status.ok() ? VARVE_OK : Report(status.code(), status.message());
  } catch (const std::bad_alloc&) {
    return Report(StatusCode::kOutOfMemory, "the system has no memory for this call");
  } catch (const std::exception& error) {
    return Report(StatusCode::kInternal, error.what());
  } catch (...) {
    return Report(StatusCode::kInternal, "unknown exception");
  }
}

struct NamedPointer {
  const char* name;
  const void* pointer;
};

inline Status CheckNotNull(const char* call, std::initializer_list<NamedPointer> arguments) {
  for (const NamedPointer& argument : arguments) {
    if (argument.pointer != nullptr) continue;
    return InvalidArgument(fmt::format("{}: {} is null", call, argument.name));
  }
  return Status();
}

inline Status CheckStructSize(const char* call, const char* name, size_t given, size_t smallest) {
  constexpr size_t kLargest = 4096;  // more is not a struct but a struct_size never set
  if (given >= smallest && given <= kLargest) return Status();
  return InvalidArgument(fmt::format("{}: {}.struct_size {} is outside {} … {}", call, name, given,
                                     smallest, kLargest));
}

// Bytes that a struct had in its first version: less cannot be one of ours.
template <typename T>
inline constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<varve_cache_options> = offsetof(varve_cache_options, codebook);
template <>
inline constexpr size_t kFirstSize<varve_stats> = offsetof(varve_stats, bytes_f16_seen);

// Copies a struct of the caller's, which may be that of another version: what the caller's does not
// have becomes zero, what this one does not know must be zero.
template <typename T>
Status ReadStruct(const char* call, const char* name, const T* from, T* to) {
  VARVE_RETURN_IF_ERROR(CheckStructSize(call, name, from->struct_size, kFirstSize<T>));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(T); i < from->struct_size; ++i) {
    if (bytes[i] == 0) continue;
    return InvalidArgument(
        fmt::format("{}: {} has a field at byte {} that version {} does not know; it must be zero",
                    call, name, i, varve_version()));
  }
  *to = {};
  std::memcpy(to, from, std::min(from->struct_size, sizeof(T)));
  return Status();
}

// Fills a struct of the caller's, which may be that of another version: what this one does not know
// becomes zero, what the caller's does not have is left out.
template <typename T>
void WriteStruct(const T& from, T* to) {
  const size_t size = to->struct_size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &from, std::min(size, sizeof(T)));
  to->struct_size = size;
}

}  // namespace varve

#endif  // VARVE_C_API_C_API_GUARD_H_
