// `varve bench`: speed, bytes and error of plans against the f16 cache.

#include <cctype>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/bench_attention.h"
#include "cli/bench_weights.h"
#include "cli/commands.h"
#include "cli/output.h"

namespace {

void AddAttention(CLI::App& bench, int* exit_code) {
  CLI::App* command =
      bench.add_subcommand("attention", "Decode attention on a synthetic cache, per plan");
  auto options = std::make_shared<varve::cli::BenchAttentionOptions>();
  command->add_option("--heads", options->heads, "Query heads")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--kv-heads", options->kv_heads, "KV heads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--dim", options->dim, "head_dim of K and V")
      ->capture_default_str()
      ->check(CLI::Range(16, 512));
  command->add_option("--ctx", options->ctx, "Context lengths in tokens")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--kv", options->plans, "Plans to compare, separated by spaces")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Thread counts (default: all cores)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_option("--batch", options->batch, "Sequences per call")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--reps", options->reps, "Repetitions, all plans interleaved")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command
      ->add_option("--steps", options->steps,
                   "Decode steps of the append-and-seal table; 0 leaves it out")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  command->add_option_function<std::string>(
      "--working-set",
      [options](const std::string& text) {
        varve::Result<int64_t> bytes = varve::cli::ParseWorkingSet(text);
        if (!bytes.ok()) throw CLI::ValidationError(bytes.status().message());
        options->working_set = *bytes;
      },
      "Least bytes that each plan rotates through (64MiB; 0: one layer; default: 2.25 x last-level "
      "cache)");
  command->add_option("--seed", options->seed, "Seed of the synthetic rows")->capture_default_str();
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(
      "The output of every layer is checked against double precision before timing, the last one "
      "again\n"
      "after it. The f16 cache is timed twice in each repetition: the second row shows the noise "
      "of "
      "the\nmachine. MiB and bits are all-in (slots of pages, tables); GB/s counts the payload "
      "read.\n\n"
      "Examples:\n"
      "  varve bench attention --ctx 4096,32768 --kv f16 q8_0 q4_0r --threads 1,2\n"
      "  varve bench attention --heads 16 --kv-heads 2 --dim 64 --kv 'k=q8_0,v=q4_0' --json "
      "out.json\n"
      "  varve bench attention --ctx 1024 --working-set 0      # fits in the last-level cache");
  command->callback([options, exit_code] {
    const varve::Status status = varve::cli::BenchAttention(*options);
    if (!status.ok()) *exit_code = varve::cli::ReportError(status);
  });
}

}  // namespace

varve::Result<int64_t> varve::cli::ParseWorkingSet(const std::string& text) {
  constexpr uint64_t kMost = uint64_t{1} << 50;
  const Status refused = InvalidArgument(fmt::format(
      "--working-set \"{}\": not a size in bytes up to 1PiB, such as 0, 4096 or 64MiB", text));
  // CLI11 alone would take "-5" for a size near 2^64.
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return refused;
  uint64_t value = 0;
  try {
    std::string bytes = text;
    if (!CLI::AsSizeValue(false)(bytes).empty()) return refused;
    value = std::stoull(bytes);
  } catch (const std::exception&) {  // an unknown unit, too many digits
    return refused;
  }
  if (value > kMost) return refused;
  return static_cast<int64_t>(value);
}

void AddBenchCommand(CLI::App& app, int* exit_code) {
  CLI::App* bench =
      app.add_subcommand("bench", "Speed, bytes and error of plans against the f16 cache");
  bench->require_subcommand(1);
  AddAttention(*bench, exit_code);
  varve::cli::AddBenchWeights(*bench, exit_code);
}
