// `varve bench codec`: the lossless codec on the keys and values of a model, against zstd and lz4.

#ifndef VARVE_CLI_BENCH_BENCH_CODEC_H_
#define VARVE_CLI_BENCH_BENCH_CODEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "varve/status.h"

namespace varve::cli {

struct BenchCodecOptions {
  std::string model;  // empty: the embedded one
  std::string text;   // a file; empty: the evaluation text of the embedded model
  int64_t ctx = 2048;
  std::vector<std::string> dtypes = {"f16", "bf16"};
  int reps = 7;
  int threads = 0;  // of the model; the codec runs on one core
  std::string json;
};

// Prints tables to stdout, writes JSON if asked. What every codec gives back is compared before it
// is timed. Ends early, with what it has, on Ctrl-C.
Status BenchCodec(const BenchCodecOptions& options);

// The subcommand `codec` of `bench`.
void AddBenchCodec(CLI::App& bench, int* exit_code);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_CODEC_H_
