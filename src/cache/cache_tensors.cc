// Tensors on their way in and out: the core computes in f32 on the CPU; everything else is
// converted here, in buffers that the cache keeps, or refused.

#include <string>

#include "cache/cache_impl.h"
#include "kernels/kernels.h"

namespace varve {
namespace {

// A tensor [tokens, heads, dim] of any type; strides in values, filled in.
struct Layout {
  size_t tokens;
  size_t heads;
  size_t dim;
  ptrdiff_t token_stride;
  ptrdiff_t head_stride;

  size_t size() const { return tokens * heads * dim; }
};

Layout LayoutOf(int tokens, int heads, int dim, ptrdiff_t token_stride, ptrdiff_t head_stride) {
  if (head_stride == 0) head_stride = dim;
  if (token_stride == 0) token_stride = head_stride * heads;
  return {static_cast<size_t>(tokens), static_cast<size_t>(heads), static_cast<size_t>(dim),
          token_stride, head_stride};
}

// Calls row(offset in the tensor, offset in a dense copy) for every row of dim values.
template <typename Row>
void ForEachRow(const Layout& layout, Row&& row) {
  ptrdiff_t dense = 0;
  for (size_t token = 0; token < layout.tokens; ++token) {
    for (size_t head = 0; head < layout.heads; ++head) {
      row(static_cast<ptrdiff_t>(token) * layout.token_stride +
              static_cast<ptrdiff_t>(head) * layout.head_stride,
          dense);
      dense += static_cast<ptrdiff_t>(layout.dim);
    }
  }
}

// To a dense f32 copy; exact. `dtype` is not f32.
void Widen(const Kernels& kernels, const Layout& layout, const void* from, DType dtype, float* to) {
  const auto* bits = static_cast<const uint16_t*>(from);
  const auto widen = dtype == DType::kF16 ? kernels.widen_f16 : kernels.widen_bf16;
  ForEachRow(layout,
             [&](ptrdiff_t at, ptrdiff_t dense) { widen(bits + at, layout.dim, to + dense); });
}

// Back, to the nearest value, ties to even.
void Narrow(const Kernels& kernels, const Layout& layout, const float* from, DType dtype,
            void* to) {
  auto* bits = static_cast<uint16_t*>(to);
  const auto narrow = dtype == DType::kF16 ? kernels.narrow_f16 : kernels.narrow_bf16;
  ForEachRow(layout,
             [&](ptrdiff_t at, ptrdiff_t dense) { narrow(from + dense, layout.dim, bits + at); });
}

// Needs no conversion: f32, or on the device of the cache, which converts by itself.
bool IsPlain(const RowsView& rows) {
  return rows.dtype == DType::kF32 || rows.device != Device::kCpu;
}

// `rows` if it is plain, otherwise a dense f32 copy of it in `scratch`.
RowsView WidenRows(const Kernels& kernels, const RowsView& rows, int heads, int dim,
                   std::vector<float>* scratch) {
  if (IsPlain(rows)) return rows;
  const Layout layout = LayoutOf(rows.num_tokens, heads, dim, rows.token_stride, rows.head_stride);
  if (scratch->size() < layout.size()) scratch->resize(layout.size());
  Widen(kernels, layout, rows.data, rows.dtype, scratch->data());
  return {scratch->data(), rows.num_tokens};
}

bool IsPlain(const AttendRequest& request) {
  return request.device != Device::kCpu ||
         (request.query_dtype == DType::kF32 && request.output_dtype == DType::kF32);
}

}  // namespace

Status CacheImpl::CheckTensor(const char* field, DType dtype, Device device) const {
  if (device != Device::kCpu && device != options_.device) {
    return Unimplemented(std::string(field) + ".device " +
                         std::to_string(static_cast<int>(device)) +
                         " is not 0 (CPU), or that of the cache, " +
                         std::to_string(static_cast<int>(options_.device)));
  }
  if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) return Status();
  return InvalidArgument(std::string(field) + ".dtype " + std::to_string(static_cast<int>(dtype)) +
                         " is not 0 (f32), 1 (f16) or 2 (bf16)");
}

Status CacheImpl::Append(int layer, SequenceId id, const RowsView& keys, const RowsView& values) {
  if (!step_open_) return FailedPrecondition("Append: no step is open");
  return InStep([&] { return AppendTensors(layer, id, keys, values); });
}

Status CacheImpl::AppendTensors(int layer, SequenceId id, const RowsView& keys,
                                const RowsView& values) {
  VARVE_RETURN_IF_ERROR(CheckTensor("Append: keys", keys.dtype, keys.device));
  VARVE_RETURN_IF_ERROR(CheckTensor("Append: values", values.dtype, values.device));
  if (keys.device != values.device) {
    return InvalidArgument("Append: keys.device " + std::to_string(static_cast<int>(keys.device)) +
                           " != values.device " + std::to_string(static_cast<int>(values.device)));
  }
  if (IsPlain(keys) && IsPlain(values)) {
    return AppendRows(layer, id, keys, values);
  }
  // What is wrong in another way AppendRows refuses before it reads a row.
  const StepSequence* step = FindInStep(id);
  if (step == nullptr || !CheckRows(layer, *step, keys, values).ok()) {
    return AppendRows(layer, id, keys, values);
  }
  return AppendRows(
      layer, id,
      WidenRows(*services_.kernels, keys, shape_.num_kv_heads, shape_.key_dim, &tensors_.keys),
      WidenRows(*services_.kernels, values, shape_.num_kv_heads, shape_.value_dim,
                &tensors_.values));
}

Status CacheImpl::Attend(int layer, std::span<const AttendRequest> requests,
                         const AttendOptions& options) {
  return InStep([&] { return AttendTensors(layer, requests, options); });
}

Status CacheImpl::AttendTensors(int layer, std::span<const AttendRequest> requests,
                                const AttendOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckAttend(layer, requests, options));
  bool plain = true;
  for (const AttendRequest& request : requests) {
    VARVE_RETURN_IF_ERROR(CheckTensor("Attend: queries", request.query_dtype, request.device));
    VARVE_RETURN_IF_ERROR(CheckTensor("Attend: output", request.output_dtype, request.device));
    plain = plain && IsPlain(request);
  }
  return plain ? AttendLayer(layer, requests, options) : AttendWidened(layer, requests, options);
}

// The queries in f32, and the output narrowed again.
Status CacheImpl::AttendWidened(int layer, std::span<const AttendRequest> requests,
                                const AttendOptions& options) {
  const int heads = shape_.num_kv_heads * shape_.group_size;
  const auto queries_of = [&](const AttendRequest& request) {
    return LayoutOf(request.num_queries, heads, shape_.key_dim, request.query_token_stride,
                    request.query_head_stride);
  };
  const auto output_of = [&](const AttendRequest& request) {
    return LayoutOf(request.num_queries, heads, shape_.value_dim, request.output_token_stride,
                    request.output_head_stride);
  };
  size_t query_floats = 0;
  size_t output_floats = 0;
  for (const AttendRequest& request : requests) {
    if (IsPlain(request)) continue;
    if (request.query_dtype != DType::kF32) query_floats += queries_of(request).size();
    if (request.output_dtype != DType::kF32) output_floats += output_of(request).size();
  }
  if (tensors_.queries.size() < query_floats) tensors_.queries.resize(query_floats);
  if (tensors_.output.size() < output_floats) tensors_.output.resize(output_floats);

  float* next_query = tensors_.queries.data();
  float* next_output = tensors_.output.data();
  std::vector<AttendRequest> widened(requests.begin(), requests.end());
  for (AttendRequest& request : widened) {
    if (IsPlain(request)) continue;
    if (request.query_dtype != DType::kF32) {
      const Layout layout = queries_of(request);
      Widen(*services_.kernels, layout, request.queries, request.query_dtype, next_query);
      request.queries = next_query;
      request.query_dtype = DType::kF32;
      request.query_token_stride = request.query_head_stride = 0;
      next_query += layout.size();
    }
    if (request.output_dtype != DType::kF32) {
      const Layout layout = output_of(request);
      request.output = next_output;
      request.output_dtype = DType::kF32;
      request.output_token_stride = request.output_head_stride = 0;
      next_output += layout.size();
    }
  }
  VARVE_RETURN_IF_ERROR(AttendLayer(layer, widened, options));
  for (size_t i = 0; i < requests.size(); ++i) {
    if (IsPlain(requests[i]) || requests[i].output_dtype == DType::kF32) continue;
    Narrow(*services_.kernels, output_of(requests[i]), widened[i].f32_output(),
           requests[i].output_dtype, requests[i].output);
  }
  return Status();
}

}  // namespace varve
