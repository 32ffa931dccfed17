// varve.Shape and varve.Plan.

#include <string>

#include <pybind11/stl.h>

#include "bindings.h"
#include "errors.h"
#include "figures.h"
#include "varve/plan.h"
#include "varve/plan_estimate.h"

namespace py = pybind11;

namespace varve::python {
namespace {

constexpr const char* kShapeDoc = R"(The part of a model that a cache must know.

>>> shape = varve.Shape(num_layers=2, num_kv_heads=2, key_dim=64, group_size=4)
>>> shape.value_dim
64
)";

constexpr const char* kPlanDoc = R"(How a cache stores its pages: the text of `--kv`.

>>> plan = varve.Plan("k=q8_0, v=q4_0r")
>>> str(plan)
'k=q8_0,v=q4_0r'
>>> plan == varve.Plan.from_json('{"k": "q8_0", "v": "q4_0r"}')
True
)";

constexpr const char* kEstimateDoc =
    R"(What one sequence of `num_tokens` costs, before anything runs.

`assumed=True` takes codebooks and compressors to be there, without reading them.

>>> shape = varve.Shape(num_layers=2, num_kv_heads=2, key_dim=64)
>>> cost = varve.Plan("q8_0").estimate(shape, 4096)
>>> round(cost["bytes_f16"] / cost["bytes"], 2)
1.88
)";

CacheShape MakeShape(int num_layers, int num_kv_heads, int key_dim, int value_dim, int group_size,
                     int page_tokens) {
  return {.num_layers = num_layers,
          .num_kv_heads = num_kv_heads,
          .group_size = group_size,
          .key_dim = key_dim,
          .value_dim = value_dim == 0 ? key_dim : value_dim,
          .page_tokens = page_tokens};
}

std::string ShapeText(const CacheShape& shape) {
  return "Shape(num_layers=" + std::to_string(shape.num_layers) +
         ", num_kv_heads=" + std::to_string(shape.num_kv_heads) +
         ", key_dim=" + std::to_string(shape.key_dim) +
         ", value_dim=" + std::to_string(shape.value_dim) +
         ", group_size=" + std::to_string(shape.group_size) +
         ", page_tokens=" + std::to_string(shape.page_tokens) + ")";
}

py::dict Estimate(const Plan& plan, const CacheShape& shape, int64_t num_tokens,
                  std::shared_ptr<Codebook> codebook, std::shared_ptr<Compressor> compressor,
                  uint64_t model_fingerprint, bool assumed) {
  const PlanResources resources{.codebook = std::move(codebook),
                                .compressor = std::move(compressor),
                                .model_fingerprint = model_fingerprint,
                                .assumed = assumed};
  return CostDict(Take(EstimatePlan(plan, shape, resources, num_tokens)));
}

}  // namespace

void RegisterPlan(py::module_& module) {
  py::class_<CacheShape>(module, "Shape", kShapeDoc)
      .def(py::init(&MakeShape), py::arg("num_layers"), py::arg("num_kv_heads"), py::arg("key_dim"),
           py::arg("value_dim") = 0, py::arg("group_size") = 1, py::arg("page_tokens") = 0)
      .def_readonly("num_layers", &CacheShape::num_layers)
      .def_readonly("num_kv_heads", &CacheShape::num_kv_heads)
      .def_readonly("key_dim", &CacheShape::key_dim)
      .def_readonly("value_dim", &CacheShape::value_dim)
      .def_readonly("group_size", &CacheShape::group_size, "Query heads per KV head.")
      .def_readonly("page_tokens", &CacheShape::page_tokens, "0: what the plan says.")
      .def("__repr__", &ShapeText);

  py::class_<Plan>(module, "Plan", kPlanDoc)
      .def(py::init([](const std::string& text) { return Take(ParsePlan(text)); }),
           py::arg("text") = "")
      .def(py::init<const Plan&>(), py::arg("plan"))
      .def_static(
          "from_json", [](const std::string& json) { return Take(ParsePlanJson(json)); },
          py::arg("json"), "A plan from its JSON form, the H2O system's keys included.")
      .def("to_json", &PrintPlanJson, "The JSON form, one line.")
      .def(
          "check_supported", [](const Plan& plan) { Check(CheckSupported(plan)); },
          "Raises if this build cannot run the plan, whatever the model.")
      .def_property_readonly("page_tokens", &Plan::PageTokens, "Tokens of a page.")
      .def("estimate", &Estimate, py::arg("shape"), py::arg("num_tokens"),
           py::arg("codebook") = nullptr, py::arg("compressor") = nullptr,
           py::arg("model_fingerprint") = 0, py::arg("assumed") = false, kEstimateDoc)
      .def("__str__", &PrintPlan)
      .def("__repr__", [](const Plan& plan) { return "Plan('" + PrintPlan(plan) + "')"; })
      .def(
          "__eq__", [](const Plan& plan, const Plan& other) { return plan == other; },
          py::is_operator(), "Text is read as a plan; what is none is not equal.")
      .def("__hash__", [](const Plan& plan) { return py::hash(py::str(PrintPlan(plan))); });
  py::implicitly_convertible<std::string, Plan>();

  module.def(
      "rung_bytes_per_row",
      [](const std::string& rung, int dim, int page_tokens) {
        return Take(RungBytesPerRow(rung, Part::kKey, dim, page_tokens));
      },
      py::arg("rung"), py::arg("dim"), py::arg("page_tokens") = 64,
      "Bytes of one row of K or V of one head in a rung, scales included.\n\n"
      ">>> varve.rung_bytes_per_row('q8_0', 64)\n68.0\n");
}

}  // namespace varve::python
