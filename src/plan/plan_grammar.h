// The vocabulary of plans: every clause by name, what values it takes, how a value is stored in a
// rule and printed from it. The text form and the JSON form are two spellings of this one table, so
// they cannot drift apart.
//
// Not here: how single values are read (plan_values.h), how clauses are cut out of text or JSON
// (plan_text.cc, plan_json.cc), which clauses exclude each other (plan_rule.h), what this build
// implements (plan_support.cc). Pure functions, thread-safe.

#ifndef VARVE_PLAN_PLAN_GRAMMAR_H_
#define VARVE_PLAN_PLAN_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan_values.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

inline constexpr size_t kMaxPlanBytes = size_t{64} << 10;  // of text or JSON

enum class ClauseKind {
  kRung,       // one rung name
  kBothRungs,  // kv=RUNG, or the bare rung, and idle=RUNG: a pair of kRung clauses at once
  kAge,        // f16:512/q8_0:4096/q4_0
  kPage,       // 16, 32, 64 or 128
  kCount,      // integer from `min` to `max`
  kReal,       // ratio or ema
  kBytes,      // integer with B, KiB, MiB or GiB
  kWord,       // a name of `words_of_table`
  kChoice,     // one of `words`, an enum's values in their order
  kWords,      // some of `words`, each once, joined by "/"
  kFile,       // file name, UTF-8
  kHot,        // S/R
};

// A rule as it is written: what it says of its layers, and of the whole cache.
struct WrittenRule : LayerRule, PlanSettings {
  bool operator==(const WrittenRule&) const = default;
};

// Access to a member that is an enum, as the number of its value.
struct ChoiceMember {
  std::optional<int> (*get)(const WrittenRule& rule) = nullptr;
  void (*set)(WrittenRule* rule, int value) = nullptr;
};

struct ClauseSpec {
  std::string_view name;
  ClauseKind kind;
  // The member that holds the value, for the kinds that need no code of their own.
  std::optional<std::string> WrittenRule::*text = nullptr;
  // The other rung of a pair. Where both are equal, kBothRungs says them, and kRung does not.
  std::optional<std::string> WrittenRule::*pair = nullptr;
  std::optional<int64_t> WrittenRule::*count = nullptr;
  std::optional<double> WrittenRule::*real = nullptr;
  ChoiceMember choice = {};
  int64_t min = 0;  // kCount
  int64_t max = kMaxClauseTokens;
  std::string_view words = {};  // separated by blanks
  std::vector<std::string_view> (*words_of_table)() = nullptr;
  // Clauses of which a rule must say one too, separated by blanks: "window evict", "pack=store".
  // For a setting any rule will do.
  std::string_view needs = {};
  // Of PlanSettings. Where rules differ the largest count holds; for other kinds that is an error,
  // with this as its reason.
  bool is_setting = false;
  std::string_view one_only = {};
};

// Every clause, in the order in which they are printed.
std::span<const ClauseSpec> Clauses();
const ClauseSpec* FindClause(std::string_view name);  // null if there is none
std::string ClauseNames();                            // "kv k v …", for messages

// Stores a value in the rule. Failure is kInvalidArgument with the bare reason ("open 7x is not an
// integer"); the caller adds the place. File names come unquoted.
Status StoreClause(const ClauseSpec& clause, std::string_view value, WrittenRule* rule);

// The canonical spelling of the value, or nothing where the rule does not say the clause. Equal k
// and v are said by "kv" alone, equal idle_k and idle_v by "idle".
std::optional<std::string> ClauseValue(const ClauseSpec& clause, const WrittenRule& rule);

// "open=128"; the bare rung for kv; file names quoted where they need it.
std::string ClauseText(const ClauseSpec& clause, std::string_view value);

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_GRAMMAR_H_
