#include "plan/plan_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

#include "base/nearest_word.h"
#include "base/utf8.h"
#include "rungs/rung_table.h"

namespace varve {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

struct ByteUnit {
  std::string_view suffix;
  int shift;
};
constexpr ByteUnit kByteUnits[] = {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};

// Parses the whole text; `error` is invalid_argument where something is left over.
template <typename T>
T ParseWhole(std::string_view text, std::errc* error) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  *error = rest == end ? code : std::errc::invalid_argument;
  return value;
}

Result<AgeStep> ParseAgeStage(std::string_view stage, bool is_last, int64_t previous) {
  const size_t colon = stage.find(':');
  AgeStep step;
  VARVE_ASSIGN_OR_RETURN(step.rung, ReadRungName(Trim(stage.substr(0, colon))));
  if (is_last && colon != std::string_view::npos) {
    return InvalidArgument(fmt::format("the last stage {} has a bound; it must be RUNG alone",
                                       QuoteForMessage(stage)));
  }
  if (is_last) return step;
  if (colon == std::string_view::npos) {
    return InvalidArgument(fmt::format(
        "stage {} has no bound; every stage but the last is RUNG:TOKENS", QuoteForMessage(stage)));
  }
  VARVE_ASSIGN_OR_RETURN(
      int64_t bound, ParseCount("age bound", Trim(stage.substr(colon + 1)), 1, kMaxClauseTokens));
  if (bound <= previous) {
    return InvalidArgument(
        fmt::format("age bound {} <= {} before it; bounds must ascend", bound, previous));
  }
  step.until_tokens = bound;
  return step;
}

}  // namespace

Result<std::string> ReadRungName(std::string_view name) {
  std::string small(name);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (small == "fp16" || small == "fp32") small.erase(1, 1);
  if (IsRungName(small)) return small;
  return InvalidArgument(fmt::format("unknown rung {}; known: {}{}", QuoteForMessage(name),
                                     KnownRungNames(), DidYouMean(name, RungNames())));
}

Result<int64_t> ParseCount(std::string_view name, std::string_view text, int64_t min, int64_t max) {
  std::errc error;
  const auto value = ParseWhole<int64_t>(text, &error);
  if (error == std::errc::invalid_argument) {
    return InvalidArgument(fmt::format("{} {} is not an integer", name, QuoteForMessage(text)));
  }
  if (error == std::errc() && value >= min && value <= max) return value;
  const bool is_low = text.starts_with('-') || (error == std::errc() && value < min);
  const std::string shown = error == std::errc() ? std::to_string(value) : QuoteForMessage(text);
  return InvalidArgument(is_low ? fmt::format("{} {} < {}", name, shown, min)
                                : fmt::format("{} {} > {}", name, shown, max));
}

Result<double> ParseReal(std::string_view name, std::string_view text) {
  std::errc error;
  const auto value = ParseWhole<double>(text, &error);
  if (error == std::errc() && std::isfinite(value)) return value;
  return InvalidArgument(fmt::format("{} {} is not a finite number", name, QuoteForMessage(text)));
}

Result<uint64_t> ParseBudget(std::string_view text) {
  std::string_view digits = text;
  int shift = 0;
  for (const ByteUnit& unit : kByteUnits) {
    if (!text.ends_with(unit.suffix)) continue;
    digits = Trim(text.substr(0, text.size() - unit.suffix.size()));
    shift = unit.shift;
    break;
  }
  std::errc error;
  const auto value = ParseWhole<uint64_t>(digits, &error);
  if (error == std::errc::invalid_argument) {
    return InvalidArgument(fmt::format(
        "budget {} is not an integer with B, KiB, MiB or GiB behind it", QuoteForMessage(text)));
  }
  if (error != std::errc() || value > (kMaxBudgetBytes >> shift)) {
    return InvalidArgument(
        fmt::format("budget {} > {}", QuoteForMessage(text), BudgetText(kMaxBudgetBytes)));
  }
  if (value == 0) return InvalidArgument("budget 0 < 1 byte");
  return value << shift;
}

std::string BudgetText(uint64_t bytes) {
  for (const ByteUnit& unit : kByteUnits) {
    const uint64_t mask = (uint64_t{1} << unit.shift) - 1;
    if ((bytes & mask) == 0) return fmt::format("{}{}", bytes >> unit.shift, unit.suffix);
  }
  return fmt::format("{}B", bytes);
}

Result<std::vector<AgeStep>> ParseAge(std::string_view text) {
  std::vector<AgeStep> steps;
  for (bool is_last = false; !is_last;) {
    const size_t slash = text.find('/');
    is_last = slash == std::string_view::npos;
    const int64_t previous = steps.empty() ? 0 : steps.back().until_tokens;
    VARVE_ASSIGN_OR_RETURN(AgeStep step,
                           ParseAgeStage(Trim(text.substr(0, slash)), is_last, previous));
    steps.push_back(std::move(step));
    if (!is_last) text.remove_prefix(slash + 1);
  }
  return steps;
}

std::string AgeText(const std::vector<AgeStep>& steps) {
  std::string text;
  for (const AgeStep& step : steps) {
    if (!text.empty()) text += '/';
    text += step.rung;
    if (step.until_tokens != -1) text += fmt::format(":{}", step.until_tokens);
  }
  return text;
}

Status StoreLayers(std::string_view text, LayerRule* rule) {
  const size_t dash = text.find('-');
  VARVE_ASSIGN_OR_RETURN(
      int64_t first, ParseCount("first layer", Trim(text.substr(0, dash)), 0, kMaxPlanLayers - 1));
  int64_t last = first;
  if (dash != std::string_view::npos) {
    const std::string_view rest = Trim(text.substr(dash + 1));
    last = -1;
    if (!rest.empty()) {
      VARVE_ASSIGN_OR_RETURN(int64_t parsed, ParseCount("last layer", rest, 0, kMaxPlanLayers - 1));
      last = parsed;
      if (last < first) {
        return InvalidArgument(fmt::format("last layer {} < first layer {}", last, first));
      }
    }
  }
  rule->first_layer = static_cast<int>(first);
  rule->last_layer = static_cast<int>(last);
  return Status();
}

std::string LayersText(const LayerRule& rule) {
  if (rule.last_layer == -1) return fmt::format("{}-", rule.first_layer);
  if (rule.last_layer == rule.first_layer) return fmt::format("{}", rule.first_layer);
  return fmt::format("{}-{}", rule.first_layer, rule.last_layer);
}

Status CheckFileName(std::string_view clause, std::string_view name) {
  if (name.empty()) return InvalidArgument(fmt::format("{} names no file", clause));
  if (name.size() > kMaxFileNameBytes) {
    return InvalidArgument(
        fmt::format("{} file name of {} bytes > {}", clause, name.size(), kMaxFileNameBytes));
  }
  if (name.find('\0') != std::string_view::npos || !IsValidUtf8(name)) {
    return InvalidArgument(
        fmt::format("{} file name {} is not UTF-8 text", clause, QuoteForMessage(name)));
  }
  return Status();
}

std::string QuoteFileName(std::string_view name) {
  const bool is_plain = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' ||
           std::string_view(",;:\"\\").find(c) != std::string_view::npos;
  });
  if (is_plain) return std::string(name);
  std::string quoted = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

Result<std::string> UnquoteFileName(std::string_view text) {
  const Status misplaced = InvalidArgument("a quote must open and close the whole file name");
  if (!text.starts_with('"')) {
    if (text.find('"') != std::string_view::npos) return misplaced;
    return std::string(text);
  }
  std::string name;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (i + 1 != text.size()) return misplaced;
      return name;
    }
    if (text[i] == '\\') {
      ++i;
      if (i == text.size() || (text[i] != '"' && text[i] != '\\')) {
        return InvalidArgument("a backslash in quotes must stand before a quote or a backslash");
      }
    }
    name += text[i];
  }
  return InvalidArgument("the quoted file name has no closing quote");
}

std::vector<std::string_view> SplitWords(std::string_view words) {
  std::vector<std::string_view> list;
  while (!words.empty()) {
    const size_t blank = words.find(' ');
    list.push_back(words.substr(0, blank));
    words.remove_prefix(blank == std::string_view::npos ? words.size() : blank + 1);
  }
  return list;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return text.substr(0, 0);
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string QuoteForMessage(std::string_view text) {
  constexpr size_t kMaxShown = 64;
  std::string quoted = "\"";
  for (char c : text.substr(0, kMaxShown)) {
    quoted += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  }
  return quoted + (text.size() > kMaxShown ? "...\"" : "\"");
}

}  // namespace varve
