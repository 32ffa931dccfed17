// Timer: how much time has passed since it was made, on the steady clock.
//
// A plain value of one time point; copying it copies the start. It starts when it is made. No
// thread may restart one while another reads it.

#ifndef VARVE_BASE_TIMER_H_
#define VARVE_BASE_TIMER_H_

#include <chrono>

namespace varve {

class Timer {
 public:
  Timer() : start_(Clock::now()) {}

  void Restart() { start_ = Clock::now(); }

  double us() const { return Since<std::micro>(Clock::now()); }
  double seconds() const { return Since<std::ratio<1>>(Clock::now()); }

  // The microseconds so far; the timer starts anew at the same instant, so that laps add up to the
  // whole.
  double LapUs() {
    const Clock::time_point now = Clock::now();
    const double us = Since<std::micro>(now);
    start_ = now;
    return us;
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Unit>
  double Since(Clock::time_point now) const {
    return std::chrono::duration<double, Unit>(now - start_).count();
  }

  Clock::time_point start_;
};

}  // namespace varve

#endif  // VARVE_BASE_TIMER_H_
