// The C ABI: saving and loading.

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "c_api/c_api_handle.h"

namespace varve {
namespace {

// What varve_loaded points into. No destructor but this type's is needed: it is deleted as such.
struct LoadedSequences final : varve_loaded {
  std::vector<SequenceTokens> held;
  std::vector<varve_saved_sequence> rows;
};

Status ReadSaveOptions(const char* call, const varve_save_options* given, SaveOptions* to) {
  if (given == nullptr) return Status();
  varve_save_options from = {};
  VARVE_RETURN_IF_ERROR(ReadStruct(call, "options", given, &from));
  if (from.sequences == nullptr && from.num_sequences > 0) {
    return InvalidArgument(
        fmt::format("{}: options.sequences is null, num_sequences {}", call, from.num_sequences));
  }
  for (const varve_saved_sequence& saved : std::span(from.sequences, from.num_sequences)) {
    if (saved.tokens == nullptr && saved.num_tokens > 0) {
      return InvalidArgument(fmt::format("{}: sequence {}: tokens is null, num_tokens {}", call,
                                         saved.sequence, saved.num_tokens));
    }
    to->sequences.push_back({{saved.sequence}, {saved.tokens, saved.tokens + saved.num_tokens}});
  }
  to->model_fingerprint = from.model_fingerprint;
  if (from.model_name != nullptr) to->model_name = from.model_name;
  return Status();
}

Status LoadFile(Cache& cache, const char* path, uint64_t model_fingerprint, varve_loaded** out) {
  auto loaded = std::make_unique<LoadedSequences>();
  VARVE_ASSIGN_OR_RETURN(std::vector<SequenceTokens> added, cache.Load(path, {model_fingerprint}));
  loaded->held = std::move(added);
  try {
    loaded->rows.reserve(loaded->held.size());
  } catch (const std::bad_alloc&) {
    for (const SequenceTokens& sequence : loaded->held) (void)cache.Free(sequence.sequence).ok();
    throw;
  }
  for (const SequenceTokens& sequence : loaded->held) {
    loaded->rows.push_back(
        {sequence.sequence.value, sequence.tokens.data(), sequence.tokens.size()});
  }
  loaded->struct_size = sizeof(varve_loaded);
  loaded->num_sequences = loaded->rows.size();
  loaded->sequences = loaded->rows.data();
  *out = loaded.release();
  return Status();
}

}  // namespace
}  // namespace varve

using varve::Cache;
using varve::Status;
using varve::WithCache;

varve_status varve_cache_save(const varve_cache* cache, const char* path,
                              const varve_save_options* options) {
  constexpr const char* kCall = "varve_cache_save";
  return WithCache(cache, kCall, {{"path", path}}, [&](const Cache& from) -> Status {
    varve::SaveOptions wanted;
    VARVE_RETURN_IF_ERROR(varve::ReadSaveOptions(kCall, options, &wanted));
    // An empty list asks for nothing; Cache takes it for everything.
    if (options != nullptr && options->sequences != nullptr && options->num_sequences == 0) {
      return varve::InvalidArgument("varve_cache_save: options.num_sequences 0 < 1");
    }
    return from.Save(path, wanted);
  });
}

varve_status varve_cache_load(varve_cache* cache, const char* path, uint64_t model_fingerprint,
                              varve_loaded** loaded) {
  return WithCache(cache, "varve_cache_load", {{"path", path}, {"loaded", loaded}},
                   [&](Cache& to) { return varve::LoadFile(to, path, model_fingerprint, loaded); });
}

void varve_loaded_free(varve_loaded* loaded) {
  delete static_cast<varve::LoadedSequences*>(loaded);
}
