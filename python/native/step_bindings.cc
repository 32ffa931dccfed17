// varve.Step.

#include <optional>
#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "bindings.h"
#include "requests.h"
#include "step_handle.h"

namespace py = pybind11;

namespace varve::python {
namespace {

constexpr const char* kStepDoc = R"(The next tokens of some sequences, through all layers.

A context manager: it commits at the end, and rolls back if something is raised.

>>> import numpy as np
>>> cache = varve.Cache(varve.Shape(num_layers=1, num_kv_heads=2, key_dim=64, group_size=2), "q8_0")
>>> sequence = cache.create_sequence()
>>> rows = np.ones((3, 2, 64), np.float32)
>>> with cache.step(sequence, 3) as step:
...     step.append(0, sequence, rows, rows)
...     output = step.attend(0, sequence, np.ones((3, 4, 64), np.float32))
>>> output.shape, cache.next_position(sequence)
((3, 4, 64), 3)
)";

constexpr const char* kAppendDoc = R"(Appends rows of one layer, keys after RoPE.

keys [tokens, kv_heads, key_dim], values [tokens, kv_heads, value_dim]; f32, f16 or bf16.
)";

constexpr const char* kAttendDoc = R"(Attention of the sequence's last tokens over one layer.

queries [tokens, query heads, key_dim], after RoPE. Gives [tokens, query heads, value_dim], in `out`
if it is there. scale=0 is 1 / sqrt(key_dim); soft_cap > 0 bounds scores by cap * tanh(score / cap);
window > 0 is the model's own sliding window; causal=False lets every query see every row.
)";

constexpr const char* kAppendBatchDoc = R"(Appends rows of one layer for a batch, in one call.

keys [batch, kv_heads, tokens, key_dim], values likewise. Of row b of the batch, the tokens
[starts[b], starts[b] + counts[b]) belong to sequences[b]; the others are padding.
)";

constexpr const char* kAttendBatchDoc = R"(Attention for a batch, in one call.

queries [batch, query heads, tokens, key_dim], out [batch, tokens, query heads, value_dim]; padding
is left as it is.
)";

constexpr const char* kAppendAttendBatchDoc = R"(append_batch and attend_batch, in one call.
)";

void Append(StepHandle& step, int layer, uint64_t sequence, const py::object& keys,
            const py::object& values) {
  CallTensors tensors = step.cache().MakeCallTensors();
  const Tensor key_tensor = tensors.Read(keys, "keys");
  const Tensor value_tensor = tensors.Read(values, "values");
  const CacheShape& shape = step.shape();
  const RowsView key_rows = RowsOf(key_tensor, shape.num_kv_heads, shape.key_dim);
  const RowsView value_rows = RowsOf(value_tensor, shape.num_kv_heads, shape.value_dim);
  step.RunWith(tensors,
               [&](Step& open) { return open.Append(layer, {sequence}, key_rows, value_rows); });
}

// The rows of a batch, checked: which tokens belong to which sequence.
struct BatchRows {
  Tensor keys;
  Tensor values;
  std::vector<BatchEntry> entries;

  Status AppendTo(Step& step, int layer) const {
    for (const BatchEntry& entry : entries) {
      VARVE_RETURN_IF_ERROR(
          step.Append(layer, entry.sequence, BatchRowsOf(keys, entry), BatchRowsOf(values, entry)));
    }
    return Status();
  }
};

BatchRows OpenRows(CallTensors& tensors, const CacheShape& shape,
                   const std::vector<uint64_t>& sequences, const py::object& keys,
                   const py::object& values, const std::vector<int64_t>& starts,
                   const std::vector<int64_t>& counts) {
  BatchRows rows = {tensors.Read(keys, "keys"), tensors.Read(values, "values"), {}};
  ExpectBatchRows(rows.keys, shape.num_kv_heads, shape.key_dim);
  ExpectBatchRows(rows.values, shape.num_kv_heads, shape.value_dim);
  rows.values.Expect({rows.keys.size(0), -1, rows.keys.size(2), -1}, "that of keys");
  rows.values.ExpectBeside(rows.keys);
  rows.keys.Expect({static_cast<int64_t>(sequences.size()), -1, -1, -1}, "a row per sequence");
  rows.entries = MakeEntries(sequences, starts, counts, rows.keys.size(2));
  return rows;
}

void AppendBatch(StepHandle& step, int layer, const std::vector<uint64_t>& sequences,
                 const py::object& keys, const py::object& values,
                 const std::vector<int64_t>& starts, const std::vector<int64_t>& counts) {
  CallTensors tensors = step.cache().MakeCallTensors();
  const BatchRows rows = OpenRows(tensors, step.shape(), sequences, keys, values, starts, counts);
  step.RunWith(tensors, [&](Step& open) { return rows.AppendTo(open, layer); });
}

py::object Attend(StepHandle& step, int layer, uint64_t sequence, const py::object& queries,
                  const std::optional<py::object>& out, const AttendOptions& options) {
  CallTensors tensors = step.cache().MakeCallTensors();
  const Tensor query_tensor = tensors.Read(queries, "queries");
  const CacheShape& shape = step.shape();
  py::object result = out ? *out : OutputFor(queries, query_tensor, shape);
  const Tensor output = tensors.Write(result, "out");
  const AttendRequest request = RequestOf(query_tensor, output, {sequence}, shape);
  step.RunWith(tensors, [&](Step& open) { return open.Attend(layer, {&request, 1}, options); });
  return result;
}

std::vector<AttendRequest> RequestsOf(const CacheShape& shape, const Tensor& queries,
                                      const Tensor& output, size_t batch,
                                      const std::vector<BatchEntry>& entries) {
  ExpectBatchQueries(queries, output, shape);
  queries.Expect({static_cast<int64_t>(batch), -1, -1, -1}, "a row per sequence");
  std::vector<AttendRequest> requests;
  requests.reserve(entries.size());
  for (const BatchEntry& entry : entries) {
    requests.push_back(BatchRequestOf(queries, output, entry));
  }
  return requests;
}

void AttendBatch(StepHandle& step, int layer, const std::vector<uint64_t>& sequences,
                 const py::object& queries, const py::object& out,
                 const std::vector<int64_t>& starts, const std::vector<int64_t>& counts,
                 const AttendOptions& options) {
  CallTensors tensors = step.cache().MakeCallTensors();
  const Tensor query_tensor = tensors.Read(queries, "queries");
  const Tensor output = tensors.Write(out, "out");
  query_tensor.Expect({-1, -1, -1, -1}, "[batch, query heads, tokens, key_dim]");
  const auto requests = RequestsOf(step.shape(), query_tensor, output, sequences.size(),
                                   MakeEntries(sequences, starts, counts, query_tensor.size(2)));
  step.RunWith(tensors, [&](Step& open) { return open.Attend(layer, requests, options); });
}

void AppendAttendBatch(StepHandle& step, int layer, const std::vector<uint64_t>& sequences,
                       const py::object& keys, const py::object& values, const py::object& queries,
                       const py::object& out, const std::vector<int64_t>& starts,
                       const std::vector<int64_t>& counts, const AttendOptions& options) {
  CallTensors tensors = step.cache().MakeCallTensors();
  const BatchRows rows = OpenRows(tensors, step.shape(), sequences, keys, values, starts, counts);
  const Tensor query_tensor = tensors.Read(queries, "queries");
  const Tensor output = tensors.Write(out, "out");
  query_tensor.Expect({-1, -1, rows.keys.size(2), -1}, "[batch, query heads, tokens, key_dim]");
  const auto requests =
      RequestsOf(step.shape(), query_tensor, output, sequences.size(), rows.entries);
  step.RunWith(tensors, [&](Step& open) {
    VARVE_RETURN_IF_ERROR(rows.AppendTo(open, layer));
    return open.Attend(layer, requests, options);
  });
}

// commit() unless the body raised, or has ended the step itself.
void Exit(StepHandle& step, const py::object& type, const py::object& /*value*/,
          const py::object& /*traceback*/) {
  if (!type.is_none()) {
    step.Abort();
  } else if (step.is_open()) {
    step.Commit();
  }
}

}  // namespace

void RegisterStep(py::module_& module) {
  py::class_<StepHandle>(module, "Step", kStepDoc)
      .def("append", &Append, py::arg("layer"), py::arg("sequence"), py::arg("keys"),
           py::arg("values"), kAppendDoc)
      .def("append_batch", &AppendBatch, py::arg("layer"), py::arg("sequences"), py::arg("keys"),
           py::arg("values"), py::arg("starts"), py::arg("counts"), kAppendBatchDoc)
      .def(
          "attend",
          [](StepHandle& step, int layer, uint64_t sequence, const py::object& queries,
             const std::optional<py::object>& out, float scale, float soft_cap, int64_t window,
             bool causal) {
            return Attend(
                step, layer, sequence, queries, out,
                {.scale = scale, .soft_cap = soft_cap, .window = window, .causal = causal});
          },
          py::arg("layer"), py::arg("sequence"), py::arg("queries"), py::arg("out") = py::none(),
          py::kw_only(), py::arg("scale") = 0.0f, py::arg("soft_cap") = 0.0f, py::arg("window") = 0,
          py::arg("causal") = true, kAttendDoc)
      .def(
          "attend_batch",
          [](StepHandle& step, int layer, const std::vector<uint64_t>& sequences,
             const py::object& queries, const py::object& out, const std::vector<int64_t>& starts,
             const std::vector<int64_t>& counts, float scale, float soft_cap, int64_t window,
             bool causal) {
            AttendBatch(step, layer, sequences, queries, out, starts, counts,
                        {.scale = scale, .soft_cap = soft_cap, .window = window, .causal = causal});
          },
          py::arg("layer"), py::arg("sequences"), py::arg("queries"), py::arg("out"),
          py::arg("starts"), py::arg("counts"), py::kw_only(), py::arg("scale") = 0.0f,
          py::arg("soft_cap") = 0.0f, py::arg("window") = 0, py::arg("causal") = true,
          kAttendBatchDoc)
      .def(
          "append_attend_batch",
          [](StepHandle& step, int layer, const std::vector<uint64_t>& sequences,
             const py::object& keys, const py::object& values, const py::object& queries,
             const py::object& out, const std::vector<int64_t>& starts,
             const std::vector<int64_t>& counts, float scale, float soft_cap, int64_t window) {
            AppendAttendBatch(step, layer, sequences, keys, values, queries, out, starts, counts,
                              {.scale = scale, .soft_cap = soft_cap, .window = window});
          },
          py::arg("layer"), py::arg("sequences"), py::arg("keys"), py::arg("values"),
          py::arg("queries"), py::arg("out"), py::arg("starts"), py::arg("counts"),
          py::arg("scale") = 0.0f, py::arg("soft_cap") = 0.0f, py::arg("window") = 0,
          kAppendAttendBatchDoc)
      .def("commit", &StepHandle::Commit, "Keeps the tokens; every layer must have its rows.")
      .def("abort", &StepHandle::Abort, "Forgets the tokens.")
      .def_property_readonly("is_open", &StepHandle::is_open)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", &Exit);
}

}  // namespace varve::python
