// `varve fold baseline`: compressors that have learned nothing, to compare a trained one with.

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/fold/compressor_baselines.h"
#include "cli/fold/fold_command.h"
#include "cli/report/output.h"

namespace varve::cli {

Status WriteBaseline(const FoldBaselineOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const std::shared_ptr<const Compressor> like,
                         LoadCompressor(options.like));
  const Compressor made =
      options.kind == "mean" ? MeanPoolingLike(*like) : RandomLike(*like, options.seed);
  VARVE_RETURN_IF_ERROR(CheckCompressor(made));
  VARVE_RETURN_IF_ERROR(SaveCompressor(made, options.output));
  const std::string text = RenderCompressor(options.output, made, UseColour(stdout));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return FlushStdout();
}

void AddFoldBaseline(CLI::App* parent, int* exit_code) {
  CLI::App* command = parent->add_subcommand(
      "baseline", "Make a compressor that has learned nothing, to compare one with");
  auto options = std::make_shared<FoldBaselineOptions>();
  command->add_option("LIKE", options->like, "A compressor whose shape it gets")
      ->required()
      ->type_name("FILE.bin");
  command->add_option("OUTPUT", options->output, "Compressor to write")
      ->required()
      ->type_name("FILE.bin");
  command
      ->add_option("--kind", options->kind,
                   "mean: of the rows of a group; random: what PyTorch begins with")
      ->capture_default_str()
      ->check(CLI::IsMember({"mean", "random"}));
  command->add_option("--seed", options->seed, "Of random numbers")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  varve fold baseline models/varve-books-29m-fold4.bin mean4.bin\n"
      "  varve fold baseline models/varve-books-29m-fold4.bin random4.bin --kind random\n"
      "  varve eval kl --kv fold fold=mean4.bin fold=random4.bin");
  command->callback(Action(options, WriteBaseline, exit_code));
}

}  // namespace varve::cli
