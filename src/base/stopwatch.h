// Stopwatch: adds the time until its end of life to a sum of microseconds.

#ifndef VARVE_BASE_STOPWATCH_H_
#define VARVE_BASE_STOPWATCH_H_

#include "base/timer.h"

namespace varve {

class Stopwatch {
 public:
  // `us` outlives this.
  explicit Stopwatch(double* us) : us_(us) {}
  ~Stopwatch() { *us_ += timer_.us(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* us_;
  Timer timer_;
};

}  // namespace varve

#endif  // VARVE_BASE_STOPWATCH_H_
