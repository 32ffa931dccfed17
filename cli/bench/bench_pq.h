// `varve bench pq`: the ways to work on pq strips against each other, by size of codes and context:
// scores by bytes, tables or decoding; values by bytes, centroid space or decoding; encoding.

#ifndef VARVE_CLI_BENCH_BENCH_PQ_H_
#define VARVE_CLI_BENCH_BENCH_PQ_H_

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "varve/status.h"

namespace varve::cli {

struct BenchPqOptions {
  std::vector<std::string> sizes = {"64x8", "64x6", "64x4", "32x8", "16x8"};
  int dim = 128;
  int group = 4;  // query heads of a KV head
  std::vector<int64_t> ctx = {64, 256, 1024, 4096, 16384};
  int reps = 15;
  uint64_t seed = 1;
  std::string json;
};

// Prints tables to stdout, writes JSON if asked. One thread, one KV head. Every method's answer is
// checked against the decoded rows before it is timed. Ends early, with what it has, on Ctrl-C.
Status BenchPq(const BenchPqOptions& options);

// The subcommand `pq` of `bench`.
void AddBenchPq(CLI::App& bench, int* exit_code);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_PQ_H_
