// Where the time of a forward pass goes, by part, and the clock that counts it.
//
// The clock gives the time since its last lap to the part that the caller names, so that the parts
// add up to the whole. One per runner; not thread-safe.

#ifndef VARVE_RUNTIME_MODEL_FORWARD_TIMES_H_
#define VARVE_RUNTIME_MODEL_FORWARD_TIMES_H_

#include "base/timer.h"

namespace varve {

// Microseconds so far. The sum is the time inside Forward and Decode, less that of the caller's
// `progress`. A model on a GPU knows the whole and cache_us: what is neither is in other_us.
struct ForwardTimes {
  double linear_us = 0;
  double attention_us = 0;  // Append and Attend
  double cache_us = 0;      // BeginStep and EndStep: sealing, eviction
  double other_us = 0;      // embedding, norms, rotary, activations

  double total_us() const { return linear_us + attention_us + cache_us + other_us; }
  ForwardTimes& operator+=(const ForwardTimes& more) {
    linear_us += more.linear_us;
    attention_us += more.attention_us;
    cache_us += more.cache_us;
    other_us += more.other_us;
    return *this;
  }
};

class ForwardClock {
 public:
  // What has passed since the last lap belongs to no part.
  void Start() { lap_.Restart(); }
  // What has passed since the last lap, or since Start, belongs to this part.
  void Lap(double ForwardTimes::*part) { times_.*part += lap_.LapUs(); }

  const ForwardTimes& times() const { return times_; }
  void Reset() { times_ = {}; }

 private:
  Timer lap_;
  ForwardTimes times_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_MODEL_FORWARD_TIMES_H_
