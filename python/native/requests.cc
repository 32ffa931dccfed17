#include "requests.h"

#include <string>

#include "errors.h"

namespace varve::python {
namespace {

// A stride of 0 means dense, which is right wherever the dimension has one value.
ptrdiff_t StrideOf(const Tensor& tensor, int dimension) {
  return tensor.size(dimension) > 1 ? tensor.stride(dimension) : 0;
}

// A dimension of one value may have any stride; that of the dimension inside it does as well.
ptrdiff_t StrideOr(const Tensor& tensor, int dimension, ptrdiff_t otherwise) {
  return tensor.size(dimension) > 1 ? tensor.stride(dimension) : otherwise;
}

void ExpectQueries(const Tensor& queries, const CacheShape& shape) {
  queries.Expect({-1, shape.num_kv_heads * shape.group_size, shape.key_dim},
                 "[queries, query heads, key_dim]");
}

}  // namespace

RowsView RowsOf(const Tensor& tensor, int num_kv_heads, int dim) {
  tensor.Expect({-1, num_kv_heads, dim}, "[tokens, kv_heads, dim]");
  RowsView rows;
  rows.data = tensor.data();
  rows.num_tokens = static_cast<int>(tensor.size(0));
  rows.token_stride = StrideOf(tensor, 0);
  rows.head_stride = StrideOr(tensor, 1, dim);
  rows.dtype = tensor.dtype();
  rows.device = tensor.device();
  return rows;
}

void ExpectBatchRows(const Tensor& tensor, int num_kv_heads, int dim) {
  tensor.Expect({-1, num_kv_heads, -1, dim}, "[batch, kv_heads, tokens, dim]");
}

RowsView BatchRowsOf(const Tensor& tensor, const BatchEntry& entry) {
  const auto dim = static_cast<ptrdiff_t>(tensor.size(3));
  RowsView rows;
  rows.data = tensor.at(entry.row, entry.start, 2);
  rows.num_tokens = static_cast<int>(entry.count);
  rows.token_stride = StrideOr(tensor, 2, dim * tensor.size(1));
  rows.head_stride = StrideOr(tensor, 1, dim);
  rows.dtype = tensor.dtype();
  rows.device = tensor.device();
  return rows;
}

pybind11::object OutputFor(const pybind11::handle& queries, const Tensor& tensor,
                           const CacheShape& shape) {
  ExpectQueries(tensor, shape);
  return EmptyLike(queries,
                   {tensor.size(0), shape.num_kv_heads * shape.group_size, shape.value_dim});
}

AttendRequest RequestOf(const Tensor& queries, const Tensor& output, SequenceId sequence,
                        const CacheShape& shape) {
  const int heads = shape.num_kv_heads * shape.group_size;
  ExpectQueries(queries, shape);
  output.Expect({queries.size(0), heads, shape.value_dim}, "[queries, query heads, value_dim]");
  output.ExpectBeside(queries);
  AttendRequest request;
  request.sequence = sequence;
  request.num_queries = static_cast<int>(queries.size(0));
  request.queries = queries.data();
  request.query_token_stride = StrideOf(queries, 0);
  request.query_head_stride = StrideOr(queries, 1, shape.key_dim);
  request.query_dtype = queries.dtype();
  request.output = output.data();
  request.output_token_stride = StrideOf(output, 0);
  request.output_head_stride = StrideOr(output, 1, shape.value_dim);
  request.output_dtype = output.dtype();
  request.device = queries.device();
  return request;
}

void ExpectBatchQueries(const Tensor& queries, const Tensor& output, const CacheShape& shape) {
  const int heads = shape.num_kv_heads * shape.group_size;
  queries.Expect({-1, heads, -1, shape.key_dim}, "[batch, query heads, tokens, key_dim]");
  output.Expect({queries.size(0), queries.size(2), heads, shape.value_dim},
                "[batch, tokens, query heads, value_dim]");
  output.ExpectBeside(queries);
}

AttendRequest BatchRequestOf(const Tensor& queries, const Tensor& output, const BatchEntry& entry) {
  const auto heads = static_cast<ptrdiff_t>(queries.size(1));
  const auto key_dim = static_cast<ptrdiff_t>(queries.size(3));
  const auto value_dim = static_cast<ptrdiff_t>(output.size(3));
  AttendRequest request;
  request.sequence = entry.sequence;
  request.num_queries = static_cast<int>(entry.count);
  request.queries = queries.at(entry.row, entry.start, 2);
  request.query_token_stride = StrideOr(queries, 2, heads * key_dim);
  request.query_head_stride = StrideOr(queries, 1, key_dim);
  request.query_dtype = queries.dtype();
  request.output = output.at(entry.row, entry.start, 1);
  request.output_token_stride = StrideOr(output, 1, heads * value_dim);
  request.output_head_stride = StrideOr(output, 2, value_dim);
  request.output_dtype = output.dtype();
  request.device = queries.device();
  return request;
}

std::vector<BatchEntry> MakeEntries(const std::vector<uint64_t>& sequences,
                                    const std::vector<int64_t>& starts,
                                    const std::vector<int64_t>& counts, int64_t num_tokens) {
  if (starts.size() != sequences.size() || counts.size() != sequences.size()) {
    Refuse("batch: " + std::to_string(sequences.size()) + " sequences, " +
           std::to_string(starts.size()) + " starts and " + std::to_string(counts.size()) +
           " counts");
  }
  std::vector<BatchEntry> entries;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (starts[i] < 0 || counts[i] < 0 || starts[i] > num_tokens ||
        counts[i] > num_tokens - starts[i]) {
      Refuse("batch: row " + std::to_string(i) + ": tokens " + std::to_string(starts[i]) + " to " +
             std::to_string(starts[i] + counts[i]) + " are outside 0 to " +
             std::to_string(num_tokens));
    }
    if (counts[i] > 0) {
      entries.push_back({.row = static_cast<int64_t>(i),
                         .sequence = {sequences[i]},
                         .start = starts[i],
                         .count = counts[i]});
    }
  }
  return entries;
}

}  // namespace varve::python
