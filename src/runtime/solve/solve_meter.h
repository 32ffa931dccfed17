// SolveMeter: how far a solver is, in tokens that the model has computed. One thread.

#ifndef VARVE_RUNTIME_SOLVE_SOLVE_METER_H_
#define VARVE_RUNTIME_SOLVE_SOLVE_METER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "varve/status.h"

namespace varve {

struct SolveProgress {
  std::string step;          // "t2 in layer 3, v"
  int64_t done_tokens = 0;   // that the model has computed
  int64_t total_tokens = 0;  // about as many as it will
};

// Returning false stops: the solver's calls fail with kFailedPrecondition "stopped".
using SolveProgressFunction = std::function<bool(const SolveProgress&)>;

class SolveMeter {
 public:
  explicit SolveMeter(SolveProgressFunction progress) : progress_(std::move(progress)) {}

  // More work than was known of.
  void Expect(int64_t tokens) { total_tokens_ += tokens; }
  // After work of so many tokens.
  Status Advance(int64_t tokens, const std::string& step) {
    done_tokens_ += tokens;
    if (!progress_) return Status();
    const SolveProgress progress{step, done_tokens_, std::max(total_tokens_, done_tokens_)};
    return progress_(progress) ? Status() : FailedPrecondition("stopped");
  }

 private:
  SolveProgressFunction progress_;
  int64_t done_tokens_ = 0;
  int64_t total_tokens_ = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SOLVE_SOLVE_METER_H_
