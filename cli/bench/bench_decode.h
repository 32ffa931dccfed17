// `varve bench decode`: whole decode steps of a model at several depths, plans against the f16
// cache, in one run.
//
// A cache gets its depth from synthetic rows, not from running the model: a minute of prefill per
// plan would buy nothing, since the time of a step does not depend on what the rows hold; packing
// (pack=) gains what it does on real ones (synthetic_rows.h). The steps that are timed are real:
// weights, attention, append, seal.

#ifndef VARVE_CLI_BENCH_BENCH_DECODE_H_
#define VARVE_CLI_BENCH_BENCH_DECODE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/model/decoder_model.h"
#include "varve/status.h"

namespace varve::cli {

struct BenchDecodeOptions {
  std::string model;         // empty: the embedded model
  std::string random_model;  // in its place: a shape with random weights
  std::string weights = "q8_0";
  std::string repack = "auto";
  std::string device = "cpu";  // or "cuda"
  std::vector<std::string> plans = {"f16", "q8_0", "q4_0r"};
  std::vector<int64_t> depths = {0, 4096, 16384, 32768};
  int batch = 1;  // sequences that are decoded together
  int steps = 0;  // tokens of a sequence per repetition; 0: 64 where a step is quick, down to 8
  int reps = 5;
  int threads = 0;  // 0: all cores
  uint64_t seed = 1;
  bool breakdown = false;  // time by stage
  std::string json;
};

// The model that the options name. Speed needs no tokenizer: a file without one, or with one that
// is not built in, will do.
Result<std::shared_ptr<const DecoderModel>> OpenBenchModel(const BenchDecodeOptions& options);

// Prints tables to stdout, writes JSON if asked. Ends early, with what it has, on Ctrl-C. Refuses
// what cannot work before anything is filled or timed.
Status BenchDecode(const BenchDecodeOptions& options);

// The same on a model that is there already: one table per depth to `out`, one row per plan and
// depth to `rows`.
Status BenchDecodeModel(const BenchDecodeOptions& options,
                        std::shared_ptr<const DecoderModel> model, std::FILE* out,
                        nlohmann::ordered_json& rows);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_BENCH_DECODE_H_
