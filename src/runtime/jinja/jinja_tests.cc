// What stands behind `is`.

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "runtime/jinja/jinja_builtins.h"

namespace varve::jinja {
namespace {

template <Kind... kinds>
Result<Value> IsKind(BuiltinCall& call) {
  return Value::Bool((call.input.is(kinds) || ...));
}

template <bool expected>
Result<Value> IsDefined(BuiltinCall& call) {
  return Value::Bool(!call.input.is(Kind::kUndefined) == expected);
}

template <bool expected>
Result<Value> IsBoolean(BuiltinCall& call) {
  return Value::Bool(call.input.is(Kind::kBool) && call.input.boolean() == expected);
}

// Python's operators by their names.
template <const char* op>
Result<Value> Operator(BuiltinCall& call) {
  return Operate(op, call.input, call.args[0]);
}
constexpr char kEqual[] = "==";
constexpr char kNotEqual[] = "!=";
constexpr char kLess[] = "<";
constexpr char kLessEqual[] = "<=";
constexpr char kGreater[] = ">";
constexpr char kGreaterEqual[] = ">=";
constexpr char kIn[] = "in";

Result<Value> IsSame(BuiltinCall& call) {
  const bool same = call.input.kind() == call.args[0].kind() && call.input.Equals(call.args[0]);
  return Value::Bool(same);
}

template <int64_t remainder>
Result<Value> IsRemainder(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const Value value, Operate("%", call.input, Value::Int(2)));
  return Value::Bool(value.Equals(Value::Int(remainder)));
}

Result<Value> IsDivisible(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const Value value, Operate("%", call.input, call.args[0]));
  return Value::Bool(value.Equals(Value::Int(0)));
}

template <const char* how>
Result<Value> HasCase(BuiltinCall& call) {
  const MarkedText text = TextOf(call.input);
  const bool has_letter = ChangeCase(text, "upper").text() != ChangeCase(text, "lower").text();
  return Value::Bool(has_letter && ChangeCase(text, how).text() == text.text());
}
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";

constexpr Builtin kTests[] = {
    {"defined", "", IsDefined<true>, true},
    {"undefined", "", IsDefined<false>, true},
    {"none", "", IsKind<Kind::kNone>, true},
    {"boolean", "", IsKind<Kind::kBool>, true},
    {"true", "", IsBoolean<true>, true},
    {"false", "", IsBoolean<false>, true},
    {"integer", "", IsKind<Kind::kInt>, true},
    {"float", "", IsKind<Kind::kFloat>, true},
    {"number", "", IsKind<Kind::kBool, Kind::kInt, Kind::kFloat>, true},
    {"string", "", IsKind<Kind::kText>, true},
    {"mapping", "", IsKind<Kind::kDict>, true},
    {"iterable", "", IsKind<Kind::kText, Kind::kList, Kind::kDict, Kind::kUndefined>, true},
    {"sequence", "", IsKind<Kind::kText, Kind::kList, Kind::kDict, Kind::kUndefined>, true},
    {"callable", "", IsKind<Kind::kFunction>, true},
    {"equalto", "other", Operator<kEqual>},
    {"eq", "other", Operator<kEqual>},
    {"==", "other", Operator<kEqual>},
    {"ne", "other", Operator<kNotEqual>},
    {"!=", "other", Operator<kNotEqual>},
    {"lt", "other", Operator<kLess>},
    {"lessthan", "other", Operator<kLess>},
    {"<", "other", Operator<kLess>},
    {"le", "other", Operator<kLessEqual>},
    {"<=", "other", Operator<kLessEqual>},
    {"gt", "other", Operator<kGreater>},
    {"greaterthan", "other", Operator<kGreater>},
    {">", "other", Operator<kGreater>},
    {"ge", "other", Operator<kGreaterEqual>},
    {">=", "other", Operator<kGreaterEqual>},
    {"in", "seq", Operator<kIn>},
    {"sameas", "other", IsSame},
    {"odd", "", IsRemainder<1>},
    {"even", "", IsRemainder<0>},
    {"divisibleby", "num", IsDivisible},
    {"upper", "", HasCase<kUpper>},
    {"lower", "", HasCase<kLower>},
};

}  // namespace

const Builtin* FindTest(std::string_view name) {
  const auto* const found = std::ranges::find(kTests, name, &Builtin::name);
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace varve::jinja
