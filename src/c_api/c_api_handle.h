// The handle of the C ABI, and what its functions share: a cache behind a pointer, the checks
// around every call on it, and results that go to the caller's variables.
//
// Thread-safety is that of the cache.

#ifndef VARVE_C_API_C_API_HANDLE_H_
#define VARVE_C_API_C_API_HANDLE_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>

#include "c_api/c_api_guard.h"
#include "varve/cache.h"
#include "varve/status.h"
#include "varve/varve.h"

struct varve_cache {
  // What the cache calls; they outlive it.
  std::unique_ptr<varve::AttentionObserver> observer;
  std::unique_ptr<varve::RetentionObserver> retention_observer;
  std::unique_ptr<varve::LogSink> log;
  std::unique_ptr<varve::Executor> executor;
  std::unique_ptr<varve::PageMemory> memory;
  std::unique_ptr<varve::Cache> cache;
};

namespace varve {

// Runs body(Cache&) for the C function `call` once the cache and `arguments` are there.
template <typename Body>
varve_status WithCache(const varve_cache* cache, const char* call,
                       std::initializer_list<NamedPointer> arguments, Body&& body) noexcept {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(CheckNotNull(call, {{"cache", cache}}));
    VARVE_RETURN_IF_ERROR(CheckNotNull(call, arguments));
    return body(*cache->cache);
  });
}

// Likewise, for calls whose failure ends the open step, also where this side of Cache finds it.
template <typename Body>
varve_status WithStep(varve_cache* cache, const char* call,
                      std::initializer_list<NamedPointer> arguments, Body&& body) noexcept {
  const varve_status status = WithCache(cache, call, arguments, std::forward<Body>(body));
  if (status != VARVE_OK && cache != nullptr) cache->cache->AbortStep();
  return status;
}

// Reads the caller's options, which may be null. Callbacks become objects of the handle.
Status ReadCacheOptions(const varve_cache_options* given, varve_cache* handle, CacheOptions* to);

Status CheckReserved(const char* call, const char* name, int32_t reserved);

// Moves a result into the caller's variable.
template <typename T, typename Out>
Status Store(const Result<T>& result, Out* out) {
  if (!result.ok()) return result.status();
  *out = static_cast<Out>(*result);
  return Status();
}

// A copy that varve_free frees.
Status StoreText(std::string_view text, char** out);

}  // namespace varve

#endif  // VARVE_C_API_C_API_HANDLE_H_
