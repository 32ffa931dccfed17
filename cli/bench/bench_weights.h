// `varve bench weights`: products with stored weights, against the machine's read bandwidth.

#ifndef VARVE_CLI_BENCH_BENCH_WEIGHTS_H_
#define VARVE_CLI_BENCH_BENCH_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/kernels/linear.h"
#include "runtime/kernels/weights.h"
#include "varve/status.h"

namespace varve::cli {

struct BenchWeightsOptions {
  std::vector<std::string> types = {"f16",  "q8_0", "q4_0", "q4_1", "q5_0",   "q5_1",  "q4_k",
                                    "q5_k", "q6_k", "q2_k", "q3_k", "iq4_nl", "iq4_xs"};
  int64_t rows = 3072;
  int64_t cols = 1024;
  std::vector<int> threads;  // empty: all cores
  std::vector<int> tokens = {1};
  ProductPrecision precision = ProductPrecision::kF32;  // of many tokens
  bool small_pages = false;                             // weights on pages of 4 KiB
  bool repack = false;                                  // measure woven rows, too
  int reps = 15;
  int64_t working_set = -1;  // bytes; -1: twice the last-level cache and a bit
  uint64_t seed = 1;
  std::string json;
};

std::span<const WeightType> AllWeightTypes();

// "q4_k", "F16": a weight type in any case; refuses anything else.
// Errors name the option and what it takes.
Result<WeightType> ParseWeightType(std::string_view option, const std::string& text,
                                   std::span<const WeightType> allowed = AllWeightTypes());

// Prints a table to stdout, writes JSON if asked. The answer of every type is checked before it is
// timed. Ends early, with what it has, on Ctrl-C.
Status BenchWeights(const BenchWeightsOptions& options);

// The subcommand `weights` of `bench`.
void AddBenchWeights(CLI::App& bench, int* exit_code);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_WEIGHTS_H_
