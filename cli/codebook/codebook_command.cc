#include "cli/codebook/codebook_command.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/timer.h"
#include "base/utf8.h"
#include "cli/codebook/codebook_training.h"
#include "cli/commands.h"
#include "cli/inspect/inspect_codebook.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "rungs/pq/codebook_limits.h"

namespace varve::cli {
namespace {

constexpr int kFewRowsPerCentroid = 39;  // below this they follow the noise of the rows

// The sizes of one part: those of --k or --v, else that of -M and --nbits.
Result<std::vector<CodebookSize>> ReadSizes(const char* option,
                                            const std::vector<std::string>& texts,
                                            const CodebookTrainOptions& options) {
  std::vector<CodebookSize> sizes;
  for (const std::string& text : texts) {
    VARVE_ASSIGN_OR_RETURN(const CodebookSize size, ParseSize(option, text));
    if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) {
      return InvalidArgument(fmt::format("{} {}: given twice", option, text));
    }
    sizes.push_back(size);
  }
  if (options.num_subspaces != 0) sizes.push_back({options.num_subspaces, options.bits});
  return sizes;
}

Result<CodebookGrain> ReadGrain(const std::string& text) {
  for (const CodebookGrain grain :
       {CodebookGrain::kModel, CodebookGrain::kLayer, CodebookGrain::kHead}) {
    if (text == CodebookGrainName(grain)) return grain;
  }
  return InvalidArgument(fmt::format("--grain \"{}\": not one of model layer head", text));
}

Status CheckOptions(const CodebookTrainOptions& options) {
  if ((options.num_subspaces == 0) != (options.bits == 0)) {
    return InvalidArgument("-M and --nbits go together");
  }
  const bool lists = !options.key_sizes.empty() || !options.value_sizes.empty();
  if (options.num_subspaces != 0 && lists) {
    return InvalidArgument(
        "-M and --nbits are one size for K and V; --k and --v are lists: one of both");
  }
  if (options.num_subspaces == 0 && !lists) {
    return InvalidArgument("no size: -M 64 --nbits 8, or --k 64x8 … and --v 64x8 …");
  }
  if (options.samples.empty() == options.sample.text.empty()) {
    return InvalidArgument("rows come from a text, -f, or from a folder, --samples: one of both");
  }
  return Status();
}

// What SaveCodebook would refuse, before the long work.
Status CheckOutput(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return InvalidArgument(fmt::format("-o \"{}\": is not a file", path));
  }
  return CheckWritable("-o", path);
}

Status CheckSizes(const std::vector<CodebookSize>& sizes, int dim) {
  for (const CodebookSize& size : sizes) VARVE_RETURN_IF_ERROR(CheckSize(size, dim));
  return Status();
}

// Sizes that the model cannot have are refused before it reads the text.
Result<KvSamples> GetSamples(const CodebookTrainOptions& options,
                             const std::vector<CodebookSize>& key_sizes,
                             const std::vector<CodebookSize>& value_sizes) {
  if (options.samples.empty()) {
    VARVE_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.sample.model));
    VARVE_RETURN_IF_ERROR(CheckSizes(key_sizes, model.model->cache_shape().key_dim));
    VARVE_RETURN_IF_ERROR(CheckSizes(value_sizes, model.model->cache_shape().value_dim));
    return SampleModel(options.sample);
  }
  Result<KvSamples> samples = ReadSamples(options.samples);
  if (samples.ok() && samples->model_fingerprint == 0) {
    WriteNote(
        fmt::format("varve: {} does not name its model: the codebook will be taken for any "
                    "of its shape\n",
                    options.samples));
  }
  return samples;
}

void NoteFewRows(const KvSamples& samples, const PartTraining& training) {
  const size_t rows = SampleRows(samples, training.part, training.grain).NumRows(0);
  for (const CodebookSize& size : training.sizes) {
    const size_t codes = size_t{1} << size.bits;
    if (rows < codes || rows >= kFewRowsPerCentroid * codes) continue;
    WriteNote(fmt::format("varve: {} {}: {} rows for {} centroids are few; {} would be enough\n",
                          PartName(training.part), SizeText(size), rows, codes,
                          kFewRowsPerCentroid * codes));
  }
}

TrainingOptions OptionsFor(const CodebookTrainOptions& options, Part part) {
  const char letter = part == Part::kKey ? 'k' : 'v';
  const bool turned = options.rotate != "none" && options.rotate.find(letter) != std::string::npos;
  return {options.iterations, options.seed,
          !turned       ? RotationKind::kNone
          : options.opq ? RotationKind::kOpq
                        : RotationKind::kBalanced};
}

}  // namespace

Status SampleToFolder(const CodebookSampleOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const KvSamples samples, SampleModel(options.sample));
  VARVE_RETURN_IF_ERROR(WriteSamples(samples, options.folder));
  uint64_t bytes = 0;
  for (const DumpRows& rows : samples.rows) bytes += rows.bytes.size();
  fmt::print("{}: {} layers, {} tokens in windows of {}, K and V in f16, {}\n", options.folder,
             samples.num_layers, samples.num_tokens, samples.ctx,
             HumanBytes(static_cast<double>(bytes)));
  return Status();
}

Status TrainToFile(const CodebookTrainOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckOptions(options));
  VARVE_ASSIGN_OR_RETURN(const CodebookGrain grain, ReadGrain(options.grain));
  const auto key_sizes = ReadSizes("--k", options.key_sizes, options);
  if (!key_sizes.ok()) return key_sizes.status();
  const auto value_sizes = ReadSizes("--v", options.value_sizes, options);
  if (!value_sizes.ok()) return value_sizes.status();
  VARVE_RETURN_IF_ERROR(CheckOutput(options.output));
  VARVE_ASSIGN_OR_RETURN(const KvSamples samples, GetSamples(options, *key_sizes, *value_sizes));

  Codebook codebook;
  codebook.num_layers = samples.num_layers;
  codebook.num_kv_heads = samples.num_kv_heads;
  codebook.model_fingerprint = samples.model_fingerprint;
  codebook.model_name = std::string(Utf8Prefix(samples.model_name, kMaxCodebookNameBytes));
  codebook.trained_on = std::string(Utf8Prefix(
      fmt::format("{} tokens of {} in windows of {}; {} iterations, seed {}{}", samples.num_tokens,
                  samples.text_name.empty() ? "a text" : samples.text_name, samples.ctx,
                  options.iterations, options.seed,
                  options.rotate == "none"
                      ? ""
                      : fmt::format(", {} turned to principal axes{}", options.rotate,
                                    options.opq ? ", OPQ" : "")),
      kMaxTrainedOnBytes));
  const SampleRows key_rows(samples, Part::kKey, grain);
  const SampleRows value_rows(samples, Part::kValue, grain);
  const int groups = codebook.NumGroups(grain);
  const PartTraining parts[] = {
      {Part::kKey, samples.key_dim, grain, groups, *key_sizes, &key_rows},
      {Part::kValue, samples.value_dim, grain, groups, *value_sizes, &value_rows}};
  for (const PartTraining& part : parts) NoteFewRows(samples, part);

  const std::unique_ptr<Executor> executor = MakeThreadPool(options.sample.threads);
  const InterruptScope interrupt;
  Progress progress("train", TrainingWork(parts[0], OptionsFor(options, parts[0].part)) +
                                 TrainingWork(parts[1], OptionsFor(options, parts[1].part)));
  const Timer timer;
  double before = 0;
  for (const PartTraining& part : parts) {
    Result<std::vector<CodebookTable>> tables =
        TrainTables(part, OptionsFor(options, part.part), *executor, [&](double done) {
          progress.Update(before + done, PartName(part.part));
          return !InterruptScope::interrupted();
        });
    if (!tables.ok()) return tables.status();
    std::move(tables->begin(), tables->end(), std::back_inserter(codebook.tables));
    before += TrainingWork(part, OptionsFor(options, part.part));
  }
  progress.Clear();
  const double seconds = timer.seconds();
  VARVE_RETURN_IF_ERROR(SaveCodebook(codebook, options.output));
  const std::string text = RenderCodebook(options.output, codebook, {}, UseColour(stdout));
  std::fwrite(text.data(), 1, text.size(), stdout);
  fmt::print("\ntrained in {}\n", HumanDuration(seconds));
  return Status();
}

namespace {

void AddSampleOptions(CLI::App* command, SampleOptions& options, bool text_required) {
  AddModelOption(*command, options.model);
  command->add_option("-f,--file", options.text, "Text, - for stdin; not what you evaluate on")
      ->required(text_required)
      ->type_name("FILE");
  command->add_option("--tokens", options.tokens, "Tokens of all windows")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--ctx", options.ctx,
                   "Tokens of a window (default: the model's context, at most 4096)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--threads", options.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
}

void AddSample(CLI::App* parent, int* exit_code) {
  CLI::App* command =
      parent->add_subcommand("sample", "Write rows of K (after RoPE) and V of a text to a folder");
  auto options = std::make_shared<CodebookSampleOptions>();
  AddSampleOptions(command, options->sample, true);
  command->add_option("-o,--output", options->folder, "Folder to write to")
      ->required()
      ->type_name("DIR");
  command->footer(
      "Windows begin at places spread evenly over the text, so that rows are of all of it and of\n"
      "all positions. The folder is one of `varve dump`, and samples.json.\n\n"
      "Examples:\n"
      "  varve codebook sample -f books.txt --tokens 65536 -o rows\n"
      "  varve codebook train --samples rows -M 64 --nbits 8 -o model.codebook");
  command->callback(Action(options, SampleToFolder, exit_code));
}

void AddTrain(CLI::App* parent, int* exit_code) {
  CLI::App* command = parent->add_subcommand("train", "Train a codebook and write it to a file");
  auto options = std::make_shared<CodebookTrainOptions>();
  AddSampleOptions(command, options->sample, false);
  command->add_option("--samples", options->samples, "Rows of `codebook sample` instead of a text")
      ->type_name("DIR");
  command->add_option("-o,--output", options->output, "Codebook to write")
      ->required()
      ->type_name("FILE");
  command->add_option("-M", options->num_subspaces, "Sub-spaces of a row, of K and V alike")
      ->check(CLI::Range(1, kMaxCodebookDim));
  command->add_option("--nbits", options->bits, "Bits of a code, with -M")
      ->check(CLI::Range(kMinCodebookBits, kMaxCodebookBits));
  command->add_option("--k", options->key_sizes, "Sizes for K, MxB, separated by spaces")
      ->type_name("MxB");
  command->add_option("--v", options->value_sizes, "Sizes for V")->type_name("MxB");
  command
      ->add_option("--grain", options->grain,
                   "What shares centroids: the model, a layer, or a KV head of a layer")
      ->capture_default_str()
      ->check(CLI::IsMember({"model", "layer", "head"}));
  command
      ->add_option(
          "--rotate", options->rotate,
          "Parts whose rows are turned to their principal axes first, strong and weak ones "
          "side by side; the matrix is stored")
      ->check(CLI::IsMember({"none", "k", "v", "kv"}))
      ->capture_default_str();
  command->add_flag("--opq", options->opq,
                    "Go on from there with OPQ: minutes per group and size, little gain");
  command->add_option("--iterations", options->iterations, "Of k-means")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--seed", options->seed, "Of k-means")->capture_default_str();
  command->footer(
      "A row of head_dim values is stored as M codes of B bits: 64x8 at head_dim 128 is 4 bits "
      "per\n"
      "value. M divides head_dim, B is 4 to 12. The result is the same for a seed, whatever the\n"
      "number of threads. Train on text that you do not evaluate on.\n\n"
      "Examples:\n"
      "  varve codebook train -m model.gguf -f books.txt -M 64 --nbits 8 -o model.codebook\n"
      "  varve codebook train -f books.txt --k 64x8 64x7 --v 64x8 64x5 --tokens 65536 -o "
      "a.codebook\n"
      "  varve codebook train --samples rows -M 32 --nbits 8 --grain layer --rotate none -o "
      "b.codebook");
  command->callback(Action(options, TrainToFile, exit_code));
}

void AddInspect(CLI::App* parent, int* exit_code) {
  CLI::App* command = parent->add_subcommand("inspect", "Say what a codebook is");
  auto options = std::make_shared<InspectCodebookOptions>();
  command->add_option("FILE", options->path, "A codebook")->required();
  command
      ->add_option("--samples", options->samples,
                   "Rows of `codebook sample`: the error of each table on them, too")
      ->type_name("DIR");
  command->add_option("--json", options->json, "Write JSON to FILE (- is stdout)");
  command->add_option("--threads", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->footer(
      "Examples:\n"
      "  varve codebook inspect model.codebook\n"
      "  varve codebook sample -f other.txt --tokens 8192 -o other\n"
      "  varve codebook inspect model.codebook --samples other   # error on rows not trained on");
  command->callback(Action(options, InspectCodebook, exit_code));
}

}  // namespace
}  // namespace varve::cli

void AddCodebookCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("codebook", "Codebooks of product quantization: train and inspect them");
  command->require_subcommand(1);
  varve::cli::AddSample(command, exit_code);
  varve::cli::AddTrain(command, exit_code);
  varve::cli::AddInspect(command, exit_code);
}
