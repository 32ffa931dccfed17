#include "plan/plan_rule.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "plan/plan_values.h"

namespace varve {
namespace {

struct Exclusion {
  std::string_view first;
  std::string_view second;
  std::string_view reason;
};

constexpr std::string_view kIdleWithPolicy =
    "a policy decides which pages stay and in what form; leave one of the two out";
constexpr std::string_view kIdleWithFold =
    "folded rows stand for several tokens and are not put to rest; leave one of the two out";

// Pairs that no rule may hold; `age` against k and v together is in CheckConflicts.
constexpr Exclusion kExclusions[] = {
    {"kv", "k", "both set the rung of K"},
    {"kv", "v", "both set the rung of V"},
    {"kv", "age", "both set the rungs of K and V"},
    {"ratio", "budget", "both set the memory to aim at"},
    {"idle", "idle_k", "both set the idle rung of K"},
    {"idle", "idle_v", "both set the idle rung of V"},
    {"idle", "evict", kIdleWithPolicy},
    {"idle_k", "evict", kIdleWithPolicy},
    {"idle_v", "evict", kIdleWithPolicy},
    {"idle", "fold", kIdleWithFold},
    {"idle_k", "fold", kIdleWithFold},
    {"idle_v", "fold", kIdleWithFold},
};

bool SaysNothing(const LayerRule& rule) {
  LayerRule blank;
  blank.first_layer = rule.first_layer;
  blank.last_layer = rule.last_layer;
  return rule == blank;
}

// Takes over what the rule says of the whole cache. said_by[i] is the label of the rule that had
// clause i first.
Status TakeSettings(const LabeledRule& from, std::vector<std::string>* said_by,
                    WrittenRule* settings) {
  const std::span<const ClauseSpec> clauses = Clauses();
  said_by->resize(clauses.size());
  for (size_t i = 0; i < clauses.size(); ++i) {
    const ClauseSpec& clause = clauses[i];
    const std::optional<std::string> value = ClauseValue(clause, from.rule);
    if (!clause.is_setting || !value) continue;
    const std::optional<std::string> before = ClauseValue(clause, *settings);
    if (clause.kind == ClauseKind::kCount) {
      std::optional<int64_t>& count = settings->*clause.count;
      count = std::max(count, from.rule.*clause.count);  // nothing is less than any number
      continue;
    }
    if (before && before != value) {
      return InvalidArgument(fmt::format("plan: {}: {} differs from {} of {}; {}", from.label,
                                         ClauseText(clause, *value), ClauseText(clause, *before),
                                         (*said_by)[i], clause.one_only));
    }
    if (!before) (*said_by)[i] = from.label;
    VARVE_RETURN_IF_ERROR(StoreClause(clause, *value, settings));
  }
  return Status();
}

// "evict", or "pack=store" where the value matters.
bool AnySays(std::span<const WrittenRule> rules, std::string_view wanted) {
  const size_t equals = wanted.find('=');
  const ClauseSpec& clause = *FindClause(wanted.substr(0, equals));
  return std::any_of(rules.begin(), rules.end(), [&](const WrittenRule& rule) {
    const std::optional<std::string> value = ClauseValue(clause, rule);
    return value && (equals == std::string_view::npos || *value == wanted.substr(equals + 1));
  });
}

}  // namespace

const std::string* RuleBuilder::FindSaid(std::string_view name) const {
  const auto found =
      std::find_if(said_.begin(), said_.end(), [&](const Said& said) { return said.name == name; });
  return found == said_.end() ? nullptr : &found->label;
}

Status RuleBuilder::CheckConflicts(std::string_view name, const std::string& label) const {
  if (const std::string* earlier = FindSaid(name)) {
    return InvalidArgument(fmt::format("plan: {}: repeats {}", label, *earlier));
  }
  for (const Exclusion& exclusion : kExclusions) {
    if (name != exclusion.first && name != exclusion.second) continue;
    const std::string* other =
        FindSaid(name == exclusion.first ? exclusion.second : exclusion.first);
    if (other == nullptr) continue;
    return InvalidArgument(
        fmt::format("plan: {}: conflicts with {}: {}", label, *other, exclusion.reason));
  }
  // Any two of k, v and age go together; the third leaves the ladder nothing to decide.
  constexpr std::string_view kLadder[] = {"k", "v", "age"};
  if (std::find(std::begin(kLadder), std::end(kLadder), name) == std::end(kLadder)) return Status();
  std::vector<const std::string*> others;
  for (std::string_view part : kLadder) {
    if (const std::string* other = FindSaid(part)) others.push_back(other);
  }
  if (others.size() < 2) return Status();
  return InvalidArgument(
      fmt::format("plan: {}: conflicts with {} and {}: k= and v= leave nothing to age=", label,
                  *others[0], *others[1]));
}

Status RuleBuilder::Add(const ClauseSpec& clause, std::string_view value,
                        const std::string& label) {
  VARVE_RETURN_IF_ERROR(CheckConflicts(clause.name, label));
  const Status stored = StoreClause(clause, value, &rule_);
  if (!stored.ok()) {
    return Status(stored.code(), fmt::format("plan: {}: {}", label, stored.message()));
  }
  said_.push_back({clause.name, label});
  return Status();
}

Result<Plan> JoinRules(std::vector<LabeledRule> rules) {
  std::stable_sort(rules.begin(), rules.end(), [](const LabeledRule& a, const LabeledRule& b) {
    return a.rule.first_layer < b.rule.first_layer;
  });
  Plan plan;
  WrittenRule settings;
  std::vector<std::string> said_by;
  const LabeledRule* previous = nullptr;
  for (const LabeledRule& current : rules) {
    const LayerRule& rule = current.rule;
    if (previous != nullptr &&
        (previous->rule.last_layer == -1 || previous->rule.last_layer >= rule.first_layer)) {
      return InvalidArgument(fmt::format("plan: {}: layers {} overlap layers {} of {}",
                                         current.label, LayersText(rule),
                                         LayersText(previous->rule), previous->label));
    }
    VARVE_RETURN_IF_ERROR(TakeSettings(current, &said_by, &settings));
    previous = &current;
    if (!SaysNothing(rule)) plan.rules.push_back(rule);
  }
  plan.settings = static_cast<const PlanSettings&>(settings);
  return plan;
}

std::vector<WrittenRule> SplitPlan(const Plan& plan) {
  std::vector<WrittenRule> written;
  for (const LayerRule& rule : plan.rules) written.push_back({rule, {}});
  if (written.empty() && !(plan.settings == PlanSettings())) written.emplace_back();
  if (!written.empty()) static_cast<PlanSettings&>(written.front()) = plan.settings;
  return written;
}

Status CheckRequirements(const Plan& plan) {
  const std::vector<WrittenRule> rules = SplitPlan(plan);
  for (const WrittenRule& rule : rules) {
    for (const ClauseSpec& clause : Clauses()) {
      const std::optional<std::string> value = ClauseValue(clause, rule);
      if (clause.needs.empty() || !value) continue;
      const std::span<const WrittenRule> where =
          clause.is_setting ? std::span(rules) : std::span(&rule, 1);
      bool is_met = false;
      std::string wanted;
      for (const std::string_view word : SplitWords(clause.needs)) {
        is_met = is_met || AnySays(where, word);
        wanted += (wanted.empty() ? "" : " or ") + std::string(word);
        if (word.find('=') == std::string_view::npos) wanted += '=';
      }
      if (is_met) continue;
      return InvalidArgument(fmt::format("plan: layers {}, clause \"{}\": {}= requires {}",
                                         LayersText(rule), ClauseText(clause, *value), clause.name,
                                         wanted));
    }
  }
  return Status();
}

Result<Plan> NormalizePlan(const Plan& plan) {
  Plan sorted = plan;
  std::erase_if(sorted.rules, SaysNothing);
  std::stable_sort(
      sorted.rules.begin(), sorted.rules.end(),
      [](const LayerRule& a, const LayerRule& b) { return a.first_layer < b.first_layer; });
  // The grammar is the check: what it cannot write and read back is no plan.
  const std::string text = PrintPlan(sorted);
  Result<Plan> parsed = ParsePlan(text);
  if (parsed.ok() && !(*parsed == sorted)) {
    return InvalidArgument(
        fmt::format("plan: {} does not say what the plan holds: a field has a value that its "
                    "clause cannot have",
                    QuoteForMessage(text)));
  }
  return parsed;
}

}  // namespace varve
