// Files of caches: Cache.save, Cache.load, and what a file is without a cache.

#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings.h"
#include "cache_handle.h"
#include "figures.h"
#include "varve/cache_file.h"

namespace py = pybind11;

namespace varve::python {
namespace {

constexpr const char* kSaveDoc = R"(Writes sequences to a file, whole or not at all.

sequences: a dict of sequence to token ids (which the cache does not know), or None for all of them.

>>> import os, tempfile
>>> cache = varve.Cache(varve.Shape(num_layers=1, num_kv_heads=1, key_dim=32), "q8_0")
>>> path = os.path.join(tempfile.mkdtemp(), "cache.varve")
>>> cache.save(path, {cache.create_sequence(): [1, 2, 3]}, model_name="none")
>>> [tokens for sequence, tokens in cache.load(path)]
[[1, 2, 3]]
>>> varve.cache_file_info(path)["model_name"]
'none'
)";

using TokenLists = std::vector<std::pair<uint64_t, std::vector<int32_t>>>;

void Save(CacheHandle& handle, const std::string& path, const py::object& sequences,
          uint64_t model_fingerprint, const std::string& model_name) {
  SaveOptions options{
      .sequences = {}, .model_fingerprint = model_fingerprint, .model_name = model_name};
  if (!sequences.is_none()) {
    for (const auto& [sequence, tokens] : py::cast<py::dict>(sequences)) {
      options.sequences.push_back({.sequence = {py::cast<uint64_t>(sequence)},
                                   .tokens = py::cast<std::vector<int32_t>>(tokens)});
    }
    if (options.sequences.empty()) Refuse("sequences: the dict is empty; None saves all of them");
  }
  handle.RunAndTake([&](Cache& cache) { return cache.Save(path, options); });
}

TokenLists Load(CacheHandle& handle, const std::string& path, uint64_t model_fingerprint) {
  const LoadOptions options{.model_fingerprint = model_fingerprint};
  TokenLists lists;
  for (SequenceTokens& loaded :
       handle.RunAndTake([&](Cache& cache) { return cache.Load(path, options); })) {
    lists.emplace_back(loaded.sequence.value, std::move(loaded.tokens));
  }
  return lists;
}

}  // namespace

void RegisterFiles(py::module_& module) {
  auto cache = py::reinterpret_borrow<py::class_<CacheHandle, std::shared_ptr<CacheHandle>>>(
      module.attr("Cache"));
  cache
      .def("save", &Save, py::arg("path"), py::arg("sequences") = py::none(), py::kw_only(),
           py::arg("model_fingerprint") = 0, py::arg("model_name") = "", kSaveDoc)
      .def("load", &Load, py::arg("path"), py::kw_only(), py::arg("model_fingerprint") = 0,
           "Adds the file's sequences: [(sequence, token ids), …]. Shape and plan must agree.");
  module.def(
      "cache_file_info",
      [](const std::string& path) { return FileInfoDict(Take(ReadCacheFileInfo(path))); },
      py::arg("path"),
      "What a .varve file holds, its shape and plan included; pages are not read.");
  module.def(
      "verify_cache_file", [](const std::string& path) { Check(VerifyCacheFile(path)); },
      py::arg("path"), "Reads and checks every page; raises at the first fault.");
}

}  // namespace varve::python
