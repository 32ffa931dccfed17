// The memory of a cache over the time of a run, in as many samples as fit a table or a picture.
// However long the run, at most kMaxSamples are kept, evenly spread. One thread.

#ifndef VARVE_CLI_RUN_RUN_MEMORY_H_
#define VARVE_CLI_RUN_RUN_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "varve/cache.h"

namespace varve::cli {

struct MemorySample {
  double seconds = 0;
  int sequences = 0;
  int64_t tokens = 0;            // in the sequences, dropped ones included
  uint64_t bytes = 0;            // held by the pool, and tables
  uint64_t bytes_f16 = 0;        // all tokens in plain f16
  std::vector<RungBytes> rungs;  // payload by rung and state, or empty
};

// Of a cache at this moment, with its rungs. `tokens` are those that went in.
MemorySample SampleOf(const Cache& cache, int64_t tokens);

class MemoryTrack {
 public:
  static constexpr size_t kMaxSamples = 256;

  void Add(const MemorySample& sample);

  const std::vector<MemorySample>& samples() const { return samples_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  // Σ f16 bytes ÷ Σ bytes of all that was added; 0 if there was nothing.
  double mean_ratio() const;

  // Some rows, evenly spread over the run.
  void Print(std::FILE* out) const;
  // One row per sample, {"role": "memory", seconds, sequences, tokens, cache_bytes,
  // cache_bytes_f16}.
  void AddRows(nlohmann::ordered_json* rows) const;
  // For a report (docs/format/report.md), the last sample included: {"series": [{"rung", "state"},
  // …], "samples": [{"tokens", "f16_bytes", "held_bytes", "bytes": [one per series]}, …]}
  nlohmann::ordered_json ByState() const;

 private:
  std::vector<MemorySample> samples_;
  MemorySample last_;  // that was added
  bool last_is_kept_ = false;
  uint64_t stride_ = 1;  // of what is added, each so many-th is kept
  uint64_t added_ = 0;
  uint64_t peak_bytes_ = 0;
  double sum_bytes_ = 0;
  double sum_bytes_f16_ = 0;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_RUN_MEMORY_H_
