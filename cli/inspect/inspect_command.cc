#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "attention/backend.h"
#include "base/machine.h"
#include "cli/commands.h"
#include "cli/fold/fold_command.h"
#include "cli/inspect/inspect_cache_file.h"
#include "cli/inspect/inspect_codebook.h"
#include "cli/inspect/inspect_model.h"
#include "cli/inspect/inspect_whisper.h"
#include "cli/inspect/plan_report.h"
#include "cli/models/found_models.h"
#include "cli/report/output.h"
#include "cli/report/retention_trace.h"
#include "kernels/kernels.h"
#include "rungs/rung_table.h"
#include "runtime/kernels/linear.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string json;
  InspectModelOptions model;
  std::string picture;
  PlanReportOptions plan;
};

// A dimension at which every rung works and padding costs nothing.
constexpr int kTypicalDim = 128;
constexpr int kTypicalPageTokens = 64;

Json MachineRows(bool print) {
  const MachineInfo machine = DescribeMachine();
  if (print) {
    fmt::print("cpu               {}\n", machine.cpu);
    fmt::print("cores             {}\n", machine.cores);
    fmt::print("last-level cache  {}\n",
               HumanBytes(static_cast<double>(machine.last_level_cache_bytes)));
    fmt::print("memory            {}\n",
               HumanBytes(static_cast<double>(machine.total_memory_bytes)));
  }
  Json row = MachineJson();
  row["topic"] = "machine";
  return Json::array({row});
}

Json DeviceRows(bool print) {
  Json rows = Json::array();
  TextTable table({"device", "name", "architecture", "multiprocessors", "memory"});
  const std::vector<DeviceInfo> devices = LinkedCudaDevices();
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceInfo& device = devices[i];
    table.AddRow({fmt::format("cuda:{}", i), device.name, device.architecture,
                  std::to_string(device.multiprocessors),
                  HumanBytes(static_cast<double>(device.total_bytes))});
    rows.push_back({{"topic", "device"},
                    {"device", fmt::format("cuda:{}", i)},
                    {"name", device.name},
                    {"architecture", device.architecture},
                    {"multiprocessors", device.multiprocessors},
                    {"memory_bytes", device.total_bytes}});
  }
  if (!print) return rows;
  if (devices.empty()) {
    fmt::print("no GPU{}\n", LinkedCudaBackend() == nullptr ? ": this build has no CUDA" : "");
  } else {
    table.Print(stdout);
  }
  return rows;
}

// Why the active table is the active one.
std::string SelectionReason() {
  if (!KernelSelectionWarning().empty()) return std::string(KernelSelectionWarning());
  const char* asked = std::getenv("VARVE_ISA");
  if (asked != nullptr && *asked != '\0') return fmt::format("VARVE_ISA={} asks for it", asked);
  return "the best that this machine runs; VARVE_ISA=NAME chooses another";
}

Json IsaRows(bool print) {
  const std::string_view active = ActiveKernels().name;
  const std::string reason = SelectionReason();
  Json rows = Json::array();
  TextTable table({"isa", "", "why"});
  for (const Kernels* kernels : AvailableKernels()) {
    const bool is_active = kernels->name == active;
    table.AddRow({kernels->name, is_active ? "active" : "", is_active ? reason : ""});
    rows.push_back({{"topic", "isa"},
                    {"isa", kernels->name},
                    {"active", is_active},
                    {"reason", is_active ? reason : ""}});
  }
  const ProductPrecision precision = FastestPrecision();
  rows.push_back({{"topic", "products"}, {"precision", NameOf(precision)}});
  if (!print) return rows;
  table.Print(stdout);
  fmt::print("products of prompts: {}{}; --precision chooses another\n", NameOf(precision),
             precision == ProductPrecision::kBF16 ? " by AMX" : "");
  return rows;
}

Json RungRows(bool print) {
  Json rows = Json::array();
  TextTable table({"rung", ">bits/value of K", ">of V", ">times smaller than f16"});
  for (const std::string_view rung : RungNames()) {
    const std::string name(rung);
    Result<double> key = RungBytesPerRow(name, Part::kKey, kTypicalDim, kTypicalPageTokens);
    Result<double> value = RungBytesPerRow(name, Part::kValue, kTypicalDim, kTypicalPageTokens);
    if (!key.ok() || !value.ok()) continue;  // not for rows of that many values
    const double key_bits = *key * 8 / kTypicalDim, value_bits = *value * 8 / kTypicalDim;
    table.AddRow({name, fmt::format("{:.2f}", key_bits), fmt::format("{:.2f}", value_bits),
                  fmt::format("{:.2f}", 32 / (key_bits + value_bits))});
    rows.push_back({{"topic", "rung"},
                    {"rung", name},
                    {"k_bits_per_value", key_bits},
                    {"v_bits_per_value", value_bits}});
  }
  if (print) table.Print(stdout);
  return rows;
}

using Topic = Json (*)(bool print);

int Inspect(const std::vector<Topic>& topics, const std::string& json) {
  const bool print = json != "-";
  Json rows = Json::array();
  for (size_t i = 0; i < topics.size(); ++i) {
    if (print && i > 0) fmt::print("\n");
    for (Json& row : topics[i](print)) rows.push_back(std::move(row));
  }
  if (json.empty()) return kExitDone;
  const Status written = WriteJson(json, "inspect", rows);
  return written.ok() ? kExitDone : ReportError(written);
}

void AddTopic(CLI::App* command, const char* name, const char* description, Topic topic,
              const std::shared_ptr<InspectOptions>& options, int* exit_code) {
  CLI::App* sub = command->add_subcommand(name, description);
  sub->add_option("--json", options->json, "write JSON to FILE (- is stdout)");
  sub->callback([=] { *exit_code = Inspect({topic}, options->json); });
}

constexpr const char* kInspectFooter =
    "Examples:\n"
    "  varve inspect                            the machine, its instruction sets, the rungs\n"
    "  varve inspect model.gguf                 architecture, sizes, types, KV cache\n"
    "  varve inspect model.gguf --metadata      every key of the file\n"
    "  varve inspect model.gguf --tensors --json - | jq '.rows[0].tensors[].name'\n"
    "  varve inspect ggml-base.bin              a Whisper model: sizes, languages, types\n"
    "  varve inspect story.varve                what a saved cache holds; every checksum\n"
    "  varve inspect model.codebook             its tables and what they were trained on\n"
    "  varve inspect compressor.bin             what fold= would use\n"
    "  varve inspect trace.jsonl --picture trace.html   what a policy kept, layer by layer\n"
    "  varve inspect plan 'k=q8_0,v=q4_0'       what a plan means";

int ExitCodeOf(const Status& status) { return status.ok() ? kExitDone : ReportError(status); }

// A file is what its first bytes say; without one, what there is to say about the program.
int InspectAny(InspectOptions& options) {
  InspectModelOptions& model = options.model;
  const std::string& path = model.path;
  if (path.empty()) {
    if (!options.picture.empty()) {
      return ReportError(InvalidArgument("--picture needs a trace of `varve run --trace`"));
    }
    if (model.tensors || model.metadata) {
      return ReportError(InvalidArgument("--tensors and --metadata need a model file"));
    }
    return Inspect({MachineRows, IsaRows, RungRows}, options.json);
  }
  Result<std::string> file = ResolveModel(path, ModelKind::kText);
  if (!file.ok()) file = ResolveModel(path, ModelKind::kSpeech);
  if (file.ok()) {
    model.path = *std::move(file);
  } else if (FindInCatalogue(path) != nullptr) {
    return ReportError(file.status());
  }
  if (IsTraceFile(path)) return InspectTrace({path, options.picture, options.json});
  if (!options.picture.empty()) {
    return ReportError(InvalidArgument("--picture needs a trace of `varve run --trace`"));
  }
  if (IsCacheFile(path)) return InspectCacheFile(path, options.json);
  if (IsCodebookFile(path)) return ExitCodeOf(InspectCodebook({path, "", options.json, 0}));
  if (IsCompressorFile(path)) return ExitCodeOf(InspectCompressor({path, "", "", options.json}));
  model.json = options.json;
  if (IsWhisperFile(model.path)) return ExitCodeOf(InspectWhisper(model));
  return InspectModel(model);
}

void AddInspect(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "inspect",
      "say what a model file, a cache file, a codebook, a compressor, a trace, the "
      "machine, its GPUs, the instruction sets, the rungs or a plan are");
  auto options = std::make_shared<InspectOptions>();
  command->require_subcommand(0, 1);
  command
      ->add_option("FILE", options->model.path,
                   "a GGUF file (of a split one, the first part) or a name that `varve models` "
                   "lists, a Whisper model (ggml, .pt, model.bin), a cache of `varve run --save`, "
                   "a codebook, a compressor, or a trace of `varve run --trace`; without it and "
                   "without a topic: machine, "
                   "isa and rungs")
      ->check([](const std::string& path) {
        return path.empty() ? std::string("the name of the file is empty") : std::string();
      });
  command->add_flag("--tensors", options->model.tensors, "list the tensors of the model file");
  command->add_flag("--metadata", options->model.metadata, "list the keys of the model file");
  command->add_option("--picture", options->picture,
                      "draw a trace, position against step, as one HTML page");
  command->add_option("--json", options->json, "write JSON to FILE (- is stdout)");
  command->footer(kInspectFooter);
  AddTopic(command, "machine", "processor, caches, memory", MachineRows, options, exit_code);
  AddTopic(command, "device", "GPUs that a cache may live on", DeviceRows, options, exit_code);
  AddTopic(command, "isa", "kernel tables, and which one is in use", IsaRows, options, exit_code);
  AddTopic(command, "rungs", "representations and their size", RungRows, options, exit_code);
  CLI::App* plan = command->add_subcommand("plan", "what a plan means, as `varve plan`");
  AddPlanReportOptions(plan, &options->plan);
  plan->callback([options, exit_code] { *exit_code = ReportPlan(options->plan); });
  command->callback([command, options, exit_code] {
    if (command->get_subcommands().empty()) *exit_code = InspectAny(*options);
  });
}

}  // namespace
}  // namespace varve::cli

void AddInspectCommand(CLI::App& app, int* exit_code) { varve::cli::AddInspect(app, exit_code); }
