// The text form of a plan: what stands behind --kv. Grammar, blanks allowed between any two parts:
//
//   plan   = [ rule { ";" rule } ]
//   rule   = [ layers ":" ] clause { "," clause }
//   layers = N | N "-" | N "-" N
//   clause = RUNG | PRESET | NAME "=" VALUE
//
// Separators inside double quotes separate nothing.

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/nearest_word.h"
#include "plan/plan_grammar.h"
#include "plan/plan_rule.h"
#include "plan/plan_values.h"
#include "rungs/rung_table.h"
#include "varve/plan.h"

namespace varve {
namespace {

// A part of the plan's text, without blanks around it.
struct Piece {
  std::string_view text;
  size_t column = 1;  // of its first byte, from 1
};

struct PresetClause {
  std::string_view preset;
  std::string_view clause;
  std::string_view value;
};

// What the words that are no rung stand for. `balanced` is the plan that loses least on all models
// measured, at a ratio of 3.2 or more at 2048 tokens (docs/plans.md).
constexpr PresetClause kPresets[] = {
    {"h2o", "evict", "h2o"},     {"pq", "kv", "pq4"},      {"store", "pack", "store"},
    {"fold", "fold", "shipped"}, {"balanced", "kv", "t4"},
};

Piece SubPiece(const Piece& whole, size_t begin, size_t end) {
  const std::string_view part = whole.text.substr(begin, end - begin);
  const std::string_view trimmed = Trim(part);
  const size_t blanks = trimmed.empty() ? 0 : static_cast<size_t>(trimmed.data() - part.data());
  return {trimmed, whole.column + begin + blanks};
}

std::vector<Piece> Split(const Piece& whole, char separator) {
  std::vector<Piece> pieces;
  size_t begin = 0;
  bool in_quotes = false;
  for (size_t i = 0; i < whole.text.size(); ++i) {
    const char c = whole.text[i];
    if (c == '"') {
      in_quotes = !in_quotes;
    } else if (c == '\\' && in_quotes) {
      ++i;
    } else if (c == separator && !in_quotes) {
      pieces.push_back(SubPiece(whole, begin, i));
      begin = i + 1;
    }
  }
  pieces.push_back(SubPiece(whole, begin, whole.text.size()));
  return pieces;
}

std::string ClauseLabel(int number, const Piece& piece) {
  return fmt::format("clause {} {} (column {})", number, QuoteForMessage(piece.text), piece.column);
}

Status LabeledError(const std::string& label, std::string_view reason) {
  return InvalidArgument(fmt::format("plan: {}: {}", label, reason));
}

// A clause without "=": a rung, or a preset, which stands for one or more clauses.
Status AddBareWord(std::string_view word, const std::string& label, RuleBuilder* builder) {
  if (ReadRungName(word).ok()) return builder->Add(*FindClause("kv"), word, label);
  bool is_known = false;
  for (const PresetClause& preset : kPresets) {
    if (preset.preset != word) continue;
    is_known = true;
    VARVE_RETURN_IF_ERROR(builder->Add(*FindClause(preset.clause), preset.value, label));
  }
  if (is_known) return Status();
  if (word.empty()) return LabeledError(label, "empty clause");
  std::vector<std::string_view> words = RungNames();
  for (const PresetClause& preset : kPresets) words.push_back(preset.preset);
  return LabeledError(
      label, fmt::format("unknown rung {}; known: {}; presets: h2o pq store fold balanced{}",
                         QuoteForMessage(word), KnownRungNames(), DidYouMean(word, words)));
}

Status AddClause(const Piece& piece, int number, RuleBuilder* builder) {
  const std::string label = ClauseLabel(number, piece);
  const size_t equals = piece.text.find('=');
  if (equals == std::string_view::npos) return AddBareWord(piece.text, label, builder);
  const std::string_view name = Trim(piece.text.substr(0, equals));
  const std::string_view value = Trim(piece.text.substr(equals + 1));
  const ClauseSpec* clause = FindClause(name);
  if (clause == nullptr) {
    const std::string known = ClauseNames();
    return LabeledError(label, fmt::format("unknown clause {}; known: {}{}", QuoteForMessage(name),
                                           known, DidYouMean(name, SplitWords(known))));
  }
  if (clause->kind != ClauseKind::kFile) return builder->Add(*clause, value, label);
  Result<std::string> file_name = UnquoteFileName(value);
  if (!file_name.ok()) return LabeledError(label, file_name.status().message());
  return builder->Add(*clause, *file_name, label);
}

// Cuts "0-1:" off the front of a rule. A colon that belongs to a clause comes after "=".
Status TakeLayers(Piece* piece, LayerRule* rule) {
  const size_t end = piece->text.find_first_of(":=,\"");
  if (end == std::string_view::npos || piece->text[end] != ':') return Status();
  const Piece layers = SubPiece(*piece, 0, end);
  const Status stored = StoreLayers(layers.text, rule);
  if (!stored.ok()) {
    return LabeledError(
        fmt::format("layers {} (column {})", QuoteForMessage(layers.text), layers.column),
        stored.message());
  }
  *piece = SubPiece(*piece, end + 1, piece->text.size());
  return Status();
}

}  // namespace

Result<Plan> ParsePlan(std::string_view text) {
  if (text.size() > kMaxPlanBytes) {
    return InvalidArgument(fmt::format("plan: text of {} bytes > {}", text.size(), kMaxPlanBytes));
  }
  const Piece whole = SubPiece({text, 1}, 0, text.size());
  if (whole.text.empty()) return Plan();

  std::vector<LabeledRule> rules;
  int clause_number = 0;
  for (Piece piece : Split(whole, ';')) {
    const std::string label = fmt::format("rule {} (column {})", rules.size() + 1, piece.column);
    RuleBuilder builder;
    VARVE_RETURN_IF_ERROR(TakeLayers(&piece, &builder.rule()));
    if (piece.text.empty()) return LabeledError(label, "says nothing");
    for (const Piece& clause : Split(piece, ',')) {
      VARVE_RETURN_IF_ERROR(AddClause(clause, ++clause_number, &builder));
    }
    rules.push_back({std::move(builder.rule()), label});
  }
  return JoinRules(std::move(rules));
}

std::string PrintPlan(const Plan& plan) {
  std::string text;
  for (const WrittenRule& rule : SplitPlan(plan)) {
    const bool is_everywhere = rule.first_layer == 0 && rule.last_layer == -1;
    if (!text.empty()) text += "; ";
    if (plan.rules.size() > 1 || !is_everywhere) text += LayersText(rule) + ": ";
    std::string_view separator;
    for (const ClauseSpec& clause : Clauses()) {
      const std::optional<std::string> value = ClauseValue(clause, rule);
      if (!value) continue;
      text += separator;
      text += ClauseText(clause, *value);
      separator = ",";
    }
  }
  return text;
}

int Plan::PageTokens() const {
  constexpr int kDefaultPageTokens = 64;
  return settings.page_tokens.value_or(kDefaultPageTokens);
}

}  // namespace varve
