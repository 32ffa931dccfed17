// RuleBuilder: puts the clauses of one rule together and refuses what excludes each other.
// JoinRules and SplitPlan: from written rules to a plan and back. All serve the text form and the
// JSON form; a *label* is how a message calls the place: `clause 2 "k=q9_0" (column 7)` or `key
// "k"`.
//
// Values without shared state; one thread per builder.

#ifndef VARVE_PLAN_PLAN_RULE_H_
#define VARVE_PLAN_PLAN_RULE_H_

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan_grammar.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

class RuleBuilder {
 public:
  // Adds a clause. Fails, with the label in front, on a bad value, a repeated clause, or one that
  // conflicts with an earlier clause, which is named too.
  Status Add(const ClauseSpec& clause, std::string_view value, const std::string& label);

  bool empty() const { return said_.empty(); }
  WrittenRule& rule() { return rule_; }

 private:
  struct Said {
    std::string_view name;
    std::string label;
  };
  // The label of an earlier clause of that name, or null.
  const std::string* FindSaid(std::string_view name) const;
  Status CheckConflicts(std::string_view name, const std::string& label) const;

  WrittenRule rule_;
  std::vector<Said> said_;
};

struct LabeledRule {
  WrittenRule rule;
  std::string label;  // `rule 2 (column 9)`
};

// Sorts by layer and gathers the settings; refuses rules that overlap, and settings that differ
// where a plan can have only one. A rule that holds nothing but settings leaves no rule.
Result<Plan> JoinRules(std::vector<LabeledRule> rules);

// The plan as it is written: its rules, the settings in the first. Empty for the empty plan.
std::vector<WrittenRule> SplitPlan(const Plan& plan);

// Ok if every clause of the plan has the clauses beside it that it needs.
Status CheckRequirements(const Plan& plan);

// The plan in the form that ParsePlan gives: rules ascending, rules that say nothing left out.
// Fails where a plan built by hand says something that the grammar does not allow.
Result<Plan> NormalizePlan(const Plan& plan);

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_RULE_H_
