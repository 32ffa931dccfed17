// ByteEstimate: what a sequence of some length holds under a plan, by EstimatePlan, which is asked
// once per page count. One thread.

#ifndef VARVE_SERVE_ENGINE_BYTE_ESTIMATE_H_
#define VARVE_SERVE_ENGINE_BYTE_ESTIMATE_H_

#include <cstdint>
#include <vector>

#include "varve/cache.h"
#include "varve/plan_estimate.h"
#include "varve/status.h"

namespace varve::serve {

class ByteEstimate {
 public:
  // Fails as EstimatePlan does.
  static Result<ByteEstimate> Create(const Plan& plan, const CacheShape& shape,
                                     const PlanResources& resources);

  // Whole pages: what the pool holds, all layers.
  uint64_t Bytes(int64_t num_tokens);
  // Of one more page.
  uint64_t page_bytes() const { return page_bytes_; }
  // Of a page among many, as the plan has them in the end; never 0.
  uint64_t settled_page_bytes() const { return settled_page_bytes_; }
  // Whether pages stay in the rung in which they are filled, in all layers.
  bool pages_keep_their_rung() const { return pages_keep_their_rung_; }
  // Of a page at rest (idle=); 0: the plan has no idle=.
  uint64_t rest_page_bytes() const { return rest_page_bytes_; }
  // The states of pages at a length, as the plan has it.
  Result<PlanCost> Cost(int64_t num_tokens) const;

 private:
  ByteEstimate(Plan plan, const CacheShape& shape, PlanResources resources);

  Plan plan_;
  CacheShape shape_;
  PlanResources resources_;
  int page_tokens_;
  uint64_t page_bytes_ = 0;
  uint64_t settled_page_bytes_ = 1;
  bool pages_keep_their_rung_ = true;
  uint64_t rest_page_bytes_ = 0;
  std::vector<uint64_t> by_pages_;  // 0: not asked yet
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_BYTE_ESTIMATE_H_
