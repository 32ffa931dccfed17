// Tensors of Python as the rows and requests that a cache takes. Shapes are checked here, by name;
// nothing is copied.

#ifndef VARVE_PYTHON_NATIVE_REQUESTS_H_
#define VARVE_PYTHON_NATIVE_REQUESTS_H_

#include <cstdint>
#include <vector>

#include "tensor.h"
#include "varve/cache.h"

namespace varve::python {

// Which tokens of a row of a batch belong to a sequence: [start, start + count).
struct BatchEntry {
  int64_t row = 0;
  SequenceId sequence;
  int64_t start = 0;
  int64_t count = 0;
};

// [tokens, kv_heads, dim]
RowsView RowsOf(const Tensor& tensor, int num_kv_heads, int dim);
// The entry's tokens of [batch, kv_heads, tokens, dim].
RowsView BatchRowsOf(const Tensor& tensor, const BatchEntry& entry);
void ExpectBatchRows(const Tensor& tensor, int num_kv_heads, int dim);

// queries [queries, heads, key_dim], output [queries, heads, value_dim]
AttendRequest RequestOf(const Tensor& queries, const Tensor& output, SequenceId sequence,
                        const CacheShape& shape);
// An array for the output, of the library that the queries come from.
pybind11::object OutputFor(const pybind11::handle& queries, const Tensor& tensor,
                           const CacheShape& shape);
// The entry's tokens of queries [batch, heads, tokens, key_dim] and output [batch, tokens, heads,
// value_dim], the layout of transformers.
AttendRequest BatchRequestOf(const Tensor& queries, const Tensor& output, const BatchEntry& entry);
void ExpectBatchQueries(const Tensor& queries, const Tensor& output, const CacheShape& shape);

// Entries of the rows of a batch that have tokens. Refuses spans outside of `num_tokens`.
std::vector<BatchEntry> MakeEntries(const std::vector<uint64_t>& sequences,
                                    const std::vector<int64_t>& starts,
                                    const std::vector<int64_t>& counts, int64_t num_tokens);

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_REQUESTS_H_
