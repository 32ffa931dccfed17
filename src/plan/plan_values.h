// The values that clauses of a plan take, each with its check and its canonical spelling: rung
// names, counts, reals, byte sizes, age ladders, layer ranges, file names.
//
// A failed parse is kInvalidArgument with the bare reason ("open 2000000000 > 1000000000"); the
// caller adds the place. Pure functions, thread-safe.

#ifndef VARVE_PLAN_PLAN_VALUES_H_
#define VARVE_PLAN_PLAN_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

// Limits on what a plan may say; they keep later arithmetic far from overflow.
inline constexpr size_t kMaxFileNameBytes = 4096;
inline constexpr int kMaxPlanLayers = 1024;
inline constexpr int64_t kMaxClauseTokens = 1'000'000'000;
inline constexpr uint64_t kMaxBudgetBytes = uint64_t{1} << 50;

// The name as the table of rungs has it: capitals are small letters, fp16 is f16. Else `unknown
// rung "q9_0"; known: …`.
Result<std::string> ReadRungName(std::string_view name);

// `name` is what messages call the number.
Result<int64_t> ParseCount(std::string_view name, std::string_view text, int64_t min, int64_t max);
Result<double> ParseReal(std::string_view name, std::string_view text);

// "64MiB", "1000B", "1000"; printed with the largest unit that divides it.
Result<uint64_t> ParseBudget(std::string_view text);
std::string BudgetText(uint64_t bytes);

// "f16:512/q8_0:4096/q4_0": bounds ascend, the last stage has none.
Result<std::vector<AgeStep>> ParseAge(std::string_view text);
std::string AgeText(const std::vector<AgeStep>& steps);

// "3", "2-", "0-1" into first_layer and last_layer.
Status StoreLayers(std::string_view text, LayerRule* rule);
std::string LayersText(const LayerRule& rule);

// Not empty, UTF-8 (JSON can hold nothing else), no NUL, within kMaxFileNameBytes.
Status CheckFileName(std::string_view clause, std::string_view name);
// A file name as the text form writes it, and back: see ParsePlan for the rule.
std::string QuoteFileName(std::string_view name);
Result<std::string> UnquoteFileName(std::string_view text);

// The words of a list that is separated by single blanks.
std::vector<std::string_view> SplitWords(std::string_view words);
// Without blanks at either end.
std::string_view Trim(std::string_view text);
// In double quotes, cut at 64 bytes, control characters as '?': for messages.
std::string QuoteForMessage(std::string_view text);

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_VALUES_H_
