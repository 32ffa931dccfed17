// The configuration keys of the H2O system (kv_h2o_*, kv_lossless_*), taken as they are and said
// in clauses of a plan.
//
// The system switches eviction on for the layers layer_start … layer_end, and lossless packing for
// the first front_n layers, for the layers that eviction works on, or both (`scope`). In a plan
// that is a layer rule each, so one flat object becomes a few rules. Absent keys have the system's
// defaults; where these differ from ours the clause is said. Pure functions, thread-safe.

#ifndef VARVE_PLAN_PLAN_H2O_KEYS_H_
#define VARVE_PLAN_PLAN_H2O_KEYS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_value.h"
#include "plan/plan_grammar.h"
#include "varve/status.h"

namespace varve {

// A clause that a key stands for. File names do not occur.
struct KeyClause {
  const ClauseSpec* clause;
  std::string value;
  std::string label;  // `key "kv_h2o_sink_tokens"`
};

// What holds for the layers [first_layer, last_layer]; last_layer -1 is the model's last.
struct KeySegment {
  int first_layer = 0;
  int last_layer = -1;
  std::vector<KeyClause> clauses;  // empty: the keys say nothing about these layers
};

bool IsH2oKey(std::string_view key);

// Reads the keys of `object` for which IsH2oKey holds. The segments cover all layers, ascending.
// Messages start with "plan: " and name the key.
Result<std::vector<KeySegment>> SegmentsFromH2oKeys(const JsonValue& object);

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_H2O_KEYS_H_
