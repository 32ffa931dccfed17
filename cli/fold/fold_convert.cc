#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/mapped_file.h"
#include "cli/fold/fold_command.h"
#include "cli/report/output.h"
#include "fold/compressor_format.h"

namespace varve::cli {
namespace {

Result<CompressorDtype> ReadDtype(const std::string& text) {
  if (text == "fp16") return CompressorDtype::kF16;
  if (text == "bf16") return CompressorDtype::kBF16;
  if (text == "fp32") return CompressorDtype::kF32;
  return InvalidArgument(fmt::format("--dtype \"{}\": not one of fp16 bf16 fp32", text));
}

// Reading the whole and writing the target are far apart: what is asked must be possible first.
Status CheckOutput(const FoldConvertOptions& options) {
  std::error_code error;
  if (std::filesystem::equivalent(options.input, options.output, error)) {
    return InvalidArgument(fmt::format("{}: is the input", options.output));
  }
  const std::filesystem::file_status status = std::filesystem::status(options.output, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return InvalidArgument(fmt::format("{}: is not a file", options.output));
  }
  return CheckWritable("OUTPUT", options.output);
}

// Which networks are asked for: a list that names none of an image's leaves them out.
Status ChooseParts(const std::string& prefix_order, bool* text_only) {
  if (prefix_order.empty()) return Status();
  int text = 0, image = 0;
  for (const std::string_view name : SplitList(prefix_order))
    ++(name.ends_with("tk") || name.ends_with("tv") ? text : image);
  if (text != 2 || (image != 0 && image != 2)) {
    return InvalidArgument(
        fmt::format("--prefix-order \"{}\": name compress_tk and compress_tv, and either both or "
                    "none of compress_ik and compress_iv",
                    prefix_order));
  }
  *text_only = *text_only || image == 0;
  return Status();
}

std::string RenderIgnored(const ConvertedCompressor& converted) {
  constexpr size_t kMaxListed = 20;
  const std::vector<std::string>& keys = converted.ignored;
  if (keys.empty()) return "";
  std::string text = fmt::format("{:<12}  {} keys\n", "ignored", keys.size());
  for (size_t i = 0; i < std::min(keys.size(), kMaxListed); ++i) {
    text += fmt::format("{:<12}  {}\n", "", keys[i]);
  }
  if (keys.size() > kMaxListed) {
    text += fmt::format("{:<12}  … and {} more\n", "", keys.size() - kMaxListed);
  }
  return text;
}

}  // namespace

Status ConvertCompressor(const FoldConvertOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const CompressorDtype dtype, ReadDtype(options.dtype));
  VARVE_ASSIGN_OR_RETURN(const auto order,
                         ParseCompressorOrder(options.prefix_order, options.slot_order));
  VARVE_RETURN_IF_ERROR(CheckOutput(options));
  VARVE_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(options.input));
  CompressorConvertOptions convert = options.convert;
  convert.dtype = dtype;
  VARVE_RETURN_IF_ERROR(ChooseParts(options.prefix_order, &convert.text_only));
  if (!options.slot_order.empty()) {
    VARVE_ASSIGN_OR_RETURN(convert.slots, ParseSlotNames(options.slot_order));
  }
  VARVE_ASSIGN_OR_RETURN(const auto converted,
                         ConvertPthCompressor(file->bytes(), options.input, convert));
  VARVE_RETURN_IF_ERROR(SaveCompressor(converted.compressor, options.output, order));
  std::string text = RenderCompressor(options.output, converted.compressor, UseColour(stdout));
  text += fmt::format("{:<12}  {}{}\n", "from", options.input,
                      converted.state_dict.empty() ? "" : ", " + converted.state_dict);
  const std::string said = PrintCompressorMetadata(order);
  if (said != PrintCompressorMetadata(CompressorOrder())) {
    text += fmt::format("{:<12}  not the default; the file says so, but only Varve reads that\n",
                        "order");
  }
  text += RenderIgnored(converted);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return Status();
}

void AddFoldConvert(CLI::App* parent, int* exit_code) {
  CLI::App* command =
      parent->add_subcommand("convert", "Make a compressor of a .pth; nothing in it is run");
  auto options = std::make_shared<FoldConvertOptions>();
  command->add_option("INPUT,--input", options->input, "A file of torch.save")
      ->required()
      ->type_name("FILE.pth");
  command->add_option("OUTPUT,--output", options->output, "Compressor to write")
      ->required()
      ->type_name("FILE.bin");
  command->add_option("--dtype", options->dtype, "Of the numbers written")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp16", "bf16", "fp32"}));
  command
      ->add_option("--prefix-order", options->prefix_order,
                   "Networks in the order of the file (default: "
                   "compress_tk,compress_tv,compress_ik,compress_iv); those that are not named "
                   "are left out")
      ->type_name("NAMES");
  command
      ->add_option("--slot-order", options->slot_order,
                   "Linear layers of a network as the .pth calls them, in the order of the file "
                   "(default: 0,3,6); one to three. Numbers are computed in ascending order, "
                   "names as they stand here")
      ->type_name("NAMES");
  CompressorConvertOptions& convert = options->convert;
  command
      ->add_option("--compression-factor", convert.factor, "Tokens per row; 0: what the shapes say")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxCompressorFactor));
  command
      ->add_option("--min-seq-len", convert.min_groups,
                   "Groups that a segment must have to be folded")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxCompressorGroups));
  command->add_option("--num-heads", convert.num_heads, "KV heads of the model; 0: any number")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxCompressorHeads));
  command->add_option("--head-dim", convert.head_dim, "Values of a row; 0: what the shapes say")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxCompressorDim));
  command->add_flag("--text-only", convert.text_only, "Leave the networks for images out");
  command->footer(
      "The state dict is looked for under model_state_dict.compressor, under compressor, and as "
      "the\n"
      "file itself. Its keys are PREFIX.LAYER.SLOT.weight and .bias (compress_tk.0.3.weight);\n"
      "others are ignored and listed. Of the pickle only tensors, dicts, lists, text and numbers\n"
      "are read; a file that names anything else is refused.\n\n"
      "Examples:\n"
      "  varve fold convert compressor.pth compressor.bin\n"
      "  varve fold convert --input compressor.pth --output compressor.bin --dtype fp16\n"
      "  varve fold convert compressor.pth text.bin --dtype fp32 --text-only --num-heads 8");
  command->callback(Action(options, ConvertCompressor, exit_code));
}

}  // namespace varve::cli
