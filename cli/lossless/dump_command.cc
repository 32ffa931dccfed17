// `varve dump`: the keys and values of a run as files.

#include "cli/lossless/dump_command.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/lossless/kv_dump.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "runtime/embedded_model.h"

namespace varve::cli {

Result<std::vector<int32_t>> ReadTextTokens(const LoadedModel& model, const std::string& path,
                                            int64_t count, const char* option) {
  std::string text(EmbeddedEvalText());
  if (!path.empty()) {
    VARVE_ASSIGN_OR_RETURN(text, ReadTextFile(path));
  } else if (text.empty()) {
    return FailedPrecondition("this build has no evaluation text; name a text file with -f");
  }
  // A token is a byte at least, and rarely more than 64: no need to read all of a long book.
  const size_t enough = static_cast<size_t>(count) * 64;
  if (text.size() > enough) text.resize(enough);
  std::vector<int32_t> tokens = model.tokenizer->Encode(text, {});
  if (static_cast<int64_t>(tokens.size()) < count) {
    return InvalidArgument(
        fmt::format("{} {}: the text has {} tokens", option, count, tokens.size()));
  }
  tokens.resize(static_cast<size_t>(count));
  return tokens;
}

Status DumpToFiles(const DumpOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const store::LaneType lane, ParseLane("--dtype", options.dtype));
  VARVE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options.model));
  VARVE_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                         ReadTextTokens(model, options.text, options.ctx));
  const int64_t context = model.model->context();
  if (options.ctx > context) {
    WriteNote(
        fmt::format("varve: {} tokens are beyond the context of {} that the model was made "
                    "for\n",
                    options.ctx, context));
  }
  const std::unique_ptr<Executor> executor = MakeThreadPool(options.threads);
  const InterruptScope interrupt;
  Progress progress("dump", static_cast<double>(options.ctx));
  const Result<std::vector<DumpRows>> rows =
      DumpModel(model, *executor, tokens, lane, [&](int64_t done) {
        progress.Update(static_cast<double>(done));
        return !InterruptScope::interrupted();
      });
  progress.Clear();
  if (!rows.ok()) return rows.status();
  VARVE_RETURN_IF_ERROR(WriteDump(options.folder, *rows, options.chunk, model.name));
  uint64_t bytes = 0;
  for (const DumpRows& part : *rows) bytes += part.bytes.size();
  fmt::print("{}: {} layers, {} tokens, K and V in {}, {} in pieces of {} tokens\n", options.folder,
             rows->size() / 2, options.ctx, options.dtype, HumanBytes(static_cast<double>(bytes)),
             std::min(options.chunk, options.ctx));
  return Status();
}

}  // namespace varve::cli

void AddDumpCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("dump", "Keys and values of a run, as files");
  auto options = std::make_shared<varve::cli::DumpOptions>();
  varve::cli::AddModelOption(*command, options->model);
  command
      ->add_option("-f,--file", options->text,
                   "Text, - for stdin (default: the evaluation text of the embedded model)")
      ->type_name("FILE");
  command->add_option("-o,--output", options->folder, "Folder to write to")
      ->required()
      ->type_name("DIR");
  command->add_option("--ctx", options->ctx, "Tokens of the text to read")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--chunk", options->chunk, "Tokens of one piece")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--dtype", options->dtype, "Precision of the cache and the files")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "bf16", "f32"}));
  command->add_option("--threads", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->footer(
      "Writes DIR/layer_N/k_tA_B.bin, v_tA_B.bin and meta_tA_B.json for tokens A to B: values\n"
      "[tokens, kv heads, head_dim] as the cache holds them, K after RoPE. Layers that are there\n"
      "already are not overwritten.\n\n"
      "Examples:\n"
      "  varve dump --ctx 2048 -o kv                       # the embedded model on its text\n"
      "  varve dump -m model.gguf -f book.txt --ctx 4096 --dtype bf16 --chunk 192 -o kv\n"
      "  varve lossless kv                                 # what packing would save");
  command->callback(varve::cli::Action(options, varve::cli::DumpToFiles, exit_code));
}
