// Where the time of a cache goes, by stage (CacheOptions::time_stages). Every worker adds to its
// own sums, so that nothing is shared while tasks run; without time_stages there are no sums, and
// a stage costs one comparison and no look at the clock.

#ifndef VARVE_ATTENTION_STAGE_CLOCK_H_
#define VARVE_ATTENTION_STAGE_CLOCK_H_

#include <chrono>
#include <vector>

#include "varve/cache.h"

namespace varve {

// The sums of all workers of one executor. For(worker) follows the rules of ParallelFor: no two
// threads hold the same worker at once.
class StageTotals {
 public:
  StageTotals(bool time_stages, int num_workers)
      : workers_(time_stages ? static_cast<size_t>(num_workers) : 0) {}

  // Null unless stages are timed.
  StageTimes* For(int worker) {
    return workers_.empty() ? nullptr : &workers_[static_cast<size_t>(worker)].times;
  }
  StageTimes Sum() const;

 private:
  struct alignas(64) Slot {
    StageTimes times;
  };
  std::vector<Slot> workers_;
};

// Runs from its construction. Each Lap charges the time since the one before to a stage.
class StageClock {
 public:
  explicit StageClock(StageTimes* times) : times_(times) {
    if (times_ != nullptr) last_ = std::chrono::steady_clock::now();
  }
  void Lap(double StageTimes::*stage_us) {
    if (times_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    times_->*stage_us += std::chrono::duration<double, std::micro>(now - last_).count();
    last_ = now;
  }
  // A piece of work done, beside its time.
  void Count(uint64_t StageTimes::*counter, uint64_t amount) {
    if (times_ != nullptr) times_->*counter += amount;
  }

 private:
  StageTimes* times_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace varve

#endif  // VARVE_ATTENTION_STAGE_CLOCK_H_
