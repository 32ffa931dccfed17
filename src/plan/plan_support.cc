// What of the grammar a cache implements. A clause without an entry here is implemented.

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "plan/plan_grammar.h"
#include "plan/plan_rule.h"
#include "varve/plan.h"

namespace varve {
namespace {

struct ForOthers {
  std::string_view clause;
  std::string_view reason;
};

// Programs that make several caches of one plan take these clauses out (speech_plans.h).
constexpr ForOthers kForOthers[] = {
    {"cross",
     "is for the encoder's rows of a speech model (varve transcribe); this cache has none"},
};

Status CheckClause(const ClauseSpec& clause, std::string_view value) {
  for (const ForOthers& others : kForOthers) {
    if (others.clause != clause.name) continue;
    return Unimplemented(
        fmt::format("plan: clause \"{}\": {}", ClauseText(clause, value), others.reason));
  }
  return Status();
}

}  // namespace

Status CheckSupported(const Plan& plan) {
  for (const WrittenRule& rule : SplitPlan(plan)) {
    for (const ClauseSpec& clause : Clauses()) {
      const std::optional<std::string> value = ClauseValue(clause, rule);
      if (value) VARVE_RETURN_IF_ERROR(CheckClause(clause, *value));
    }
  }
  return Status();
}

}  // namespace varve
