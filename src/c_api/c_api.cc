// The C ABI: status, plans, the cache and its sequences; options, steps, statistics and files have
// files of their own (c_api_options.cc, c_api_step.cc, c_api_stats.cc, c_api_file.cc). Arguments
// are checked and turned into those of Cache; what happens around each call is in c_api_guard.h and
// c_api_handle.h.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "c_api/c_api_handle.h"
#include "varve/plan.h"

namespace varve {
namespace {

// Of fixed size, so that reporting an error cannot run out of memory.
thread_local char last_error[1024] = "";

Status StoreSequence(const Result<SequenceId>& result, uint64_t* out) {
  if (!result.ok()) return result.status();
  *out = result->value;
  return Status();
}

Result<Plan> ParseEitherForm(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  return is_json ? ParsePlanJson(text) : ParsePlan(text);
}

Status CreateCache(const varve_shape* given_shape, const char* plan,
                   const varve_cache_options* given_options, varve_cache** out) {
  constexpr const char* kCall = "varve_cache_create";
  VARVE_RETURN_IF_ERROR(CheckNotNull(kCall, {{"shape", given_shape}, {"cache", out}}));
  varve_shape from = {};
  VARVE_RETURN_IF_ERROR(ReadStruct(kCall, "shape", given_shape, &from));
  CacheShape shape;
  shape.num_layers = from.num_layers;
  shape.num_kv_heads = from.num_kv_heads;
  shape.group_size = from.group_size == 0 ? 1 : from.group_size;
  shape.key_dim = from.key_dim;
  shape.value_dim = from.value_dim == 0 ? from.key_dim : from.value_dim;
  shape.page_tokens = from.page_tokens;

  VARVE_ASSIGN_OR_RETURN(Plan parsed, ParseEitherForm(plan == nullptr ? "" : plan));
  CacheOptions options;
  options.plan = std::move(parsed);

  auto handle = std::make_unique<varve_cache>();
  VARVE_RETURN_IF_ERROR(ReadCacheOptions(given_options, handle.get(), &options));
  Result<std::unique_ptr<Cache>> cache = Cache::Create(shape, std::move(options));
  if (!cache.ok()) return cache.status();
  handle->cache = std::move(*cache);
  *out = handle.release();
  return Status();
}

}  // namespace

Status CheckReserved(const char* call, const char* name, int32_t reserved) {
  if (reserved == 0) return Status();
  return InvalidArgument(fmt::format("{}: {}.reserved {} is not 0", call, name, reserved));
}

Status StoreText(std::string_view text, char** out) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) {
    return OutOfMemory(fmt::format("the system has no memory for {} bytes", text.size() + 1));
  }
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *out = copy;
  return Status();
}

varve_status Report(StatusCode code, std::string_view message) noexcept {
  const std::string_view kept = Utf8Prefix(message, sizeof(last_error) - 1);
  std::memcpy(last_error, kept.data(), kept.size());
  last_error[kept.size()] = '\0';
  return static_cast<varve_status>(code);
}

}  // namespace varve

using varve::Cache;
using varve::Guarded;
using varve::Plan;
using varve::Result;
using varve::Status;
using varve::WithCache;

// --- status, version, plans ---

#define VARVE_TEXT_OF(number) VARVE_TEXT_OF_EXPANDED(number)
#define VARVE_TEXT_OF_EXPANDED(number) #number
#define VARVE_DOTTED(a, b, c) VARVE_TEXT_OF(a) "." VARVE_TEXT_OF(b) "." VARVE_TEXT_OF(c)

const char* varve_status_name(int status) {
  return varve::StatusCodeName(static_cast<varve::StatusCode>(status));
}

const char* varve_last_error() { return varve::last_error; }

const char* varve_version() {
  return VARVE_DOTTED(VARVE_VERSION_MAJOR, VARVE_VERSION_MINOR, VARVE_VERSION_PATCH);
}

void varve_free(char* text) { std::free(text); }

varve_status varve_plan_canonical(const char* plan, char** canonical) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(
        varve::CheckNotNull("varve_plan_canonical", {{"plan", plan}, {"canonical", canonical}}));
    VARVE_ASSIGN_OR_RETURN(Plan parsed, varve::ParseEitherForm(plan));
    return varve::StoreText(varve::PrintPlan(parsed), canonical);
  });
}

varve_status varve_plan_check(const char* plan) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(varve::CheckNotNull("varve_plan_check", {{"plan", plan}}));
    VARVE_ASSIGN_OR_RETURN(Plan parsed, varve::ParseEitherForm(plan));
    return varve::CheckSupported(parsed);
  });
}

// --- the cache ---

varve_status varve_cache_create(const varve_shape* shape, const char* plan,
                                const varve_cache_options* options, varve_cache** cache) {
  return Guarded([&] { return varve::CreateCache(shape, plan, options, cache); });
}

void varve_cache_destroy(varve_cache* cache) { delete cache; }

varve_status varve_cache_shape(const varve_cache* cache, varve_shape* shape) {
  constexpr const char* kCall = "varve_cache_shape";
  return WithCache(cache, kCall, {{"shape", shape}}, [&](const Cache& from) -> Status {
    const size_t size = shape->struct_size;
    VARVE_RETURN_IF_ERROR(varve::CheckStructSize(kCall, "shape", size, sizeof(varve_shape)));
    const varve::CacheShape& known = from.shape();
    const varve_shape filled = {
        size,          known.num_layers, known.num_kv_heads, known.group_size,
        known.key_dim, known.value_dim,  known.page_tokens};
    varve::WriteStruct(filled, shape);
    return Status();
  });
}

// --- sequences ---

varve_status varve_sequence_create(varve_cache* cache, uint64_t* sequence) {
  return WithCache(cache, "varve_sequence_create", {{"sequence", sequence}},
                   [&](Cache& to) { return varve::StoreSequence(to.CreateSequence(), sequence); });
}

varve_status varve_sequence_fork(varve_cache* cache, uint64_t source, uint64_t* sequence) {
  return WithCache(cache, "varve_sequence_fork", {{"sequence", sequence}},
                   [&](Cache& to) { return varve::StoreSequence(to.Fork({source}), sequence); });
}

varve_status varve_sequence_free(varve_cache* cache, uint64_t sequence) {
  return WithCache(cache, "varve_sequence_free", {},
                   [&](Cache& to) { return to.Free({sequence}); });
}

varve_status varve_sequence_truncate(varve_cache* cache, uint64_t sequence, int64_t position) {
  return WithCache(cache, "varve_sequence_truncate", {},
                   [&](Cache& to) { return to.Truncate({sequence}, position); });
}

varve_status varve_sequence_remove_range(varve_cache* cache, uint64_t sequence, int64_t begin,
                                         int64_t end) {
  return WithCache(cache, "varve_sequence_remove_range", {},
                   [&](Cache& to) { return to.RemoveRange({sequence}, begin, end); });
}

varve_status varve_sequence_keep_only(varve_cache* cache, uint64_t sequence, int64_t begin,
                                      int64_t end) {
  return WithCache(cache, "varve_sequence_keep_only", {},
                   [&](Cache& to) { return to.KeepOnly({sequence}, begin, end); });
}

varve_status varve_sequence_slide_window(varve_cache* cache, uint64_t sequence, int64_t num_tokens,
                                         int64_t sink_tokens) {
  return WithCache(cache, "varve_sequence_slide_window", {},
                   [&](Cache& to) { return to.SlideWindow({sequence}, num_tokens, sink_tokens); });
}

varve_status varve_sequence_rest(varve_cache* cache, uint64_t sequence, int64_t begin,
                                 int64_t end) {
  return WithCache(cache, "varve_sequence_rest", {},
                   [&](Cache& to) { return to.Rest({sequence}, begin, end).status(); });
}

varve_status varve_sequence_next_position(const varve_cache* cache, uint64_t sequence,
                                          int64_t* position) {
  return WithCache(
      cache, "varve_sequence_next_position", {{"position", position}},
      [&](const Cache& from) { return varve::Store(from.NextPosition({sequence}), position); });
}

varve_status varve_sequence_live_rows(const varve_cache* cache, uint64_t sequence, int32_t layer,
                                      int64_t* num_rows) {
  return WithCache(cache, "varve_sequence_live_rows", {{"num_rows", num_rows}},
                   [&](const Cache& from) {
                     Result<varve::SequenceInfo> info = from.Describe({sequence}, layer);
                     if (info.ok()) *num_rows = info->live_rows;
                     return info.status();
                   });
}

varve_status varve_sequence_max_step_tokens(const varve_cache* cache, uint64_t sequence,
                                            int32_t* num_tokens) {
  return WithCache(
      cache, "varve_sequence_max_step_tokens", {{"num_tokens", num_tokens}},
      [&](const Cache& from) { return varve::Store(from.MaxStepTokens({sequence}), num_tokens); });
}

varve_status varve_sequence_begin_prompt(varve_cache* cache, uint64_t sequence) {
  return WithCache(cache, "varve_sequence_begin_prompt", {},
                   [&](Cache& to) { return to.BeginPrompt({sequence}); });
}

varve_status varve_sequence_end_prompt(varve_cache* cache, uint64_t sequence) {
  return WithCache(cache, "varve_sequence_end_prompt", {},
                   [&](Cache& to) { return to.EndPrompt({sequence}); });
}

varve_status varve_sequence_end_prompt_unfolded(varve_cache* cache, uint64_t sequence) {
  return WithCache(cache, "varve_sequence_end_prompt_unfolded", {},
                   [&](Cache& to) { return to.EndPrompt({sequence}, {.fold = false}); });
}

varve_status varve_sequence_find_cut(const varve_cache* cache, uint64_t sequence,
                                     int64_t num_tokens, int64_t* tokens_left, int64_t* position) {
  return WithCache(cache, "varve_sequence_find_cut",
                   {{"tokens_left", tokens_left}, {"position", position}}, [&](const Cache& from) {
                     Result<varve::CutPoint> cut = from.FindCut({sequence}, num_tokens);
                     if (!cut.ok()) return cut.status();
                     *tokens_left = cut->num_tokens;
                     *position = cut->position;
                     return varve::Status();
                   });
}
