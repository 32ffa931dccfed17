// The C ABI: what a cache is made with. Codebooks, compressors, page pools, and the options.

#include <memory>
#include <span>

#include <fmt/format.h>

#include "c_api/c_api_callbacks.h"
#include "c_api/c_api_handle.h"

struct varve_codebook {
  std::shared_ptr<const varve::Codebook> held;
};

struct varve_compressor {
  std::shared_ptr<const varve::Compressor> held;
};

struct varve_page_pool {
  std::shared_ptr<varve::PagePool> held;
};

namespace varve {
namespace {

constexpr const char* kCreate = "varve_cache_create";

// A constant of the model on the heap, for the caller.
template <typename Handle, typename T>
Status StoreConstant(Result<std::shared_ptr<const T>> made, Handle** out) {
  if (!made.ok()) return made.status();
  *out = new Handle{std::move(*made)};
  return Status();
}

template <typename T>
Result<std::shared_ptr<const T>> Shared(Result<T> made) {
  if (!made.ok()) return made.status();
  return std::shared_ptr<const T>(std::make_shared<T>(std::move(*made)));
}

std::span<const std::byte> Bytes(const void* bytes, size_t num_bytes) {
  return {static_cast<const std::byte*>(bytes), num_bytes};
}

Status CheckFlag(const char* field, int32_t value) {
  if (value == 0 || value == 1) return Status();
  return InvalidArgument(fmt::format("{}: options.{} {} is not 0 or 1", kCreate, field, value));
}

Status ReadExecutor(const varve_cache_options& from, varve_cache* handle, CacheOptions* to) {
  const int32_t threads = from.parallel_for_threads;
  if (from.parallel_for == nullptr) {
    if (threads == 0) return Status();
    return InvalidArgument(
        fmt::format("{}: options.parallel_for_threads {} requires parallel_for", kCreate, threads));
  }
  if (threads < 1 || threads > 1024) {
    return InvalidArgument(
        fmt::format("{}: options.parallel_for_threads {} is outside 1 … 1024", kCreate, threads));
  }
  handle->executor =
      std::make_unique<CallbackExecutor>(from.parallel_for, from.parallel_for_data, threads);
  to->executor = handle->executor.get();
  return Status();
}

Status ReadMemory(const varve_page_memory* memory, varve_cache* handle, CacheOptions* to) {
  if (memory == nullptr) return Status();
  if (memory->map == nullptr || memory->discard == nullptr || memory->unmap == nullptr) {
    return InvalidArgument(
        fmt::format("{}: options.memory: map, discard or unmap is null", kCreate));
  }
  handle->memory = std::make_unique<CallbackMemory>(*memory);
  to->memory = handle->memory.get();
  return Status();
}

}  // namespace

Status ReadCacheOptions(const varve_cache_options* given, varve_cache* handle, CacheOptions* to) {
  if (given == nullptr) return Status();
  varve_cache_options from = {};
  VARVE_RETURN_IF_ERROR(ReadStruct(kCreate, "options", given, &from));
  VARVE_RETURN_IF_ERROR(CheckReserved(kCreate, "options", from.reserved));
  VARVE_RETURN_IF_ERROR(CheckFlag("time_stages", from.time_stages));
  to->max_bytes = from.max_bytes;
  to->num_threads = from.num_threads;
  to->model_fingerprint = from.model_fingerprint;
  to->time_stages = from.time_stages == 1;
  to->device = static_cast<Device>(from.device);
  to->device_index = from.device_index;
  to->stream = from.stream;
  if (from.codebook != nullptr) to->codebook = from.codebook->held;
  if (from.compressor != nullptr) to->compressor = from.compressor->held;
  if (from.pool != nullptr) to->pool = from.pool->held;
  if (from.observer != nullptr) {
    handle->observer = std::make_unique<CallbackObserver>(from.observer, from.user_data);
    to->observer = handle->observer.get();
  }
  if (from.retention_observer != nullptr) {
    handle->retention_observer =
        std::make_unique<CallbackRetentionObserver>(from.retention_observer, from.retention_data);
    to->retention_observer = handle->retention_observer.get();
  }
  if (from.log != nullptr) {
    handle->log = std::make_unique<CallbackLog>(from.log, from.log_data);
    to->log = handle->log.get();
  }
  VARVE_RETURN_IF_ERROR(ReadExecutor(from, handle, to));
  return ReadMemory(from.memory, handle, to);
}

}  // namespace varve

using varve::CheckNotNull;
using varve::Guarded;
using varve::Status;

varve_status varve_codebook_load(const char* path, varve_codebook** codebook) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(
        CheckNotNull("varve_codebook_load", {{"path", path}, {"codebook", codebook}}));
    return varve::StoreConstant(varve::LoadCodebook(path), codebook);
  });
}

varve_status varve_codebook_parse(const void* bytes, size_t num_bytes, varve_codebook** codebook) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(
        CheckNotNull("varve_codebook_parse", {{"bytes", bytes}, {"codebook", codebook}}));
    return varve::StoreConstant(
        varve::Shared(varve::ParseCodebook(varve::Bytes(bytes, num_bytes), "codebook")), codebook);
  });
}

void varve_codebook_free(varve_codebook* codebook) { delete codebook; }

varve_status varve_compressor_load(const char* path, varve_compressor** compressor) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(
        CheckNotNull("varve_compressor_load", {{"path", path}, {"compressor", compressor}}));
    return varve::StoreConstant(varve::LoadCompressor(path), compressor);
  });
}

varve_status varve_compressor_parse(const void* bytes, size_t num_bytes,
                                    varve_compressor** compressor) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(
        CheckNotNull("varve_compressor_parse", {{"bytes", bytes}, {"compressor", compressor}}));
    return varve::StoreConstant(
        varve::Shared(varve::ParseCompressor(varve::Bytes(bytes, num_bytes), "compressor")),
        compressor);
  });
}

void varve_compressor_free(varve_compressor* compressor) { delete compressor; }

varve_status varve_page_pool_create(uint64_t max_bytes, varve_page_pool** pool) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(CheckNotNull("varve_page_pool_create", {{"pool", pool}}));
    *pool = new varve_page_pool{varve::MakePagePool(max_bytes)};
    return Status();
  });
}

varve_status varve_page_pool_bytes_held(const varve_page_pool* pool, uint64_t* bytes) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(
        CheckNotNull("varve_page_pool_bytes_held", {{"pool", pool}, {"bytes", bytes}}));
    *bytes = varve::PagePoolBytesHeld(*pool->held);
    return Status();
  });
}

void varve_page_pool_free(varve_page_pool* pool) { delete pool; }
