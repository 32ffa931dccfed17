// The C ABI: arguments are checked and turned into those of Cache. What happens around each call is
// in c_api_guard.h.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/c_api_guard.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"
#include "varve/varve.h"

namespace varve {
namespace {

// Hands AttentionMass to a C function.
class CallbackObserver final : public AttentionObserver {
 public:
  CallbackObserver(varve_attention_observer callback, void* user_data)
      : callback_(callback), user_data_(user_data) {}

  void OnAttention(const AttentionMass& mass) override {
    pages_.clear();
    for (const PageSpan& page : mass.pages) {
      pages_.push_back(
          {page.first_position, page.num_positions, page.num_rows, page.num_live_rows});
    }
    const varve_attention_mass told = {
        sizeof(told),        mass.layer,    mass.num_queries, mass.num_heads,
        mass.sequence.value, pages_.size(), pages_.data(),    mass.mass};
    callback_(&told, user_data_);
  }

 private:
  varve_attention_observer callback_;
  void* user_data_;
  std::vector<varve_page_span> pages_;
};

}  // namespace
}  // namespace varve

struct varve_cache {
  std::unique_ptr<varve::CallbackObserver> observer;  // outlives the cache that calls it
  std::unique_ptr<varve::Cache> cache;
};

namespace varve {
namespace {

// Of fixed size, so that reporting an error cannot run out of memory.
thread_local char last_error[1024] = "";

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

Status CheckReserved(const char* call, const char* name, int32_t reserved) {
  if (reserved == 0) return Status();
  return InvalidArgument(fmt::format("{}: {}.reserved {} is not 0", call, name, reserved));
}

// Moves a result into the caller's variable.
template <typename T, typename Out>
Status Store(const Result<T>& result, Out* out) {
  if (!result.ok()) return result.status();
  *out = static_cast<Out>(*result);
  return Status();
}

Status StoreSequence(const Result<SequenceId>& result, uint64_t* out) {
  if (!result.ok()) return result.status();
  *out = result->value;
  return Status();
}

// A copy that varve_free frees.
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

Result<Plan> ParseEitherForm(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  return is_json ? ParsePlanJson(text) : ParsePlan(text);
}

RowsView ViewOf(const varve_rows& rows) {
  return {rows.data, rows.num_tokens, rows.token_stride, rows.head_stride};
}

AttendRequest RequestOf(const varve_attend_request& from) {
  AttendRequest to;
  to.sequence = {from.sequence};
  to.num_queries = from.num_queries;
  to.queries = from.queries;
  to.query_token_stride = from.query_token_stride;
  to.query_head_stride = from.query_head_stride;
  to.output = from.output;
  to.output_token_stride = from.output_token_stride;
  to.output_head_stride = from.output_head_stride;
  to.log_sum_exp = from.log_sum_exp;
  return to;
}

Status ReadAttendOptions(const char* call, const varve_attend_options* given, AttendOptions* to) {
  if (given == nullptr) return Status();
  varve_attend_options from = {};
  VARVE_RETURN_IF_ERROR(ReadStruct(call, "options", given, &from));
  VARVE_RETURN_IF_ERROR(CheckReserved(call, "options", from.reserved));
  if (from.see_all_rows != 0 && from.see_all_rows != 1) {
    return InvalidArgument(
        fmt::format("{}: options.see_all_rows {} is not 0 or 1", call, from.see_all_rows));
  }
  to->scale = from.scale;
  to->soft_cap = from.soft_cap;
  to->window = from.window;
  to->causal = from.see_all_rows == 0;
  return Status();
}

// One line per number of the statistics, for the struct and for JSON.
struct StatsField {
  const char* name;
  uint64_t CacheStats::*from;
  uint64_t varve_stats::*to;
};

constexpr StatsField kStatsFields[] = {
    {"bytes_used", &CacheStats::bytes_used, &varve_stats::bytes_used},
    {"bytes_held", &CacheStats::bytes_held, &varve_stats::bytes_held},
    {"bytes_tables", &CacheStats::bytes_tables, &varve_stats::bytes_tables},
    {"bytes_scratch", &CacheStats::bytes_scratch, &varve_stats::bytes_scratch},
    {"bytes_f16", &CacheStats::bytes_f16, &varve_stats::bytes_f16},
    {"bytes_copied", &CacheStats::bytes_copied, &varve_stats::bytes_copied},
    {"pages", &CacheStats::pages, &varve_stats::pages},
    {"sequences", &CacheStats::sequences, &varve_stats::sequences},
    {"pages_sealed", &CacheStats::pages_sealed, &varve_stats::pages_sealed},
    {"pages_demoted", &CacheStats::pages_demoted, &varve_stats::pages_demoted},
    {"pages_adopted", &CacheStats::pages_adopted, &varve_stats::pages_adopted},
    {"pages_dropped", &CacheStats::pages_dropped, &varve_stats::pages_dropped},
    {"nonfinite_values", &CacheStats::nonfinite_values, &varve_stats::nonfinite_values},
};

const char* StateName(PageState state) {
  switch (state) {
    case PageState::kFilling:
      return "filling";
    case PageState::kFull:
      return "full";
    case PageState::kSealed:
      return "sealed";
    case PageState::kPacked:
      return "packed";
  }
  return "unknown";
}

std::string StatsJson(const Cache& cache) {
  const CacheStats stats = cache.Stats();
  nlohmann::ordered_json json;
  json["plan"] = PrintPlan(cache.plan());
  for (const StatsField& field : kStatsFields) json[field.name] = stats.*field.from;
  json["rungs"] = nlohmann::ordered_json::array();
  for (const RungBytes& rung : stats.rungs) {
    json["rungs"].push_back({{"rung", rung.rung},
                             {"state", StateName(rung.state)},
                             {"pages", rung.pages},
                             {"bytes", rung.bytes}});
  }
  return json.dump();
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

  Result<Plan> parsed = ParseEitherForm(plan == nullptr ? "" : plan);
  if (!parsed.ok()) return parsed.status();
  CacheOptions options;
  options.plan = std::move(*parsed);

  auto handle = std::make_unique<varve_cache>();
  if (given_options != nullptr) {
    varve_cache_options wanted = {};
    VARVE_RETURN_IF_ERROR(ReadStruct(kCall, "options", given_options, &wanted));
    VARVE_RETURN_IF_ERROR(CheckReserved(kCall, "options", wanted.reserved));
    options.max_bytes = wanted.max_bytes;
    options.num_threads = wanted.num_threads;
    if (wanted.observer != nullptr) {
      handle->observer = std::make_unique<CallbackObserver>(wanted.observer, wanted.user_data);
      options.observer = handle->observer.get();
    }
  }
  Result<std::unique_ptr<Cache>> cache = Cache::Create(shape, std::move(options));
  if (!cache.ok()) return cache.status();
  handle->cache = std::move(*cache);
  *out = handle.release();
  return Status();
}

Status ReadRowsChecked(const Cache& cache, uint64_t sequence, int32_t layer, int32_t kv_head,
                       int part, int64_t begin, int64_t end, float* out, size_t out_floats,
                       int64_t* num_rows) {
  if (part != VARVE_KEY && part != VARVE_VALUE) {
    return InvalidArgument(fmt::format("varve_read_rows: part {} is not 0 or 1", part));
  }
  if (begin < 0 || begin > end) {
    return InvalidArgument(
        fmt::format("varve_read_rows: [{}, {}) is not a range of positions", begin, end));
  }
  const CacheShape& shape = cache.shape();
  const auto dim = static_cast<uint64_t>(part == VARVE_KEY ? shape.key_dim : shape.value_dim);
  const auto rows = static_cast<uint64_t>(end - begin);
  if (rows > out_floats / dim) {
    return InvalidArgument(fmt::format("varve_read_rows: out_floats {} < {} rows of {} floats",
                                       out_floats, rows, dim));
  }
  return Store(cache.ReadRows({sequence}, layer, kv_head,
                              part == VARVE_KEY ? Part::kKey : Part::kValue, begin, end, out),
               num_rows);
}

}  // namespace

varve_status Report(StatusCode code, std::string_view message) noexcept {
  size_t bytes = message.size();
  if (bytes >= sizeof(last_error)) {
    bytes = sizeof(last_error) - 1;
    // Not through the middle of a UTF-8 character.
    while (bytes > 0 && (static_cast<unsigned char>(message[bytes]) & 0xC0) == 0x80) --bytes;
  }
  std::memcpy(last_error, message.data(), bytes);
  last_error[bytes] = '\0';
  return static_cast<varve_status>(code);
}

}  // namespace varve

using varve::Cache;
using varve::Guarded;
using varve::Plan;
using varve::Result;
using varve::Status;
using varve::WithCache;
using varve::WithStep;

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
    Result<Plan> parsed = varve::ParseEitherForm(plan);
    if (!parsed.ok()) return parsed.status();
    return varve::StoreText(varve::PrintPlan(*parsed), canonical);
  });
}

varve_status varve_plan_check(const char* plan) {
  return Guarded([&]() -> Status {
    VARVE_RETURN_IF_ERROR(varve::CheckNotNull("varve_plan_check", {{"plan", plan}}));
    Result<Plan> parsed = varve::ParseEitherForm(plan);
    if (!parsed.ok()) return parsed.status();
    return varve::CheckSupported(*parsed);
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

varve_status varve_sequence_end_prompt(varve_cache* cache, uint64_t sequence) {
  return WithCache(cache, "varve_sequence_end_prompt", {},
                   [&](Cache& to) { return to.EndPrompt({sequence}); });
}

// --- a step ---

varve_status varve_step_begin(varve_cache* cache, const varve_step_entry* entries,
                              size_t num_entries) {
  return WithCache(cache, "varve_step_begin", {{"entries", entries}}, [&](Cache& to) {
    std::vector<varve::StepEntry> copies;
    copies.reserve(num_entries);
    for (const varve_step_entry& entry : std::span(entries, num_entries)) {
      copies.push_back({{entry.sequence}, entry.num_tokens});
    }
    return to.BeginStep(copies);
  });
}

varve_status varve_step_append(varve_cache* cache, int32_t layer, uint64_t sequence,
                               const varve_rows* keys, const varve_rows* values) {
  return WithStep(cache, "varve_step_append", {{"keys", keys}, {"values", values}}, [&](Cache& to) {
    return to.Append(layer, {sequence}, varve::ViewOf(*keys), varve::ViewOf(*values));
  });
}

varve_status varve_attend(varve_cache* cache, int32_t layer, const varve_attend_request* requests,
                          size_t num_requests, const varve_attend_options* options) {
  constexpr const char* kCall = "varve_attend";
  return WithStep(cache, kCall, {}, [&](Cache& from) -> Status {
    if (num_requests > 0) {
      VARVE_RETURN_IF_ERROR(varve::CheckNotNull(kCall, {{"requests", requests}}));
    }
    varve::AttendOptions wanted;
    VARVE_RETURN_IF_ERROR(varve::ReadAttendOptions(kCall, options, &wanted));
    std::vector<varve::AttendRequest> copies;
    copies.reserve(num_requests);
    for (const varve_attend_request& request : std::span(requests, num_requests)) {
      copies.push_back(varve::RequestOf(request));
    }
    return from.Attend(layer, copies, wanted);
  });
}

varve_status varve_step_end(varve_cache* cache) {
  return WithStep(cache, "varve_step_end", {}, [](Cache& to) { return to.EndStep(); });
}

varve_status varve_step_abort(varve_cache* cache) {
  return WithCache(cache, "varve_step_abort", {}, [](Cache& to) {
    to.AbortStep();
    return Status();
  });
}

// --- content and statistics ---

varve_status varve_read_rows(const varve_cache* cache, uint64_t sequence, int32_t layer,
                             int32_t kv_head, int part, int64_t begin, int64_t end, float* out,
                             size_t out_floats, int64_t* num_rows) {
  return WithCache(cache, "varve_read_rows", {{"out", out}, {"num_rows", num_rows}},
                   [&](const Cache& from) {
                     return varve::ReadRowsChecked(from, sequence, layer, kv_head, part, begin, end,
                                                   out, out_floats, num_rows);
                   });
}

varve_status varve_get_stats(const varve_cache* cache, varve_stats* stats) {
  constexpr const char* kCall = "varve_get_stats";
  return WithCache(cache, kCall, {{"stats", stats}}, [&](const Cache& from) -> Status {
    VARVE_RETURN_IF_ERROR(
        varve::CheckStructSize(kCall, "stats", stats->struct_size, sizeof(varve_stats)));
    const varve::CacheStats known = from.Stats();
    varve_stats filled = {};
    for (const varve::StatsField& field : varve::kStatsFields) {
      filled.*field.to = known.*field.from;
    }
    varve::WriteStruct(filled, stats);
    return Status();
  });
}

varve_status varve_stats_json(const varve_cache* cache, char** json) {
  return WithCache(cache, "varve_stats_json", {{"json", json}}, [&](const Cache& from) {
    return varve::StoreText(varve::StatsJson(from), json);
  });
}
