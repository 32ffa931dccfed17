#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "runtime/jinja/jinja_builtins.h"

namespace varve::jinja {
namespace {

Status WrongTypes(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is(Kind::kUndefined)) {
      return InvalidArgument(fmt::format("'{}' is undefined", value->undefined_name()));
    }
  }
  return InvalidArgument(
      fmt::format("{} {} {}: these types do not go together", a.type_name(), op, b.type_name()));
}

// Python rounds down, C towards zero.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Result<Value> IntegerOperation(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (op == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (b == 0) {
    return InvalidArgument(fmt::format("{} {} 0: divides by zero", a, op));
  } else if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    overflows = true;
  } else {
    const int64_t quotient = FloorDivide(a, b);
    result = op == "//" ? quotient : a - quotient * b;
  }
  if (overflows) return InvalidArgument(fmt::format("{} {} {}: more than 64 bits", a, op, b));
  return Value::Int(result);
}

Result<Value> FloatOperation(std::string_view op, double a, double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (op == "**") return Value::Float(std::pow(a, b));
  if (b == 0) return InvalidArgument(fmt::format("{} {} 0: divides by zero", a, op));
  if (op == "/") return Value::Float(a / b);
  const double quotient = std::floor(a / b);
  return Value::Float(op == "//" ? quotient : a - quotient * b);
}

Result<Value> NumberOperation(std::string_view op, const Value& a, const Value& b) {
  const bool is_float = a.is(Kind::kFloat) || b.is(Kind::kFloat);
  if (is_float || op == "/") return FloatOperation(op, a.number(), b.number());
  if (op != "**") return IntegerOperation(op, a.integer(), b.integer());
  const double power = std::pow(a.number(), b.number());
  if (b.integer() < 0) return Value::Float(power);
  if (std::abs(power) >= 0x1p53) return InvalidArgument("**: more than 53 bits");
  return Value::Int(static_cast<int64_t>(power));
}

// The evaluator has counted what this makes.
Result<Value> Repeat(const Value& value, int64_t times) {
  if (value.is(Kind::kText)) {
    MarkedText text;
    for (int64_t i = 0; i < times; ++i) text.Append(value.marked());
    return Value::Text(std::move(text));
  }
  List items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.list().begin(), value.list().end());
  }
  return Value::OfList(std::move(items));
}

Result<Value> Compare(std::string_view op, const Value& a, const Value& b) {
  const bool swaps = op == ">" || op == "<=";
  VARVE_ASSIGN_OR_RETURN(const bool less, swaps ? IsLess(b, a) : IsLess(a, b));
  return Value::Bool(less == (op == "<" || op == ">"));
}

}  // namespace

Result<bool> IsLess(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const bool is_float = a.is(Kind::kFloat) || b.is(Kind::kFloat);
    return is_float ? a.number() < b.number() : a.integer() < b.integer();
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) return a.text() < b.text();
  if (!a.is(Kind::kList) || !b.is(Kind::kList)) return WrongTypes("<", a, b);
  const size_t common = std::min(a.list().size(), b.list().size());
  for (size_t i = 0; i < common; ++i) {
    if (!a.list()[i].Equals(b.list()[i])) return IsLess(a.list()[i], b.list()[i]);
  }
  return a.list().size() < b.list().size();
}

Result<bool> Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      if (!item.is(Kind::kText)) return WrongTypes("in", item, container);
      return container.text().find(item.text()) != std::string::npos;
    case Kind::kList:
      return std::ranges::any_of(container.list(),
                                 [&](const Value& member) { return member.Equals(item); });
    case Kind::kDict:
      return container.Find(item) != nullptr;
    default:
      return WrongTypes("in", item, container);
  }
}

Result<Value> Operate(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return Value::Bool(a.Equals(b));
  if (op == "!=") return Value::Bool(!a.Equals(b));
  if (op == "in" || op == "not in") {
    VARVE_ASSIGN_OR_RETURN(const bool is_in, Contains(b, a));
    return Value::Bool(is_in == (op == "in"));
  }
  if (op == "~") {
    MarkedText text = TextOf(a);
    text.Append(TextOf(b));
    return Value::Text(std::move(text));
  }
  if (op == "<" || op == ">" || op == "<=" || op == ">=") return Compare(op, a, b);
  if (a.is_number() && b.is_number()) return NumberOperation(op, a, b);
  if (op == "+" && a.is(Kind::kText) && b.is(Kind::kText)) {
    MarkedText text = a.marked();
    text.Append(b.marked());
    return Value::Text(std::move(text));
  }
  if (op == "+" && a.is(Kind::kList) && b.is(Kind::kList)) {
    List items = a.list();
    items.insert(items.end(), b.list().begin(), b.list().end());
    return Value::OfList(std::move(items));
  }
  const auto can_repeat = [](const Value& v) { return v.is(Kind::kText) || v.is(Kind::kList); };
  if (op == "*" && can_repeat(a) && b.is(Kind::kInt)) return Repeat(a, b.integer());
  if (op == "*" && can_repeat(b) && a.is(Kind::kInt)) return Repeat(b, a.integer());
  if (op == "%" && a.is(Kind::kText)) return Unimplemented("\"%\" behind a text is not supported");
  return WrongTypes(op, a, b);
}

}  // namespace varve::jinja
