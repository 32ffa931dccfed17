// The rows of `varve bench decode`: what was measured at one depth, its table and its JSON.

#ifndef VARVE_CLI_BENCH_DECODE_REPORT_H_
#define VARVE_CLI_BENCH_DECODE_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/decode_lane.h"
#include "runtime/model/decoder_model.h"

namespace varve::cli {

// A plan at one depth.
struct DecodeRow {
  DecodeLane* lane = nullptr;
  bool noise = false;
  std::vector<double> us;  // of one step, one per repetition
  // Of every step of all repetitions: a mean hides the one step in 64 that seals pages.
  std::vector<double> step_us;
  ForwardTimes times;  // of all repetitions
  std::vector<int32_t> tokens;
  double logit_error = 0;  // RMS of the first step's difference from f16's, relative
  StageTimes stages;       // of all repetitions, where stages are timed
};

// What the rows of a depth have in common.
struct DecodeCase {
  std::string model;
  int64_t depth = 0;
  int batch = 1;
  int steps = 0;
  int threads = 0;
  double read_bandwidth = 0;  // bytes per second
  uint64_t weight_bytes_per_token = 0;
  uint64_t resident_before = 0;  // with the model in use, before any cache
  bool breakdown = false;        // stages were timed: a second table
  bool on_gpu = false;           // parts of a step and the read bandwidth are not known
};

// The first row is the f16 baseline. One table to `out`, one JSON row each to `json`.
void ReportDecode(const DecodeCase& at, const std::vector<DecodeRow>& rows, std::FILE* out,
                  nlohmann::ordered_json& json);

}  // namespace varve::cli

#endif  // VARVE_CLI_BENCH_DECODE_REPORT_H_
