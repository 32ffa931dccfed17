// `varve bench reload`: what it takes to have a long text in the cache again: reading it anew with
// the model, or loading a .varve file. The logits behind both are compared bit for bit first.

#ifndef VARVE_CLI_BENCH_BENCH_RELOAD_H_
#define VARVE_CLI_BENCH_BENCH_RELOAD_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/bench/bench_decode.h"
#include "varve/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

struct BenchReloadOptions {
  BenchDecodeOptions model;  // model, plans, threads, seed and json of it
  int64_t tokens = 4096;     // of the text
  int steps = 16;            // decoded with both caches
  std::string file;          // where the .varve file goes; removed afterwards
};

void AddBenchReload(CLI::App& bench, int* exit_code);

// One table to stdout, JSON if asked.
Status BenchReload(const BenchReloadOptions& options);

// One plan on a model: {"plan", "tokens", "prefill_s", "save_s", "load_s", "first_token_s",
// "decode_token_s", "speedup", "file_bytes", "equal_steps"}. Fails where logits differ.
Result<nlohmann::ordered_json> MeasureReload(const BenchReloadOptions& options,
                                             const std::string& plan, const DecoderModel& model,
                                             Executor& executor);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_RELOAD_H_
