#include "serve/engine/byte_estimate.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace varve::serve {
namespace {

constexpr int64_t kManyPages = 256;

}  // namespace

ByteEstimate::ByteEstimate(Plan plan, const CacheShape& shape, PlanResources resources)
    : plan_(std::move(plan)),
      shape_(shape),
      resources_(std::move(resources)),
      page_tokens_(shape.page_tokens > 0 ? shape.page_tokens : plan_.PageTokens()) {}

Result<ByteEstimate> ByteEstimate::Create(const Plan& plan, const CacheShape& shape,
                                          const PlanResources& resources) {
  ByteEstimate estimate(plan, shape, resources);
  VARVE_ASSIGN_OR_RETURN(const PlanCost one, estimate.Cost(estimate.page_tokens_));
  estimate.page_bytes_ = one.bytes;
  // Enough pages that some are not kept exact, unless all are.
  VARVE_ASSIGN_OR_RETURN(const PlanCost many, estimate.Cost(kManyPages * estimate.page_tokens_));
  estimate.settled_page_bytes_ = std::max<uint64_t>(many.bytes / kManyPages, 1);
  for (const RangeCost& range : many.ranges) {
    for (const StageCost& stage : range.stages) {
      const StageCost& first = range.stages.front();
      if (stage.k != first.k || stage.v != first.v) estimate.pages_keep_their_rung_ = false;
    }
    if (!range.idle || range.idle->pages == 0) continue;
    estimate.rest_page_bytes_ +=
        range.idle->layer_bytes / static_cast<uint64_t>(range.idle->pages) * range.num_layers();
  }
  return estimate;
}

Result<PlanCost> ByteEstimate::Cost(int64_t num_tokens) const {
  return EstimatePlan(plan_, shape_, resources_, num_tokens);
}

uint64_t ByteEstimate::Bytes(int64_t num_tokens) {
  if (num_tokens <= 0) return 0;
  const auto pages = static_cast<size_t>((num_tokens + page_tokens_ - 1) / page_tokens_);
  if (by_pages_.size() <= pages) by_pages_.resize(pages + 1);
  if (by_pages_[pages] == 0) {
    const Result<PlanCost> cost = Cost(static_cast<int64_t>(pages) * page_tokens_);
    // A plan that could be estimated once can be at every length; exact pages are the safe answer.
    by_pages_[pages] = cost.ok() ? cost->bytes : page_bytes_ * pages;
  }
  return by_pages_[pages];
}

}  // namespace varve::serve
