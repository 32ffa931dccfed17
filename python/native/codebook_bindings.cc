// varve.Codebook and varve.Compressor: constants of a model that plans may need.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "bindings.h"
#include "bytes_view.h"
#include "errors.h"
#include "varve/codebook.h"
#include "varve/compressor.h"

namespace py = pybind11;

namespace varve::python {
namespace {

template <typename T>
std::vector<T> Numbers(const py::bytes& bytes, const char* what) {
  const std::string_view view = bytes;
  if (view.size() % sizeof(T) != 0) {
    Refuse(std::string(what) + ": " + std::to_string(view.size()) + " bytes are no whole number");
  }
  std::vector<T> numbers(view.size() / sizeof(T));
  if (!view.empty()) std::memcpy(numbers.data(), view.data(), view.size());
  return numbers;
}

CodebookTable MakeTable(const std::string& part, int dim, int num_subspaces, int bits,
                        CodebookGrain grain, const py::bytes& scales, const py::bytes& centroids,
                        const py::bytes& rotation) {
  if (part != "k" && part != "v") Refuse("part: '" + part + "' is neither 'k' nor 'v'");
  return {.part = part == "k" ? Part::kKey : Part::kValue,
          .dim = dim,
          .num_subspaces = num_subspaces,
          .bits = bits,
          .grain = grain,
          .scales = Numbers<float>(scales, "scales"),
          .centroids = Numbers<uint8_t>(centroids, "centroids"),
          .rotation = Numbers<uint16_t>(rotation, "rotation")};
}

std::shared_ptr<Codebook> MakeCodebook(int num_layers, int num_kv_heads,
                                       std::vector<CodebookTable> tables,
                                       uint64_t model_fingerprint, const std::string& model_name,
                                       const std::string& trained_on) {
  auto codebook = std::make_shared<Codebook>();
  codebook->num_layers = num_layers;
  codebook->num_kv_heads = num_kv_heads;
  codebook->model_fingerprint = model_fingerprint;
  codebook->model_name = model_name;
  codebook->trained_on = trained_on;
  codebook->tables = std::move(tables);
  Check(CheckCodebook(*codebook));
  return codebook;
}

py::bytes CodebookBytes(const Codebook& codebook) {
  const std::vector<std::byte> bytes = SerializeCodebook(codebook);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void RegisterTables(py::module_& module) {
  py::enum_<CodebookGrain>(module, "CodebookGrain", "What shares centroids.")
      .value("MODEL", CodebookGrain::kModel)
      .value("LAYER", CodebookGrain::kLayer)
      .value("HEAD", CodebookGrain::kHead);
  py::class_<CodebookTable>(module, "CodebookTable",
                            "Centroids of one part ('k' or 'v') and size; arrays are bytes as "
                            "docs/format/codebook.md has them.")
      .def(py::init(&MakeTable), py::kw_only(), py::arg("part"), py::arg("dim"),
           py::arg("num_subspaces"), py::arg("bits"), py::arg("grain"), py::arg("scales"),
           py::arg("centroids"), py::arg("rotation") = py::bytes())
      .def_property_readonly(
          "part", [](const CodebookTable& table) { return table.part == Part::kKey ? "k" : "v"; })
      .def_readonly("dim", &CodebookTable::dim)
      .def_readonly("num_subspaces", &CodebookTable::num_subspaces)
      .def_readonly("bits", &CodebookTable::bits)
      .def_readonly("grain", &CodebookTable::grain)
      .def_property_readonly("num_bytes", &CodebookTable::bytes);
}

}  // namespace

void RegisterCodebook(py::module_& module) {
  RegisterTables(module);
  py::class_<Codebook, std::shared_ptr<Codebook>>(
      module, "Codebook", "Centroids of the pq rungs. `varve.train_codebook` makes one.")
      .def(py::init(&MakeCodebook), py::kw_only(), py::arg("num_layers"), py::arg("num_kv_heads"),
           py::arg("tables"), py::arg("model_fingerprint") = 0, py::arg("model_name") = "",
           py::arg("trained_on") = "")
      .def_static(
          "load",
          [](const std::string& path) {
            return std::const_pointer_cast<Codebook>(Take(LoadCodebook(path)));
          },
          py::arg("path"), "From a file of `varve codebook train` or `save`.")
      .def_static(
          "parse",
          [](const py::buffer& bytes) {
            return std::make_shared<Codebook>(
                Take(ParseCodebook(BytesView(bytes, "bytes").bytes(), "bytes")));
          },
          py::arg("bytes"), "From the bytes of such a file.")
      .def(
          "save",
          [](const Codebook& codebook, const std::string& path) {
            Check(SaveCodebook(codebook, path));
          },
          py::arg("path"), "Writes the file, whole or not at all.")
      .def("to_bytes", &CodebookBytes, "The bytes of the file.")
      .def_readonly("num_layers", &Codebook::num_layers)
      .def_readonly("num_kv_heads", &Codebook::num_kv_heads)
      .def_readonly("model_fingerprint", &Codebook::model_fingerprint)
      .def_readonly("model_name", &Codebook::model_name)
      .def_readonly("trained_on", &Codebook::trained_on)
      .def_readonly("tables", &Codebook::tables)
      .def_property_readonly("hash", &CodebookHash);

  py::class_<Compressor, std::shared_ptr<Compressor>>(
      module, "Compressor", "Networks that fold prompts (`fold=shipped` in a plan).")
      .def_static(
          "load",
          [](const std::string& path) {
            return std::const_pointer_cast<Compressor>(Take(LoadCompressor(path)));
          },
          py::arg("path"), "From a file of `varve fold convert`.")
      .def_readonly("factor", &Compressor::factor, "Tokens that become a row.")
      .def_readonly("head_dim", &Compressor::head_dim)
      .def_property_readonly("num_layers", &Compressor::num_layers)
      .def_property_readonly("num_bytes", &Compressor::bytes)
      .def_property_readonly("hash", &CompressorHash);
}

}  // namespace varve::python
