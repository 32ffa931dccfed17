// `varve bench`: speed, bytes and error of plans against the f16 cache.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench_attention.h"
#include "commands.h"
#include "output.h"

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
        uint64_t bytes = 0;
        std::string copy = text;
        const std::string error = CLI::AsSizeValue(false)(copy);
        if (!error.empty()) throw CLI::ValidationError("--working-set", error);
        bytes = std::stoull(copy);
        options->working_set = static_cast<int64_t>(bytes);
      },
      "Least bytes that each plan rotates through (64MiB; 0: one layer; default: 2.25 x last-level "
      "cache)");
  command->add_option("--seed", options->seed, "Seed of the synthetic rows")->capture_default_str();
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(
      "Every output is checked against double precision before timing. The f16 cache is timed "
      "twice in\n"
      "each repetition: the second row shows the noise of the machine.\n\n"
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

void AddBenchCommand(CLI::App& app, int* exit_code) {
  CLI::App* bench =
      app.add_subcommand("bench", "Speed, bytes and error of plans against the f16 cache");
  bench->require_subcommand(1);
  AddAttention(*bench, exit_code);
}
