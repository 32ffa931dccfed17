// The bound that sink, recent and whole pages set to what a policy can reach.

#ifndef VARVE_CACHE_RETENTION_BOUND_H_
#define VARVE_CACHE_RETENTION_BOUND_H_

#include <cstdint>

#include "pages/page_store.h"
#include "plan/layer_plan.h"

namespace varve {

// What a layer with a policy holds at `tokens` if the policy drops and demotes all that it may,
// with the pages that are begun before it decides again.
uint64_t RetentionFloorBytes(const LayerPlan& plan, const PageStore& store, int page_tokens,
                             int64_t tokens);

}  // namespace varve

#endif  // VARVE_CACHE_RETENTION_BOUND_H_
