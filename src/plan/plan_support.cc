// What of the grammar this build implements. A clause without an entry here is implemented; the
// issue that brings a feature removes its line.

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "plan/plan_grammar.h"
#include "plan/plan_rule.h"
#include "varve/plan.h"

namespace varve {
namespace {

struct MissingFeature {
  std::string_view clause;
  std::string_view feature;
};

constexpr MissingFeature kMissing[] = {
    {"cross", "a rung of its own for the cross cache"},
};

Status NotInThisBuild(std::string_view clause_text, std::string_view feature) {
  return Unimplemented(
      fmt::format("plan: clause \"{}\": {} is not in this build yet", clause_text, feature));
}

Status CheckClause(const ClauseSpec& clause, std::string_view value) {
  for (const MissingFeature& missing : kMissing) {
    if (missing.clause == clause.name)
      return NotInThisBuild(ClauseText(clause, value), missing.feature);
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
