#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/pinned_name.h"
#include "cli/fold/fold_command.h"
#include "cli/report/output.h"
#include "fold/compressor_format.h"
#include "fold/compressor_numbers.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// Over all layers: what tells a trained network from one that is all zeros or has run away.
struct BlockSummary {
  double sum_of_squares = 0;
  uint64_t count = 0;
  float largest = 0;  // of the magnitudes
  int with_bias = 0;  // layers
  bool same_shape = true;

  double rms() const { return std::sqrt(sum_of_squares / static_cast<double>(count)); }
};

BlockSummary Summarize(const Compressor& compressor, CompressorPart part, size_t slot) {
  BlockSummary summary;
  const CompressorLinear& first = compressor.Mlp(0, part).slots[slot];
  for (int layer = 0; layer < compressor.num_layers(); ++layer) {
    const CompressorLinear& linear = compressor.Mlp(layer, part).slots[slot];
    const size_t count = static_cast<size_t>(linear.rows) * static_cast<size_t>(linear.cols);
    for (size_t i = 0; i < count; ++i) {
      const float value = LoadWeight(compressor.dtype, linear, i);
      summary.sum_of_squares += double{value} * double{value};
      summary.largest = std::max(summary.largest, std::abs(value));
    }
    summary.count += count;
    if (!linear.bias.empty()) ++summary.with_bias;
    if (linear.rows != first.rows || linear.cols != first.cols) summary.same_shape = false;
  }
  return summary;
}

template <typename Visit>
void ForEachBlock(const Compressor& compressor, const Visit& visit) {
  for (size_t i = 0; i < (compressor.has_image ? 4u : 2u); ++i) {
    const auto part = static_cast<CompressorPart>(i);
    for (size_t slot = 0; slot < static_cast<size_t>(compressor.num_slots); ++slot) {
      visit(part, slot, compressor.Mlp(0, part).slots[slot], Summarize(compressor, part, slot));
    }
  }
}

std::string Threshold(const Compressor& compressor) {
  const int groups = std::max(compressor.min_groups, 1);
  return fmt::format("{} groups: a segment of fewer than {} tokens stays as it is",
                     compressor.min_groups, int64_t{groups} * compressor.factor);
}

Json Row(const std::string& name, const Compressor& compressor) {
  Json blocks = Json::array();
  ForEachBlock(compressor, [&](CompressorPart part, size_t slot, const CompressorLinear& linear,
                               const BlockSummary& summary) {
    blocks.push_back({{"block", CompressorBlockName(part, static_cast<int>(slot))},
                      {"rows", linear.rows},
                      {"cols", linear.cols},
                      {"same_shape_in_all_layers", summary.same_shape},
                      {"layers_with_bias", summary.with_bias},
                      {"rms", summary.rms()},
                      {"largest", summary.largest}});
  });
  return {{"topic", "compressor"},
          {"file", name},
          {"version", kCompressorVersion},
          {"dtype", CompressorDtypeName(compressor.dtype)},
          {"num_layers", compressor.num_layers()},
          {"num_heads", compressor.num_heads},
          {"head_dim", compressor.head_dim},
          {"compression_factor", compressor.factor},
          {"min_seq_len", compressor.min_groups},
          {"num_slots", compressor.num_slots},
          {"has_image", compressor.has_image},
          {"bytes", compressor.bytes()},
          {"hash", HashText(CompressorHash(compressor))},
          {"blocks", blocks}};
}

}  // namespace

bool IsCompressorFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return false;
  std::array<std::byte, sizeof(kCompressorMagic)> begin = {};
  return std::fread(begin.data(), 1, begin.size(), file.get()) == begin.size() &&
         IsCompressor(begin);
}

std::string RenderCompressor(const std::string& name, const Compressor& compressor, bool colour) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12}  {}\n", label, value);
  };
  line("file", name);
  line("format",
       fmt::format("compressor {}, {}", kCompressorVersion, CompressorDtypeName(compressor.dtype)));
  line("shape", fmt::format("{} layers, {} KV heads, head_dim {}", compressor.num_layers(),
                            compressor.num_heads == 0 ? std::string("any number of")
                                                      : std::to_string(compressor.num_heads),
                            compressor.head_dim));
  line("factor", fmt::format("{} tokens become a row", compressor.factor));
  line("threshold", Threshold(compressor));
  line("segments", compressor.has_image ? "text and image" : "text; an image stays as it is");
  line("weights", HumanBytes(static_cast<double>(compressor.bytes())));
  line("hash", HashText(CompressorHash(compressor)));
  TextTable table({"block", ">outputs", ">inputs", "bias", ">rms", ">largest"});
  ForEachBlock(compressor, [&](CompressorPart part, size_t slot, const CompressorLinear& linear,
                               const BlockSummary& summary) {
    const char* bias = summary.with_bias == 0                         ? "no"
                       : summary.with_bias == compressor.num_layers() ? "yes"
                                                                      : "some";
    const char* varies = summary.same_shape ? "" : " …";
    table.AddRow({CompressorBlockName(part, static_cast<int>(slot)),
                  fmt::format("{}{}", linear.rows, varies),
                  fmt::format("{}{}", linear.cols, varies), bias,
                  fmt::format("{:.4f}", summary.rms()), fmt::format("{:.4f}", summary.largest)});
  });
  return text + table.Render(colour);
}

Status InspectCompressor(const FoldInspectOptions& options) {
  std::optional<CompressorOrder> order;
  if (!options.prefix_order.empty() || !options.slot_order.empty()) {
    VARVE_ASSIGN_OR_RETURN(order, ParseCompressorOrder(options.prefix_order, options.slot_order));
  }
  VARVE_ASSIGN_OR_RETURN(const auto compressor, LoadCompressor(options.path, order));
  if (options.json != "-") {
    const std::string text = RenderCompressor(options.path, *compressor, UseColour(stdout));
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  if (options.json.empty()) return Status();
  return WriteJson(options.json, "fold inspect", Json::array({Row(options.path, *compressor)}));
}

void AddFoldInspect(CLI::App* parent, int* exit_code) {
  CLI::App* command = parent->add_subcommand("inspect", "Say what a compressor is");
  auto options = std::make_shared<FoldInspectOptions>();
  command->add_option("FILE", options->path, "A compressor")->required();
  command
      ->add_option("--prefix-order", options->prefix_order,
                   "As it was written, if the file does not say it")
      ->type_name("NAMES");
  command
      ->add_option("--slot-order", options->slot_order,
                   "As it was written, if the file does not say it")
      ->type_name("NAMES");
  command->add_option("--json", options->json, "Write JSON to FILE (- is stdout)");
  command->footer(
      "Outputs and inputs are those of layer 0; rms and largest are of the weights of all "
      "layers.\n\n"
      "Examples:\n"
      "  varve fold inspect compressor.bin\n"
      "  varve fold inspect compressor.bin --json - | jq '.rows[0].compression_factor'");
  command->callback(Action(options, InspectCompressor, exit_code));
}

}  // namespace varve::cli
