#include "plan/plan_grammar.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "base/nearest_word.h"
#include "plan/plan_values.h"
#include "retention/policy_table.h"
#include "rungs/rung_table.h"

namespace varve {
namespace {

template <auto kMember>
constexpr ChoiceMember ChoiceOf() {
  return {.get = [](const WrittenRule& rule) -> std::optional<int> {
            if (!(rule.*kMember)) return std::nullopt;
            return static_cast<int>(*(rule.*kMember));
          },
          .set =
              [](WrittenRule* rule, int value) {
                using Enum = std::remove_reference_t<decltype(*(rule->*kMember))>;
                rule->*kMember = static_cast<Enum>(value);
              }};
}

// In the order of their ids.
constexpr std::string_view kPredictorWords = "raw delta_seq xor_seq pair_delta";

constexpr ClauseSpec kClauses[] = {
    {.name = "kv", .kind = ClauseKind::kBothRungs, .text = &LayerRule::k, .pair = &LayerRule::v},
    {.name = "k", .kind = ClauseKind::kRung, .text = &LayerRule::k, .pair = &LayerRule::v},
    {.name = "v", .kind = ClauseKind::kRung, .text = &LayerRule::v, .pair = &LayerRule::k},
    {.name = "age", .kind = ClauseKind::kAge},
    {.name = "open", .kind = ClauseKind::kCount, .count = &LayerRule::open_tokens},
    {.name = "open_rung",
     .kind = ClauseKind::kWord,
     .text = &LayerRule::open_rung,
     .words_of_table = AppendableRungNames},
    {.name = "exact", .kind = ClauseKind::kCount, .count = &LayerRule::exact_tokens},
    {.name = "idle",
     .kind = ClauseKind::kBothRungs,
     .text = &LayerRule::idle_k,
     .pair = &LayerRule::idle_v},
    {.name = "idle_k",
     .kind = ClauseKind::kRung,
     .text = &LayerRule::idle_k,
     .pair = &LayerRule::idle_v},
    {.name = "idle_v",
     .kind = ClauseKind::kRung,
     .text = &LayerRule::idle_v,
     .pair = &LayerRule::idle_k},
    {.name = "page",
     .kind = ClauseKind::kPage,
     .is_setting = true,
     .one_only = "a plan has one page size"},
    {.name = "window", .kind = ClauseKind::kCount, .count = &LayerRule::window_tokens, .min = 1},
    {.name = "evict",
     .kind = ClauseKind::kWord,
     .text = &LayerRule::evict,
     .words_of_table = PolicyNames},
    {.name = "ratio", .kind = ClauseKind::kReal, .real = &LayerRule::ratio, .needs = "evict"},
    {.name = "budget", .kind = ClauseKind::kBytes, .needs = "evict"},
    {.name = "sink",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::sink_tokens,
     .needs = "window evict"},
    {.name = "recent",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::recent_tokens,
     .needs = "evict"},
    {.name = "trigger",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::trigger_tokens,
     .needs = "evict"},
    {.name = "every",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::every_tokens,
     .min = 1,
     .needs = "evict"},
    {.name = "ema", .kind = ClauseKind::kReal, .real = &LayerRule::ema, .needs = "evict"},
    {.name = "pack",
     .kind = ClauseKind::kChoice,
     .choice = ChoiceOf<&LayerRule::pack>(),
     .words = "probe full store"},
    {.name = "hot", .kind = ClauseKind::kHot, .needs = "pack"},
    {.name = "bootstrap",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::bootstrap_tokens,
     .needs = "pack"},
    {.name = "step",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::step_tokens,
     .min = 1,
     .needs = "pack"},
    {.name = "pack_codec",
     .kind = ClauseKind::kChoice,
     .choice = ChoiceOf<&LayerRule::pack_codec>(),
     .words = "varve gear",
     .needs = "pack"},
    {.name = "predictors_k",
     .kind = ClauseKind::kWords,
     .text = &LayerRule::predictors_k,
     .words = kPredictorWords,
     .needs = "pack_codec=gear"},
    {.name = "predictors_v",
     .kind = ClauseKind::kWords,
     .text = &LayerRule::predictors_v,
     .words = kPredictorWords,
     .needs = "pack_codec=gear"},
    {.name = "pack_zstd",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::pack_zstd,
     .max = 1,
     .needs = "pack_codec=gear"},
    {.name = "pack_block",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::pack_block_tokens,
     .min = 1,
     .needs = "pack"},
    {.name = "strict",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::strict,
     .max = 1,
     .needs = "pack"},
    {.name = "layer_cache",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::layer_cache_pages,
     .max = 1 << 20,
     .needs = "pack=store"},
    {.name = "sample_layers",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::sample_layers,
     .min = 1,
     .max = kMaxPlanLayers,
     .needs = "pack=probe"},
    {.name = "sample_every",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::sample_tokens,
     .min = 1,
     .needs = "pack=probe"},
    {.name = "pack_threads",
     .kind = ClauseKind::kCount,
     .count = &PlanSettings::pack_threads,
     .min = 1,
     .max = 64,
     .needs = "pack",
     .is_setting = true},
    {.name = "pack_queue",
     .kind = ClauseKind::kCount,
     .count = &PlanSettings::pack_queue,
     .min = 1,
     .max = 1 << 20,
     .needs = "pack",
     .is_setting = true},
    {.name = "decode_cache",
     .kind = ClauseKind::kCount,
     .count = &PlanSettings::decode_cache_pages,
     .max = 1 << 30,
     .needs = "pack",
     .is_setting = true},
    {.name = "prefetch",
     .kind = ClauseKind::kCount,
     .count = &PlanSettings::prefetch,
     .max = 1,
     .needs = "pack",
     .is_setting = true},
    {.name = "spill",
     .kind = ClauseKind::kFile,
     .text = &PlanSettings::spill,
     .needs = "pack=store",
     .is_setting = true,
     .one_only = "a cache has one"},
    {.name = "spill_mib",
     .kind = ClauseKind::kCount,
     .count = &PlanSettings::spill_mib,
     .min = 1,
     .max = 1 << 24,
     .needs = "spill",
     .is_setting = true},
    {.name = "keep_mib",
     .kind = ClauseKind::kCount,
     .count = &PlanSettings::keep_mib,
     .max = 1 << 24,
     .needs = "spill",
     .is_setting = true},
    {.name = "log_stats",
     .kind = ClauseKind::kCount,
     .count = &PlanSettings::log_stats,
     .max = 1,
     .needs = "evict pack",
     .is_setting = true},
    {.name = "codebook", .kind = ClauseKind::kFile, .text = &LayerRule::codebook},
    {.name = "fold", .kind = ClauseKind::kFile, .text = &LayerRule::fold},
    {.name = "image",
     .kind = ClauseKind::kCount,
     .count = &LayerRule::image_tokens,
     .needs = "fold"},
    {.name = "fold_positions",
     .kind = ClauseKind::kChoice,
     .choice = ChoiceOf<&PlanSettings::fold_positions>(),
     .words = "true restart",
     .needs = "fold",
     .is_setting = true,
     .one_only = "positions are those of all layers"},
    {.name = "fold_order",
     .kind = ClauseKind::kFile,
     .text = &LayerRule::fold_order,
     .needs = "fold"},
    {.name = "cross", .kind = ClauseKind::kRung, .text = &LayerRule::cross},
    {.name = "fallback", .kind = ClauseKind::kRung, .text = &LayerRule::fallback},
};

template <typename T, typename Member>
Status Store(Result<T> parsed, Member* member) {
  if (!parsed.ok()) return parsed.status();
  *member = std::move(*parsed);
  return Status();
}

// The place of the value among the clause's words.
Result<int> FindWord(const ClauseSpec& clause, std::string_view value) {
  const std::vector<std::string_view> words =
      clause.words_of_table != nullptr ? clause.words_of_table() : SplitWords(clause.words);
  const auto found = std::find(words.begin(), words.end(), value);
  if (found != words.end()) return static_cast<int>(found - words.begin());
  return InvalidArgument(fmt::format("unknown {} {}; known: {}{}", clause.name,
                                     QuoteForMessage(value), fmt::join(words, " "),
                                     DidYouMean(value, words)));
}

Status CheckWords(const ClauseSpec& clause, std::string_view value) {
  std::vector<int> said;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find('/', begin), value.size());
    VARVE_ASSIGN_OR_RETURN(const int word, FindWord(clause, value.substr(begin, end - begin)));
    if (std::find(said.begin(), said.end(), word) != said.end()) {
      return InvalidArgument(
          fmt::format("{} {} says a word twice", clause.name, QuoteForMessage(value)));
    }
    said.push_back(word);
    begin = end + 1;
  }
  return Status();
}

// The word of the rule's value. A number that is no value of the enum gives what no parser takes.
std::optional<std::string> ChoiceWord(const ClauseSpec& clause, const WrittenRule& rule) {
  const std::optional<int> value = clause.choice.get(rule);
  if (!value) return std::nullopt;
  const std::vector<std::string_view> words = SplitWords(clause.words);
  const auto index = static_cast<size_t>(*value);
  return index < words.size() ? std::string(words[index]) : fmt::format("({})", *value);
}

Status StoreReal(const ClauseSpec& clause, std::string_view text, WrittenRule* rule) {
  VARVE_ASSIGN_OR_RETURN(double value, ParseReal(clause.name, text));
  if (clause.name == "ratio" && !(value > 1)) {
    return InvalidArgument(fmt::format("ratio {} must be > 1", value));
  }
  if (clause.name == "ema" && !(value >= 0 && value < 1)) {
    return InvalidArgument(fmt::format("ema {} must be >= 0 and < 1", value));
  }
  rule->*clause.real = value;
  return Status();
}

Status StoreHot(std::string_view text, WrittenRule* rule) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    return InvalidArgument(fmt::format("hot {} is not SINK/RECENT", QuoteForMessage(text)));
  }
  VARVE_ASSIGN_OR_RETURN(int64_t sink,
                         ParseCount("hot sink", Trim(text.substr(0, slash)), 0, kMaxClauseTokens));
  VARVE_ASSIGN_OR_RETURN(
      int64_t recent, ParseCount("hot recent", Trim(text.substr(slash + 1)), 0, kMaxClauseTokens));
  rule->hot_sink_tokens = sink;
  rule->hot_recent_tokens = recent;
  return Status();
}

Status StorePage(std::string_view text, WrittenRule* rule) {
  VARVE_ASSIGN_OR_RETURN(int64_t tokens, ParseCount("page", text, 0, kMaxClauseTokens));
  if (tokens != 16 && tokens != 32 && tokens != 64 && tokens != 128) {
    return InvalidArgument(fmt::format("page {} is none of 16, 32, 64, 128", tokens));
  }
  rule->page_tokens = static_cast<int>(tokens);
  return Status();
}

}  // namespace

std::span<const ClauseSpec> Clauses() { return kClauses; }

const ClauseSpec* FindClause(std::string_view name) {
  const auto* found = std::find_if(std::begin(kClauses), std::end(kClauses),
                                   [&](const ClauseSpec& clause) { return clause.name == name; });
  return found == std::end(kClauses) ? nullptr : found;
}

std::string ClauseNames() {
  std::string names;
  for (const ClauseSpec& clause : kClauses) {
    if (!names.empty()) names += ' ';
    names += clause.name;
  }
  return names;
}

Status StoreClause(const ClauseSpec& clause, std::string_view value, WrittenRule* rule) {
  switch (clause.kind) {
    case ClauseKind::kRung:
      return Store(ReadRungName(value), &(rule->*clause.text));
    case ClauseKind::kBothRungs:
      VARVE_RETURN_IF_ERROR(Store(ReadRungName(value), &(rule->*clause.text)));
      rule->*clause.pair = rule->*clause.text;
      return Status();
    case ClauseKind::kAge:
      return Store(ParseAge(value), &rule->age);
    case ClauseKind::kPage:
      return StorePage(value, rule);
    case ClauseKind::kCount:
      return Store(ParseCount(clause.name, value, clause.min, clause.max), &(rule->*clause.count));
    case ClauseKind::kReal:
      return StoreReal(clause, value, rule);
    case ClauseKind::kBytes:
      return Store(ParseBudget(value), &rule->budget_bytes);
    case ClauseKind::kWord:
      VARVE_RETURN_IF_ERROR(FindWord(clause, value).status());
      rule->*clause.text = value;
      return Status();
    case ClauseKind::kChoice: {
      VARVE_ASSIGN_OR_RETURN(int choice, FindWord(clause, value));
      clause.choice.set(rule, choice);
      return Status();
    }
    case ClauseKind::kWords:
      VARVE_RETURN_IF_ERROR(CheckWords(clause, value));
      rule->*clause.text = value;
      return Status();
    case ClauseKind::kFile:
      VARVE_RETURN_IF_ERROR(CheckFileName(clause.name, value));
      rule->*clause.text = value;
      return Status();
    case ClauseKind::kHot:
      return StoreHot(value, rule);
  }
  return Internal("clause of unknown kind");
}

std::optional<std::string> ClauseValue(const ClauseSpec& clause, const WrittenRule& rule) {
  const bool both = clause.pair != nullptr && (rule.*clause.text).has_value() &&
                    rule.*clause.text == rule.*clause.pair;
  switch (clause.kind) {
    case ClauseKind::kBothRungs:
      return both ? rule.*clause.text : std::nullopt;
    case ClauseKind::kRung:
      return both ? std::nullopt : rule.*clause.text;
    case ClauseKind::kWord:
    case ClauseKind::kWords:
    case ClauseKind::kFile:
      return rule.*clause.text;
    case ClauseKind::kChoice:
      return ChoiceWord(clause, rule);
    case ClauseKind::kAge:
      if (rule.age.empty()) return std::nullopt;
      return AgeText(rule.age);
    case ClauseKind::kPage:
      if (!rule.page_tokens) return std::nullopt;
      return fmt::format("{}", *rule.page_tokens);
    case ClauseKind::kCount:
      if (!(rule.*clause.count)) return std::nullopt;
      return fmt::format("{}", *(rule.*clause.count));
    case ClauseKind::kReal:
      if (!(rule.*clause.real)) return std::nullopt;
      return fmt::format("{}", *(rule.*clause.real));  // shortest text that reads back the same
    case ClauseKind::kBytes:
      if (!rule.budget_bytes) return std::nullopt;
      return BudgetText(*rule.budget_bytes);
    case ClauseKind::kHot:
      if (!rule.hot_sink_tokens || !rule.hot_recent_tokens) return std::nullopt;
      return fmt::format("{}/{}", *rule.hot_sink_tokens, *rule.hot_recent_tokens);
  }
  return std::nullopt;
}

std::string ClauseText(const ClauseSpec& clause, std::string_view value) {
  if (clause.name == "kv") return std::string(value);
  if (clause.kind == ClauseKind::kFile) {
    return fmt::format("{}={}", clause.name, QuoteFileName(value));
  }
  return fmt::format("{}={}", clause.name, value);
}

}  // namespace varve
