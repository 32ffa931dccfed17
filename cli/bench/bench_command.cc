// `varve bench`: speed, bytes and error of plans against the f16 cache.

#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/bench/bench_attention.h"
#include "cli/bench/bench_codec.h"
#include "cli/bench/bench_decode.h"
#include "cli/bench/bench_pq.h"
#include "cli/bench/bench_reload.h"
#include "cli/bench/bench_weights.h"
#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/report/usage_error.h"
#include "runtime/model/open_model.h"

namespace {

constexpr const char* kBenchAttentionFooter =
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
    "  varve bench attention --ctx 1024 --working-set 0      # fits in the last-level cache\n"
    "  varve bench attention --kv 'h2o,trigger=1000000'      # what the scoring of a policy "
    "costs";

constexpr const char* kBenchDecodeFooter =
    "Caches get their depth from synthetic rows, the same for every plan; depths beyond the "
    "model's\ncontext are allowed. Then whole decode steps are timed, plans in turn; the f16 "
    "cache is timed twice in\neach repetition: the second row shows the noise of the machine. "
    "After each repetition the cache goes back\nto its depth. Depth is the tokens seen: a policy "
    "(evict=) keeps to its budget while rows come in. No query\nlooks at synthetic rows, so "
    "pages "
    "are ranked by age until the steps begin, and by the steps' attention\nfrom then on: speed "
    "and "
    "bytes are real, which pages stay is not.\n\n"
    "  tokens/s     of all sequences together; `of each`, with --batch, of one\n"
    "  x f16        median of the repetitions' own ratios to the f16 row\n"
    "  p99          of single steps: 99 of 100 take no longer; sealing pages makes some long\n"
    "  cache        all that the page pool holds, and the tables\n"
    "  resident     the process with the model and this cache alone\n"
    "  weights, attention, cache work (append is attention; sealing is cache work), other: "
    "shares of the time\n"
    "  of read      weights and cache read per step, as a part of the read bandwidth\n"
    "  logit error  of the first step, RMS against f16; synthetic rows exaggerate it\n\n"
    "Examples:\n"
    "  varve bench decode --depths 0,2048,4096                # the embedded model\n"
    "  varve bench decode --random-model qwen3-0.6b --kv q8_0 q4_0r --json out.json\n"
    "  varve bench decode -m model.gguf --kv 'k=q8_0,v=q4_0' --depths 8192 --threads 2\n"
    "  varve bench decode -m smollm2 --batch 8 --kv q8_0 --depths 2048\n"
    "  varve bench decode --random-model qwen3-0.6b --kv 'h2o,ratio=3.5' --depths "
    "1024,4096,16384\n"
    "  varve bench decode --random-model llama-3.1-8b --weights f16 --device cuda --kv q8_0 t4";

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
      ->default_str(fmt::format("{}", fmt::join(options->plans, " ")));
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
  command->add_option("--seed", options->seed, "Seed of the synthetic rows")
      ->capture_default_str()
      ->check(varve::cli::NotNegative());
  command->add_flag("--breakdown", options->breakdown,
                    "A second table: time by stage (prepare, scores, softmax, values, merge, "
                    "encode, append)");
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(kBenchAttentionFooter);
  command->callback(varve::cli::Action(options, varve::cli::BenchAttention, exit_code));
}

void AddDecode(CLI::App& bench, int* exit_code) {
  CLI::App* command =
      bench.add_subcommand("decode", "Tokens per second of a model at several depths, per plan");
  auto options = std::make_shared<varve::cli::BenchDecodeOptions>();
  CLI::Option* model = varve::cli::AddModelOption(*command, options->model);
  CLI::Option* random = command
                            ->add_option("--random-model", options->random_model,
                                         "A shape with random weights in place of a file: " +
                                             varve::RandomModelNames())
                            ->excludes(model);
  varve::cli::AddRepackOption(*command, options->repack);
  varve::cli::AddDeviceOption(*command, options->device);
  command->add_option("--weights", options->weights, "Weight type of --random-model")
      ->capture_default_str()
      ->needs(random);
  command
      ->add_option("--kv", options->plans,
                   "Plans to compare, separated by spaces; f16 is always among them")
      ->default_str(fmt::format("{}", fmt::join(options->plans, " ")));
  command->add_option("--depths", options->depths, "Tokens in the cache when the steps begin")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--batch", options->batch,
                   "Sequences that are decoded together: a step reads the weights once for all of "
                   "them, and the cache of each")
      ->capture_default_str()
      ->check(CLI::Range(1, 512));
  command
      ->add_option(
          "--steps", options->steps,
          "Tokens of a sequence per repetition (default: 64 where a step is quick, down to 8)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--reps", options->reps, "Repetitions, all plans interleaved")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--threads", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seed", options->seed, "Seed of random weights and rows")
      ->capture_default_str()
      ->check(varve::cli::NotNegative());
  command->add_flag("--breakdown", options->breakdown,
                    "A second table: time by stage (prepare, scores, softmax, values, merge, "
                    "encode, append)");
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(kBenchDecodeFooter);
  command->callback(varve::cli::Action(options, varve::cli::BenchDecode, exit_code));
}

}  // namespace

varve::Result<int64_t> varve::cli::ParseWorkingSet(const std::string& text) {
  return ParseByteSize("--working-set", text);
}

void AddBenchCommand(CLI::App& app, int* exit_code) {
  CLI::App* bench =
      app.add_subcommand("bench", "Speed, bytes and error of plans against the f16 cache");
  bench->require_subcommand(1);
  AddAttention(*bench, exit_code);
  AddDecode(*bench, exit_code);
  varve::cli::AddBenchCodec(*bench, exit_code);
  varve::cli::AddBenchReload(*bench, exit_code);
  varve::cli::AddBenchPq(*bench, exit_code);
  varve::cli::AddBenchWeights(*bench, exit_code);
}
