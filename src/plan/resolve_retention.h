// The part of ResolvePlan that reads evict= and its clauses: the rule of the policy, and for
// evict=demote the stages that it lowers pages to. Pure, thread-safe.

#ifndef VARVE_PLAN_RESOLVE_RETENTION_H_
#define VARVE_PLAN_RESOLVE_RETENTION_H_

#include "plan/layer_plan.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

// Requires rule.evict, layer->stages and shape.page_tokens.
Status AddRetention(const LayerRule& rule, const CacheShape& shape, LayerForm* layer);

// Fails, with the clause, where budget= is below what may never be dropped, in all layers of the
// rule. Requires layer.retention and the rest of the layer's plan.
Status CheckBudget(const LayerRule& rule, const CacheShape& shape, const LayerForm& layer);

}  // namespace varve

#endif  // VARVE_PLAN_RESOLVE_RETENTION_H_
