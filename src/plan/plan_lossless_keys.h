// The keys of the H2O system's lossless packing (kv_lossless_*) as clauses of a rule.

#ifndef VARVE_PLAN_PLAN_LOSSLESS_KEYS_H_
#define VARVE_PLAN_PLAN_LOSSLESS_KEYS_H_

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/json_value.h"
#include "plan/plan_h2o_keys.h"
#include "varve/status.h"

namespace varve {

// The layers that the clauses are for: the first ones, or those with eviction. They are sampled
// differently.
enum class PackScope { kFront, kKept };

// Absent keys have the system's defaults.
Result<std::vector<KeyClause>> PackClauses(const JsonValue& object, PackScope scope);

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_LOSSLESS_KEYS_H_
