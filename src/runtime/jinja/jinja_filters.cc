// Filters of texts and numbers; those of lists are in jinja_list_filters.cc.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "runtime/jinja/jinja_evaluator.h"
#include "runtime/jinja/jinja_list_filters.h"

namespace varve::jinja {
namespace {

constexpr int64_t kMaxIndent = 64;

bool IsGiven(const Value& value) { return !value.is(Kind::kUndefined); }

Result<Value> Trim(BuiltinCall& call) {
  const std::string_view characters =
      call.args[0].is(Kind::kText) ? std::string_view(call.args[0].text()) : kWhiteSpace;
  return call.run.MakeText(StripText(TextOf(call.input), characters, true, true));
}

template <const char* how>
Result<Value> Case(BuiltinCall& call) {
  return call.run.MakeText(ChangeCase(TextOf(call.input), how));
}
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kTitle[] = "title";
constexpr char kCapitalize[] = "capitalize";

Result<Value> String(BuiltinCall& call) { return call.run.MakeText(TextOf(call.input)); }

Result<Value> Default(BuiltinCall& call) {
  const bool takes = call.args[1].IsTrue() ? call.input.IsTrue() : IsGiven(call.input);
  if (takes) return call.input;
  return IsGiven(call.args[0]) ? call.args[0] : Value::Text("");
}

Result<Value> ToInt(BuiltinCall& call) {
  const Value otherwise = IsGiven(call.args[0]) ? call.args[0] : Value::Int(0);
  if (call.input.is(Kind::kBool) || call.input.is(Kind::kInt))
    return Value::Int(call.input.integer());
  double number = 0;
  if (call.input.is(Kind::kFloat)) {
    number = call.input.number();
  } else if (call.input.is(Kind::kText)) {
    const MarkedText text = StripText(call.input.marked(), kWhiteSpace, true, true);
    const std::string& digits = text.text();
    int64_t integer = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, integer);
    if (error == std::errc() && stop == end) return Value::Int(integer);
    char* parsed = nullptr;
    number = std::strtod(digits.c_str(), &parsed);
    if (digits.empty() || *parsed != '\0') return otherwise;
  } else {
    return otherwise;
  }
  if (!(std::abs(number) < 0x1p62)) return otherwise;
  return Value::Int(static_cast<int64_t>(number));
}

Result<Value> ToFloat(BuiltinCall& call) {
  if (call.input.is_number()) return Value::Float(call.input.number());
  if (call.input.is(Kind::kText)) {
    char* parsed = nullptr;
    const double number = std::strtod(call.input.text().c_str(), &parsed);
    if (!call.input.text().empty() && *parsed == '\0') return Value::Float(number);
  }
  return IsGiven(call.args[0]) ? call.args[0] : Value::Float(0);
}

Status RequireNumber(const BuiltinCall& call, std::string_view filter) {
  if (call.input.is_number()) return {};
  return InvalidArgument(fmt::format("{}: a value of type {}", filter, call.input.type_name()));
}

Result<Value> Absolute(BuiltinCall& call) {
  VARVE_RETURN_IF_ERROR(RequireNumber(call, "abs"));
  if (call.input.number() >= 0) return call.input;
  return Operate("-", Value::Int(0), call.input);
}

Result<Value> Round(BuiltinCall& call) {
  VARVE_RETURN_IF_ERROR(RequireNumber(call, "round"));
  const int64_t places = call.args[0].is(Kind::kInt) ? call.args[0].integer() : 0;
  if (places < -15 || places > 15) return InvalidArgument("round: more than 15 places");
  const double scale = std::pow(10.0, static_cast<double>(places));
  const std::string how = call.args[1].is(Kind::kText) ? call.args[1].text() : "common";
  const double scaled = call.input.number() * scale;
  if (how == "ceil") return Value::Float(std::ceil(scaled) / scale);
  if (how == "floor") return Value::Float(std::floor(scaled) / scale);
  return Value::Float(std::nearbyint(scaled) / scale);  // to even, as Python does
}

Result<Value> ToJson(BuiltinCall& call) {
  JsonStyle style;
  const auto separator = [](const Value& value) {
    return value.is(Kind::kText) && value.text().size() <= 16;
  };
  if (call.args[0].is(Kind::kInt)) {
    style.indent = call.args[0].integer();
    style.item_separator = ",";
    if (style.indent > kMaxIndent) {
      return InvalidArgument(fmt::format("tojson: indent {} > {}", style.indent, kMaxIndent));
    }
  }
  if (const Value& both = call.args[1]; both.is(Kind::kList)) {
    if (both.list().size() != 2 || !separator(both.list()[0]) || !separator(both.list()[1])) {
      return InvalidArgument("tojson: separators are no two texts of at most 16 bytes");
    }
    style.item_separator = both.list()[0].text();
    style.key_separator = both.list()[1].text();
  }
  style.sort_keys = call.args[2].IsTrue();
  style.ascii = call.args[3].IsTrue();
  VARVE_ASSIGN_OR_RETURN(MarkedText text, JsonText(call.input, style));
  if (!TextOf(call.args[1]).said().empty()) text = MarkedText::Said(text.text());
  return call.run.MakeText(std::move(text));
}

Result<Value> Replace(BuiltinCall& call) {
  const MarkedText text = TextOf(call.input);
  const MarkedText from = TextOf(call.args[0]);
  const MarkedText to = TextOf(call.args[1]);
  const int64_t count = call.args[2].is(Kind::kInt) ? call.args[2].integer() : -1;
  size_t found = 0;
  for (size_t at = text.text().find(from.text()); !from.empty() && at != std::string::npos;
       at = text.text().find(from.text(), at + from.size())) {
    ++found;
  }
  VARVE_RETURN_IF_ERROR(call.run.ChargeText(found * to.size()));
  return call.run.MakeText(ReplaceText(text, from, to, count));
}

// Every line but the first, or the first too; blank ones only if asked for.
Result<Value> Indent(BuiltinCall& call) {
  MarkedText fill(std::string(4, ' '));
  if (call.args[0].is(Kind::kInt)) {
    const int64_t width = call.args[0].integer();
    if (width < 0 || width > kMaxIndent) {
      return InvalidArgument(fmt::format("indent: width {} is not in 0 … {}", width, kMaxIndent));
    }
    fill = MarkedText(std::string(static_cast<size_t>(width), ' '));
  } else if (call.args[0].is(Kind::kText)) {
    return Unimplemented("indent by a text is not supported");
  }
  const MarkedText text = TextOf(call.input);
  MarkedText out;
  bool indents = call.args[1].IsTrue();
  for (size_t at = 0; at < text.size();) {
    const size_t newline = text.text().find('\n', at);
    const size_t end = newline == std::string::npos ? text.size() : newline + 1;
    const bool is_blank = text.text().find_first_not_of(kWhiteSpace, at) >= end;
    if (indents && (!is_blank || call.args[2].IsTrue())) out.Append(fill);
    out.AppendPart(text, at, end);
    indents = true;
    at = end;
  }
  return call.run.MakeText(std::move(out));
}

Result<Value> Escape(BuiltinCall& call) {
  MarkedText text = TextOf(call.input);
  for (const auto& [from, to] :
       {std::pair("&", "&amp;"), {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}) {
    text = ReplaceText(text, MarkedText(from), MarkedText(to), -1);
  }
  return call.run.MakeText(std::move(text));
}

Result<Value> Same(BuiltinCall& call) { return call.input; }

constexpr Builtin kFilters[] = {
    {"trim", "chars", Trim},
    {"upper", "", Case<kUpper>},
    {"lower", "", Case<kLower>},
    {"title", "", Case<kTitle>},
    {"capitalize", "", Case<kCapitalize>},
    {"string", "", String},
    {"safe", "", Same, true},
    {"default", "default_value boolean", Default, true},
    {"d", "default_value boolean", Default, true},
    {"int", "default base", ToInt},
    {"float", "default", ToFloat},
    {"abs", "", Absolute},
    {"round", "precision method", Round},
    {"tojson", "indent separators sort_keys ensure_ascii", ToJson},
    {"replace", "old new count", Replace},
    {"indent", "width first blank", Indent},
    {"escape", "", Escape},
    {"e", "", Escape},
};

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  const auto* const found = std::ranges::find(kFilters, name, &Builtin::name);
  return found != std::end(kFilters) ? found : FindListFilter(name);
}

}  // namespace varve::jinja
