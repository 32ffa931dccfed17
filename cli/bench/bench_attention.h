// `varve bench attention`: decode attention of plans against the f16 cache, in one run.

#ifndef VARVE_CLI_BENCH_BENCH_ATTENTION_H_
#define VARVE_CLI_BENCH_BENCH_ATTENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

struct BenchAttentionOptions {
  int heads = 32;
  int kv_heads = 8;
  int dim = 128;
  std::vector<int64_t> ctx = {4096, 32768};
  std::vector<std::string> plans = {"f16", "q8_0", "q4_0", "q8_0r", "q4_0r"};
  std::vector<int> threads;  // empty: all cores
  std::vector<int> batch = {1};
  int reps = 15;
  int steps = 128;           // of the append-and-seal table; 0: none
  int64_t working_set = -1;  // bytes; -1: twice the last-level cache and a bit
  uint64_t seed = 1;
  bool breakdown = false;  // time by stage
  std::string json;
};

// "64MiB", "4096", "0" in bytes; refuses anything else.
Result<int64_t> ParseWorkingSet(const std::string& text);

// Prints tables to stdout, writes JSON if asked. Ends early, with what it has, on Ctrl-C. Refuses
// what cannot work before anything is filled or timed.
Status BenchAttention(const BenchAttentionOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_ATTENTION_H_
