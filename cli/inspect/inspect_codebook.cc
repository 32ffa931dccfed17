#include "cli/inspect/inspect_codebook.h"

#include <array>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/pinned_name.h"
#include "base/quoted.h"
#include "cli/codebook/codebook_error.h"
#include "cli/codebook/codebook_samples.h"
#include "cli/inspect/model_lists.h"
#include "cli/lossless/kv_dump.h"
#include "cli/report/output.h"
#include "rungs/pq/codebook_format.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

uint64_t TableBytes(const Codebook& codebook) {
  uint64_t bytes = 0;
  for (const CodebookTable& table : codebook.tables) bytes += table.bytes();
  return bytes;
}

std::string RungName(const CodebookTable& table) {
  return fmt::format("pq{}x{}", table.num_subspaces, table.bits);
}

// A norm in f16 beside the codes of each row.
double BitsPerValue(const CodebookTable& table) {
  return (table.num_subspaces * table.bits + 16.0) / table.dim;
}

}  // namespace

bool IsCodebookFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return false;
  std::array<std::byte, kCodebookMagic.size()> begin = {};
  return std::fread(begin.data(), 1, begin.size(), file.get()) == begin.size() && IsCodebook(begin);
}

std::string RenderCodebook(const std::string& name, const Codebook& codebook,
                           std::span<const double> errors, bool colour) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12}  {}\n", label, value);
  };
  line("file", name);
  line("format", fmt::format("codebook {}", kCodebookVersion));
  line("model", codebook.model_fingerprint == 0
                    ? fmt::format("any of this shape ({})", Printable(codebook.model_name, 100))
                    : fmt::format("{}, fingerprint {:016x}", Printable(codebook.model_name, 100),
                                  codebook.model_fingerprint));
  line("shape", fmt::format("{} layers, {} KV heads", codebook.num_layers, codebook.num_kv_heads));
  line("trained on", Printable(codebook.trained_on, 1024));
  line("tables", fmt::format("{}, {}", codebook.tables.size(),
                             HumanBytes(static_cast<double>(TableBytes(codebook)))));
  line("hash", HashText(CodebookHash(codebook)));
  std::vector<std::string> headers = {"part",        "rung",    "grain",  "rotation", ">dim",
                                      ">bits/value", ">groups", ">bytes", ">a layer"};
  if (!errors.empty()) headers.emplace_back(">error");
  TextTable table(headers);
  for (size_t i = 0; i < codebook.tables.size(); ++i) {
    const CodebookTable& item = codebook.tables[i];
    std::vector<std::string> cells = {
        PartName(item.part),
        RungName(item),
        CodebookGrainName(item.grain),
        item.rotation.empty() ? "no" : "yes",
        fmt::format("{}", item.dim),
        fmt::format("{:.3f}", BitsPerValue(item)),
        fmt::format("{}", codebook.NumGroups(item.grain)),
        HumanBytes(static_cast<double>(item.bytes())),
        HumanBytes(static_cast<double>(item.bytes()) / codebook.num_layers)};
    if (!errors.empty()) cells.push_back(fmt::format("{:.5f}", errors[i]));
    table.AddRow(std::move(cells));
  }
  text += "\n" + table.Render(colour);
  if (!errors.empty()) {
    text += "\nerror: mean of |x - decoded x|^2 / |x|^2 over the rows of the samples\n";
  }
  return text;
}

Json CodebookJson(const std::string& name, const Codebook& codebook,
                  std::span<const double> errors) {
  Json row = {{"topic", "codebook"},
              {"file", name},
              {"model", Printable(codebook.model_name, 256)},
              {"model_fingerprint", fmt::format("{:016x}", codebook.model_fingerprint)},
              {"trained_on", Printable(codebook.trained_on, 1024)},
              {"num_layers", codebook.num_layers},
              {"num_kv_heads", codebook.num_kv_heads},
              {"bytes", TableBytes(codebook)},
              {"hash", HashText(CodebookHash(codebook))}};
  row["tables"] = Json::array();
  for (size_t i = 0; i < codebook.tables.size(); ++i) {
    const CodebookTable& item = codebook.tables[i];
    Json table = {{"part", PartName(item.part)},
                  {"rung", RungName(item)},
                  {"num_subspaces", item.num_subspaces},
                  {"bits", item.bits},
                  {"grain", CodebookGrainName(item.grain)},
                  {"rotation", !item.rotation.empty()},
                  {"dim", item.dim},
                  {"bits_per_value", BitsPerValue(item)},
                  {"groups", codebook.NumGroups(item.grain)},
                  {"bytes", item.bytes()}};
    if (!errors.empty()) table["error"] = errors[i];
    row["tables"].push_back(std::move(table));
  }
  return row;
}

Status InspectCodebook(const InspectCodebookOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckWritable("--json", options.json));
  VARVE_ASSIGN_OR_RETURN(const std::shared_ptr<const Codebook> codebook,
                         LoadCodebook(options.path));
  std::vector<double> errors;
  if (!options.samples.empty()) {
    VARVE_ASSIGN_OR_RETURN(const KvSamples samples, ReadSamples(options.samples));
    const std::unique_ptr<Executor> executor = MakeThreadPool(options.threads);
    for (const CodebookTable& table : codebook->tables) {
      VARVE_ASSIGN_OR_RETURN(const double error,
                             RelativeError(*codebook, table, samples, *executor));
      errors.push_back(error);
    }
  }
  if (options.json != "-") {
    const std::string text = RenderCodebook(options.path, *codebook, errors, UseColour(stdout));
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  if (options.json.empty()) return Status();
  return WriteJson(options.json, "inspect",
                   Json::array({CodebookJson(options.path, *codebook, errors)}));
}

}  // namespace varve::cli
