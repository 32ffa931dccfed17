// The C ABI: steps, attention and content, as f32, as other tensors and as ggml's blocks.

#include <algorithm>
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

RowsView ViewOf(const varve_tensor& rows, int32_t num_tokens) {
  return {rows.data,
          num_tokens,
          rows.token_stride,
          rows.head_stride,
          static_cast<DType>(rows.dtype),
          static_cast<Device>(rows.device)};
}

BlockRowsView ViewOf(const varve_block_rows& rows) {
  return {static_cast<const std::byte*>(rows.data), rows.num_tokens,
          static_cast<BlockFormat>(rows.format), rows.token_stride};
}

Result<AttendRequest> RequestOf(const varve_attend_request& from) {
  return AttendRequest{.sequence = {from.sequence},
                       .num_queries = from.num_queries,
                       .queries = from.queries,
                       .query_token_stride = from.query_token_stride,
                       .query_head_stride = from.query_head_stride,
                       .output = from.output,
                       .output_token_stride = from.output_token_stride,
                       .output_head_stride = from.output_head_stride,
                       .log_sum_exp = from.log_sum_exp};
}

Result<AttendRequest> RequestOf(const varve_attend_tensors_request& from) {
  constexpr const char* kCall = "varve_attend_tensors";
  VARVE_RETURN_IF_ERROR(CheckReserved(kCall, "requests", from.reserved));
  if (from.queries.device != from.output.device) {
    return InvalidArgument(fmt::format("{}: queries.device {} != output.device {}", kCall,
                                       from.queries.device, from.output.device));
  }
  return AttendRequest{.sequence = {from.sequence},
                       .num_queries = from.num_queries,
                       .queries = from.queries.data,
                       .query_token_stride = from.queries.token_stride,
                       .query_head_stride = from.queries.head_stride,
                       .output = from.output.data,
                       .output_token_stride = from.output.token_stride,
                       .output_head_stride = from.output.head_stride,
                       .log_sum_exp = from.log_sum_exp,
                       .query_dtype = static_cast<DType>(from.queries.dtype),
                       .output_dtype = static_cast<DType>(from.output.dtype),
                       .device = static_cast<Device>(from.queries.device)};
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

// varve_attend and varve_attend_tensors, which differ in the type of a request.
template <typename Request>
varve_status AttendAll(varve_cache* cache, const char* call, int32_t layer, const Request* requests,
                       size_t num_requests, const varve_attend_options* options) {
  return WithStep(cache, call, {}, [&](Cache& from) -> Status {
    if (num_requests > 0) VARVE_RETURN_IF_ERROR(CheckNotNull(call, {{"requests", requests}}));
    AttendOptions wanted;
    VARVE_RETURN_IF_ERROR(ReadAttendOptions(call, options, &wanted));
    std::vector<AttendRequest> copies;
    copies.reserve(num_requests);
    for (const Request& request : std::span(requests, num_requests)) {
      VARVE_ASSIGN_OR_RETURN(const AttendRequest copy, RequestOf(request));
      copies.push_back(copy);
    }
    return from.Attend(layer, copies, wanted);
  });
}

// Checks the part and the range, and that `size` units are enough for rows of `row_size` each.
Status CheckRead(const char* call, const char* field, int part, int64_t begin, int64_t end,
                 uint64_t row_size, size_t size) {
  if (part != VARVE_KEY && part != VARVE_VALUE) {
    return InvalidArgument(fmt::format("{}: part {} is not 0 or 1", call, part));
  }
  if (begin < 0 || begin > end) {
    return InvalidArgument(
        fmt::format("{}: [{}, {}) is not a range of positions", call, begin, end));
  }
  const auto rows = static_cast<uint64_t>(end - begin);
  if (rows <= size / row_size) return Status();
  return InvalidArgument(
      fmt::format("{}: {} {} < {} rows of {}", call, field, size, rows, row_size));
}

Part PartOf(int part) { return part == VARVE_KEY ? Part::kKey : Part::kValue; }

uint64_t DimOf(const CacheShape& shape, int part) {
  return static_cast<uint64_t>(part == VARVE_KEY ? shape.key_dim : shape.value_dim);
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
  return varve::AttendAll(cache, "varve_attend", layer, requests, num_requests, options);
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

// --- tensors of any type, and blocks ---

varve_status varve_step_append_tensors(varve_cache* cache, int32_t layer, uint64_t sequence,
                                       int32_t num_tokens, const varve_tensor* keys,
                                       const varve_tensor* values) {
  return WithStep(cache, "varve_step_append_tensors", {{"keys", keys}, {"values", values}},
                  [&](Cache& to) {
                    return to.Append(layer, {sequence}, varve::ViewOf(*keys, num_tokens),
                                     varve::ViewOf(*values, num_tokens));
                  });
}

varve_status varve_attend_tensors(varve_cache* cache, int32_t layer,
                                  const varve_attend_tensors_request* requests, size_t num_requests,
                                  const varve_attend_options* options) {
  return varve::AttendAll(cache, "varve_attend_tensors", layer, requests, num_requests, options);
}

varve_status varve_step_import_blocks(varve_cache* cache, int32_t layer, uint64_t sequence,
                                      const varve_block_rows* keys,
                                      const varve_block_rows* values) {
  return WithStep(
      cache, "varve_step_import_blocks", {{"keys", keys}, {"values", values}}, [&](Cache& to) {
        return to.ImportBlocks(layer, {sequence}, varve::ViewOf(*keys), varve::ViewOf(*values));
      });
}

// --- content ---

varve_status varve_read_rows(const varve_cache* cache, uint64_t sequence, int32_t layer,
                             int32_t kv_head, int part, int64_t begin, int64_t end, float* out,
                             size_t out_floats, int64_t* num_rows) {
  constexpr const char* kCall = "varve_read_rows";
  return WithCache(
      cache, kCall, {{"out", out}, {"num_rows", num_rows}}, [&](const Cache& from) -> Status {
        VARVE_RETURN_IF_ERROR(varve::CheckRead(kCall, "out_floats", part, begin, end,
                                               varve::DimOf(from.shape(), part), out_floats));
        return varve::Store(
            from.ReadRows({sequence}, layer, kv_head, varve::PartOf(part), begin, end, out),
            num_rows);
      });
}

varve_status varve_export_blocks(const varve_cache* cache, uint64_t sequence, int32_t layer,
                                 int part, int format, int64_t begin, int64_t end, void* out,
                                 size_t out_bytes, int64_t* num_rows) {
  constexpr const char* kCall = "varve_export_blocks";
  return WithCache(
      cache, kCall, {{"out", out}, {"num_rows", num_rows}}, [&](const Cache& from) -> Status {
        const varve::CacheShape& shape = from.shape();
        const uint64_t block_bytes = format == VARVE_Q8_0 ? 34 : 18;
        // Not 0 either, where the dimension has no blocks: ExportBlocks refuses it.
        const uint64_t blocks = std::max<uint64_t>(1, varve::DimOf(shape, part) / 32);
        const uint64_t row_bytes = static_cast<uint64_t>(shape.num_kv_heads) * blocks * block_bytes;
        VARVE_RETURN_IF_ERROR(
            varve::CheckRead(kCall, "out_bytes", part, begin, end, row_bytes, out_bytes));
        return varve::Store(from.ExportBlocks({sequence}, layer, varve::PartOf(part),
                                              static_cast<varve::BlockFormat>(format), begin, end,
                                              static_cast<std::byte*>(out)),
                            num_rows);
      });
}
