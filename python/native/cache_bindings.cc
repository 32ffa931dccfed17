// varve.Cache, and where caches can be.

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <pybind11/stl.h>

#include "bindings.h"
#include "bytes_view.h"
#include "cache_cycles.h"
#include "cache_handle.h"
#include "figures.h"
#include "requests.h"
#include "step_handle.h"
#include "varve/properties.h"

namespace py = pybind11;

namespace varve::python {
namespace {

// PagePool is opaque to programs; pybind11 wants to know a type's size.
struct PoolHandle {
  std::shared_ptr<PagePool> pool;
};

// A GPU's memory is taken in pieces of so many: several slabs of the pool, little beside a model.
constexpr uint64_t kChunkBytes = uint64_t{128} << 20;

constexpr const char* kBackendsDoc =
    R"(Where caches of this build can be: ["cpu"], or ["cpu", "cuda"] if it was built with CUDA.

Says nothing about the machine: without a GPU `Cache(..., device="cuda")` raises all the same.

>>> "cpu" in varve.backends()
True
)";

using CacheClass = py::class_<CacheHandle, std::shared_ptr<CacheHandle>>;

constexpr const char* kCacheDoc =
    R"(The keys and values of a model, in pages that sink to cheaper forms.

Sequences are numbers that `create_sequence`, `fork` and `load` give. `max_bytes` caps what pages
hold; 0 is no cap. Caches with the same `pool` share their memory and its cap. `on_attention`,
`on_retention` and `on_log` are functions that get an AttentionEvent, a RetentionEvent or a line
(of plans with log_stats=1); they must not call into the cache. One thread at a time works on a
cache; others wait. Work runs without the GIL.

`device` is "cpu", "cuda" or "cuda:1"; "cuda" is torch's current GPU, or without torch the first
one. On a GPU, memory is taken in pieces of `device_chunk_bytes` as pages need it; 0 takes
`max_bytes` at once (0: most of what is free). Calls with tensors of that GPU do not wait for it:
work goes to torch's current stream, behind what torch has put there. For other libraries, and until
tensors of torch come, it goes to `stream`: 1 is the default one of CUDA, others are handles
(torch.cuda.Stream.cuda_stream). Arrays in the host's memory are copied, and waited for.

>>> shape = varve.Shape(num_layers=2, num_kv_heads=2, key_dim=64, group_size=4)
>>> cache = varve.Cache(shape, "age=f16:128/q8_0")
>>> cache.next_position(cache.create_sequence())
0
)";

constexpr const char* kReadRowsDoc =
    R"(The live rows of positions [begin, end) in one layer, as f32.

part is 'k' or 'v'; end=None is the next position. Gives [kv_heads, rows, dim].

>>> cache = varve.Cache(varve.Shape(num_layers=1, num_kv_heads=1, key_dim=32))
>>> sequence = cache.create_sequence()
>>> cache.read_rows(sequence, 0, 'k').shape
(1, 0, 32)
)";

std::shared_ptr<CacheHandle> MakeCache(
    const CacheShape& shape, const Plan& plan, std::shared_ptr<Codebook> codebook,
    std::shared_ptr<Compressor> compressor, uint64_t model_fingerprint, uint64_t max_bytes,
    int num_threads, const std::optional<PoolHandle>& pool, const py::object& device,
    uint64_t device_chunk_bytes, uintptr_t stream, const py::object& on_attention,
    const py::object& on_retention, const py::object& on_log, bool time_stages) {
  const Place place = PlaceOf(device, stream);
  CacheOptions options;
  options.plan = plan;
  options.codebook = std::move(codebook);
  options.compressor = std::move(compressor);
  options.model_fingerprint = model_fingerprint;
  options.max_bytes = max_bytes;
  options.num_threads = num_threads;
  if (pool) options.pool = pool->pool;
  if (place.device == Device::kCuda) options.device_chunk_bytes = device_chunk_bytes;
  options.time_stages = time_stages;
  return std::make_shared<CacheHandle>(
      shape, std::move(options), place,
      std::make_unique<Observers>(on_attention, on_retention, on_log));
}

Part PartOf(const std::string& part) {
  if (part != "k" && part != "v") Refuse("part: '" + part + "' is neither 'k' nor 'v'");
  return part == "k" ? Part::kKey : Part::kValue;
}

int64_t LiveRows(Cache& cache, SequenceId sequence, int layer, int64_t begin, int64_t end) {
  const Result<SequenceInfo> info = cache.Describe(sequence, layer);
  if (!info.ok()) return 0;  // ReadRows gives the reason
  int64_t rows = 0;
  for (const PageSpan& page : info->pages) {
    if (page.first_position < end && page.first_position + page.num_positions > begin) {
      rows += page.num_live_rows;
    }
  }
  return rows;
}

py::object ReadRows(CacheHandle& handle, uint64_t sequence, int layer, const std::string& part_name,
                    int64_t begin, std::optional<int64_t> end) {
  const Part part = PartOf(part_name);
  const CacheShape& shape = handle.shape();
  const int dim = part == Part::kKey ? shape.key_dim : shape.value_dim;
  // A step may have appended rows behind the next position.
  const int64_t last = end.value_or(INT64_MAX);
  int64_t rows = 0;
  std::vector<float> numbers;
  handle.RunAndTake([&](Cache& cache) -> Status {
    const int64_t most = LiveRows(cache, {sequence}, layer, begin, last);
    const auto head_values = static_cast<size_t>(most) * static_cast<size_t>(dim);
    numbers.resize(head_values * static_cast<size_t>(shape.num_kv_heads) + 1);
    size_t used = 0;
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      VARVE_ASSIGN_OR_RETURN(
          rows, cache.ReadRows({sequence}, layer, head, part, begin, last, numbers.data() + used));
      used += static_cast<size_t>(rows) * static_cast<size_t>(dim);
    }
    return Status();
  });
  py::object array = EmptyFloats({shape.num_kv_heads, rows, dim});
  const Tensor tensor = Tensor::Write(array, "rows", {});
  std::memcpy(tensor.data(), numbers.data(),
              static_cast<size_t>(shape.num_kv_heads) * static_cast<size_t>(rows) *
                  static_cast<size_t>(dim) * sizeof(float));
  return array;
}

// All live rows of each sequence, into out [batch, kv_heads, tokens, dim] f32.
void ReadBatch(CacheHandle& handle, int layer, const std::string& part_name,
               const std::vector<uint64_t>& sequences, const py::object& out) {
  const Part part = PartOf(part_name);
  const CacheShape& shape = handle.shape();
  if (!IsOnHost(out)) Refuse("out: read_batch decodes on the host; pass an array of the host");
  const Tensor output = Tensor::Write(out, "out", {});
  output.Expect({static_cast<int64_t>(sequences.size()), shape.num_kv_heads, -1,
                 part == Part::kKey ? shape.key_dim : shape.value_dim},
                "[batch, kv_heads, tokens, dim]");
  if (output.dtype() != DType::kF32 || !output.is_dense()) Refuse("out: must be dense float32");
  const int64_t tokens = output.size(2);
  handle.RunAndTake([&](Cache& cache) -> Status {
    for (size_t row = 0; row < sequences.size(); ++row) {
      const SequenceId sequence{sequences[row]};
      const int64_t live = LiveRows(cache, sequence, layer, 0, INT64_MAX);
      if (live != tokens) {
        return FailedPrecondition("sequence " + std::to_string(sequence.value) + " has " +
                                  std::to_string(live) + " live rows in layer " +
                                  std::to_string(layer) + ", not " + std::to_string(tokens));
      }
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        auto* rows = reinterpret_cast<float*>(output.at(static_cast<int64_t>(row), head));
        VARVE_RETURN_IF_ERROR(
            cache.ReadRows(sequence, layer, head, part, 0, INT64_MAX, rows).status());
      }
    }
    return Status();
  });
}

std::unique_ptr<StepHandle> BeginStep(
    const std::shared_ptr<CacheHandle>& handle,
    const std::variant<uint64_t, std::vector<std::pair<uint64_t, int>>>& what, int num_tokens) {
  std::vector<StepEntry> entries;
  if (const auto* sequence = std::get_if<uint64_t>(&what)) {
    entries.push_back({.sequence = {*sequence}, .num_tokens = num_tokens});
  } else {
    for (const auto& [id, tokens] : std::get<1>(what)) {
      entries.push_back({.sequence = {id}, .num_tokens = tokens});
    }
  }
  return std::make_unique<StepHandle>(handle, entries);
}

py::object AttendOutside(CacheHandle& handle, int layer, uint64_t sequence,
                         const py::object& queries, const std::optional<py::object>& out,
                         float scale, float soft_cap, int64_t window, bool causal) {
  CallTensors tensors = handle.MakeCallTensors();
  const Tensor query_tensor = tensors.Read(queries, "queries");
  const CacheShape& shape = handle.shape();
  py::object result = out ? *out : OutputFor(queries, query_tensor, shape);
  const Tensor output = tensors.Write(result, "out");
  const AttendRequest request = RequestOf(query_tensor, output, {sequence}, shape);
  const AttendOptions options{
      .scale = scale, .soft_cap = soft_cap, .window = window, .causal = causal};
  handle.RunWith(tensors, [&](Cache& cache) {
    return cache.Attend(layer, {&request, 1}, options);
  });
  return result;
}

py::dict Describe(CacheHandle& handle, uint64_t sequence, int layer) {
  const SequenceInfo info =
      handle.RunAndTake([&](Cache& cache) { return cache.Describe({sequence}, layer); });
  py::dict dict;
  dict["next_position"] = info.next_position;
  dict["live_rows"] = info.live_rows;
  dict["pages"] = info.pages;
  return dict;
}

void RegisterSequences(CacheClass& cache) {
  cache
      .def(
          "create_sequence",
          [](CacheHandle& handle) {
            return handle.RunAndTake([](Cache& held) { return held.CreateSequence(); }).value;
          },
          "An empty sequence.")
      .def(
          "fork",
          [](CacheHandle& handle, uint64_t source) {
            return handle.RunAndTake([&](Cache& held) { return held.Fork({source}); }).value;
          },
          py::arg("source"), "A sequence with the same content, which shares every page.")
      .def(
          "free",
          [](CacheHandle& handle, uint64_t sequence) {
            handle.RunAndTake([&](Cache& held) { return held.Free({sequence}); });
          },
          py::arg("sequence"))
      .def(
          "next_position",
          [](CacheHandle& handle, uint64_t sequence) {
            return handle.RunAndTake([&](Cache& held) { return held.NextPosition({sequence}); });
          },
          py::arg("sequence"), "The position that the next token will have.")
      .def(
          "tokens_seen",
          [](CacheHandle& handle, uint64_t sequence) {
            return handle.RunAndTake([&](Cache& held) { return held.TokensSeen({sequence}); });
          },
          py::arg("sequence"), "Tokens that the sequence has been fed.")
      .def("describe", &Describe, py::arg("sequence"), py::arg("layer"),
           "{'next_position', 'live_rows', 'pages'} of one layer.");
}

// What changes the content of a sequence without a step.
void RegisterCuts(CacheClass& cache) {
  cache
      .def(
          "truncate",
          [](CacheHandle& handle, uint64_t sequence, int64_t position) {
            handle.RunAndTake([&](Cache& held) { return held.Truncate({sequence}, position); });
          },
          py::arg("sequence"), py::arg("position"), "Forgets positions >= position.")
      .def(
          "remove_range",
          [](CacheHandle& handle, uint64_t sequence, int64_t begin, int64_t end) {
            handle.RunAndTake(
                [&](Cache& held) { return held.RemoveRange({sequence}, begin, end); });
          },
          py::arg("sequence"), py::arg("begin"), py::arg("end"),
          "Forgets positions in [begin, end); others keep their numbers.")
      .def(
          "keep_only",
          [](CacheHandle& handle, uint64_t sequence, int64_t begin, int64_t end) {
            handle.RunAndTake([&](Cache& held) { return held.KeepOnly({sequence}, begin, end); });
          },
          py::arg("sequence"), py::arg("begin"), py::arg("end"),
          "Forgets everything outside [begin, end).")
      .def(
          "slide_window",
          [](CacheHandle& handle, uint64_t sequence, int64_t tokens, int64_t sink) {
            handle.RunAndTake(
                [&](Cache& held) { return held.SlideWindow({sequence}, tokens, sink); });
          },
          py::arg("sequence"), py::arg("num_tokens"), py::arg("sink_tokens") = 0,
          "Drops pages wholly older than num_tokens, except those of the first sink_tokens.")
      .def(
          "rest",
          [](CacheHandle& handle, uint64_t sequence, int64_t begin, int64_t end) {
            return handle.RunAndTake(
                [&](Cache& held) { return held.Rest({sequence}, begin, end); });
          },
          py::arg("sequence"), py::arg("begin"), py::arg("end"),
          "Brings full pages of [begin, end) to the form of idle=; how many have taken it.")
      .def(
          "find_cut",
          [](CacheHandle& handle, uint64_t sequence, int64_t num_tokens) {
            const CutPoint cut = handle.RunAndTake(
                [&](Cache& held) { return held.FindCut({sequence}, num_tokens); });
            return std::make_pair(cut.num_tokens, cut.position);
          },
          py::arg("sequence"), py::arg("num_tokens"),
          "Where to truncate so that at most num_tokens stay: (tokens that stay, position).");
}

void RegisterSteps(CacheClass& cache) {
  cache
      .def(
          "max_step_tokens",
          [](CacheHandle& handle, uint64_t sequence) {
            return handle.RunAndTake([&](Cache& held) { return held.MaxStepTokens({sequence}); });
          },
          py::arg("sequence"), "How many tokens the next step may hold, at least 1.")
      .def("step", &BeginStep, py::arg("sequence"), py::arg("num_tokens") = 1,
           "Begins a step of one sequence, or of several: [(sequence, num_tokens), …].")
      .def("attend", &AttendOutside, py::arg("layer"), py::arg("sequence"), py::arg("queries"),
           py::arg("out") = py::none(), py::kw_only(), py::arg("scale") = 0.0f,
           py::arg("soft_cap") = 0.0f, py::arg("window") = 0, py::arg("causal") = true,
           "Attention outside a step: queries of the last positions. Otherwise as Step.attend.")
      .def(
          "begin_prompt",
          [](CacheHandle& handle, uint64_t sequence) {
            handle.RunAndTake([&](Cache& held) { return held.BeginPrompt({sequence}); });
          },
          py::arg("sequence"), "What is appended from here on is a prompt (fold=).")
      .def(
          "end_prompt",
          [](CacheHandle& handle, uint64_t sequence, bool fold) {
            handle.RunAndTake(
                [&](Cache& held) { return held.EndPrompt({sequence}, {.fold = fold}); });
          },
          py::arg("sequence"), py::arg("fold") = true,
          "The prompt is complete: layers with fold= fold it, policies like snapkv decide.")
      .def("read_rows", &ReadRows, py::arg("sequence"), py::arg("layer"), py::arg("part"),
           py::arg("begin") = 0, py::arg("end") = py::none(), kReadRowsDoc)
      .def("read_batch", &ReadBatch, py::arg("layer"), py::arg("part"), py::arg("sequences"),
           py::arg("out"),
           "All live rows of sequences of one length, into out [batch, kv_heads, rows, dim] f32.")
      .def(
          "wait_for_packing",
          [](CacheHandle& handle) {
            handle.RunAndTake([](Cache& held) {
              held.WaitForPacking();
              return Status();
            });
          },
          "Waits until pages that were handed to the workers (pack=) are packed.");
}

void RegisterImages(CacheClass& cache) {
  cache
      .def(
          "export_pages",
          [](CacheHandle& handle, uint64_t sequence, int64_t begin, int64_t end, bool settled,
             bool resting) {
            const std::vector<std::byte> image = handle.RunAndTake([&](Cache& held) {
              return held.ExportPages({sequence}, begin, end,
                                      {.settled = settled, .resting = resting});
            });
            return py::bytes(reinterpret_cast<const char*>(image.data()), image.size());
          },
          py::arg("sequence"), py::arg("begin"), py::arg("end"), py::arg("settled") = false,
          py::arg("resting") = false,
          "The pages of all layers for positions [begin, end), whole ones, as bytes; settled: in "
          "the last form that their age will bring, resting: in that of idle=.")
      .def(
          "import_pages",
          [](CacheHandle& handle, uint64_t sequence, const py::buffer& image) {
            const BytesView view(image, "image");
            handle.RunAndTake(
                [&](Cache& held) { return held.ImportPages({sequence}, view.bytes()); });
          },
          py::arg("sequence"), py::arg("image"),
          "Appends the pages of export_pages to a sequence that ends where they begin.");
}

void RegisterFigures(CacheClass& cache) {
  cache
      .def(
          "stats",
          [](CacheHandle& handle) {
            return StatsDict(handle.Run([](Cache& held) { return held.Stats(); }));
          },
          "The figures that most programs want.\n\n"
          ">>> varve.Cache(varve.Shape(1, 1, 32)).stats()['sequences']\n0\n")
      .def(
          "properties",
          [](CacheHandle& handle) {
            return PropertiesDict(handle.Run([](Cache& held) { return Properties(held); }));
          },
          "Everything by name (docs/metrics.md).\n\n"
          ">>> varve.Cache(varve.Shape(1, 1, 32), 'q8_0').properties()['plan']\n'q8_0'\n")
      .def(
          "property",
          [](CacheHandle& handle, const std::string& name) {
            return PropertyValue(
                handle.RunAndTake([&](Cache& held) { return FindProperty(held, name); }));
          },
          py::arg("name"), "One property; an unknown name raises.");
}

std::vector<std::string> Backends() {
  std::vector<std::string> names = {"cpu"};
  if (HasBackend(Device::kCuda)) names.emplace_back("cuda");
  return names;
}

}  // namespace

void RegisterCache(py::module_& module) {
  module.def("backends", &Backends, kBackendsDoc);
  py::class_<PoolHandle>(module, "PagePool",
                         "Memory that several caches share, with one cap; 0 is no cap.")
      .def(py::init([](uint64_t max_bytes) { return PoolHandle{MakePagePool(max_bytes)}; }),
           py::arg("max_bytes") = 0)
      .def_property_readonly(
          "bytes_held", [](const PoolHandle& handle) { return PagePoolBytesHeld(*handle.pool); });
  CacheClass cache(module, "Cache", kCacheDoc, VisibleCycles());
  cache
      .def(py::init(&MakeCache), py::arg("shape"), py::arg("plan") = Plan(), py::kw_only(),
           py::arg("codebook") = nullptr, py::arg("compressor") = nullptr,
           py::arg("model_fingerprint") = 0, py::arg("max_bytes") = 0, py::arg("num_threads") = 0,
           py::arg("pool") = py::none(), py::arg("device") = "cpu",
           py::arg("device_chunk_bytes") = kChunkBytes, py::arg("stream") = 0,
           py::arg("on_attention") = py::none(), py::arg("on_retention") = py::none(),
           py::arg("on_log") = py::none(), py::arg("time_stages") = false)
      .def_property_readonly("shape", &CacheHandle::shape, "The shape, page_tokens filled in.")
      .def_property_readonly("plan", &CacheHandle::plan)
      .def_property_readonly(
          "device", [](const CacheHandle& handle) { return handle.place_name(); },
          "'cpu', or the GPU: 'cuda:0'.");
  RegisterSequences(cache);
  RegisterCuts(cache);
  RegisterSteps(cache);
  RegisterImages(cache);
  RegisterFigures(cache);
}

}  // namespace varve::python
