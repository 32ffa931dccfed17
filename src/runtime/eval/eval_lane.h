// EvalLane: one plan of a comparison, with the cache that holds it. Lanes run one after the other
// on the same tokens, piece by piece, so that stopping at any piece leaves comparable figures.

#ifndef VARVE_RUNTIME_EVAL_EVAL_LANE_H_
#define VARVE_RUNTIME_EVAL_EVAL_LANE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/decoder_model.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

struct EvalPlan {
  std::string name;  // as the user wrote it
  Plan plan;
};

// Memory of a plan's cache, averaged over the moments at which it was looked at.
class CacheFootprint {
 public:
  // `tokens`: all that the cache has been fed and not freed, dropped ones included.
  void Sample(const CacheReport& stats, int64_t tokens);

  bool empty() const { return samples_ == 0; }
  // Pages as the pool holds them, page records and tables. NaN if empty.
  double bytes_per_token() const;
  uint64_t scratch_bytes() const { return scratch_bytes_; }  // the most seen
  // Those of the last sample, but for keep_ratio, lossy_ratio and total_ratio: these are means (of
  // ratios, of their inverses).
  CacheMetrics metrics() const;

 private:
  double sum_ = 0;
  double f16_share_sum_ = 0;  // bytes held and tables / f16 bytes of all tokens seen
  double keep_sum_ = 0;
  double lossy_share_sum_ = 0;
  CacheMetrics last_;
  int64_t samples_ = 0;
  uint64_t scratch_bytes_ = 0;
};

// What a plan's cache uses beside its pages, and where it runs otherwise than asked.
struct CacheUse {
  uint64_t codebook_bytes = 0;
  uint64_t compressor_bytes = 0;  // of fold=
  std::vector<FallbackUse> fallbacks;
};
CacheUse UseOf(const CacheReport& stats);

struct EvalLane {
  std::string name;
  std::unique_ptr<Cache> cache;
  SequenceId sequence;  // the text that is being read
  CacheFootprint footprint;
};

// The f16 lane, then one per plan. The error names the plan that was refused.
Result<std::vector<EvalLane>> MakeLanes(const DecoderModel& model, std::span<const EvalPlan> plans,
                                        Executor& executor);

// The status with the plan's name in front.
Status InLane(const EvalLane& lane, const Status& status);

// How far an evaluation is; tokens count once per plan that reads them.
struct EvalProgress {
  int64_t done_tokens = 0;
  int64_t total_tokens = 0;
  int64_t part = 0;  // window or prompt, from 0
  int64_t num_parts = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_EVAL_LANE_H_
