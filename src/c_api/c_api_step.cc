// The C ABI: steps, attention and content.

#include <cstdint>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "c_api/c_api_handle.h"

namespace varve {
namespace {

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
}  // namespace varve

using varve::Cache;
using varve::Status;
using varve::WithCache;
using varve::WithStep;

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

// --- content ---

varve_status varve_read_rows(const varve_cache* cache, uint64_t sequence, int32_t layer,
                             int32_t kv_head, int part, int64_t begin, int64_t end, float* out,
                             size_t out_floats, int64_t* num_rows) {
  return WithCache(cache, "varve_read_rows", {{"out", out}, {"num_rows", num_rows}},
                   [&](const Cache& from) {
                     return varve::ReadRowsChecked(from, sequence, layer, kv_head, part, begin, end,
                                                   out, out_floats, num_rows);
                   });
}
