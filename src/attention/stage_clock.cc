#include "attention/stage_clock.h"

namespace varve {

StageTimes StageTotals::Sum() const {
  StageTimes sum;
  for (const Slot& slot : workers_) {
    const StageTimes& times = slot.times;
    sum.prepare_us += times.prepare_us;
    sum.scores_us += times.scores_us;
    sum.softmax_us += times.softmax_us;
    sum.values_us += times.values_us;
    sum.merge_us += times.merge_us;
    sum.encode_us += times.encode_us;
    sum.append_us += times.append_us;
    sum.attend_passes += times.attend_passes;
    sum.rows_encoded += times.rows_encoded;
    sum.rows_appended += times.rows_appended;
  }
  return sum;
}

}  // namespace varve
