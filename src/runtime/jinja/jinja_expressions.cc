#include <algorithm>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/jinja/jinja_evaluator.h"
#include "runtime/jinja/jinja_lexer.h"

namespace varve::jinja {
namespace {

using NodeKind = Expression::Kind;

// The error of an operation, with the line where it stands.
Result<Value> Placed(const Expression& expression, Result<Value> result) {
  if (result.ok()) return result;
  return AtLine(expression.line, result.status());
}

}  // namespace

Result<Value> Evaluator::Eval(const Expression& expression, Scope& scope) {
  const Deeper deeper(this, expression.line);
  VARVE_RETURN_IF_ERROR(deeper.status);
  if (const Status status = Charge(1); !status.ok()) return AtLine(expression.line, status);
  Result<Value> value = EvalKind(expression, scope);
  if (value.ok() && value->depth() > limits_.value_depth) {
    return SyntaxError(expression.line,
                       fmt::format("a value of more than {} levels", limits_.value_depth));
  }
  if (value.ok() && value->weight() > limits_.value_weight) {
    return SyntaxError(expression.line,
                       fmt::format("a value of more than {} parts", limits_.value_weight));
  }
  return value;
}

Result<Value> Evaluator::EvalKind(const Expression& expression, Scope& scope) {
  switch (expression.kind) {
    case NodeKind::kLiteral:
      return expression.literal;
    case NodeKind::kName:
      return EvalName(expression, scope);
    case NodeKind::kList: {
      List items;
      for (const ExpressionPointer& child : expression.children) {
        VARVE_ASSIGN_OR_RETURN(Value item, Eval(*child, scope));
        items.push_back(std::move(item));
      }
      return Value::OfList(std::move(items));
    }
    case NodeKind::kDict:
      return EvalDict(expression, scope);
    case NodeKind::kAttribute: {
      VARVE_ASSIGN_OR_RETURN(Value value, Eval(*expression.children[0], scope));
      return Placed(expression, GetAttribute(value, expression.name));
    }
    case NodeKind::kItem: {
      VARVE_ASSIGN_OR_RETURN(Value value, Eval(*expression.children[0], scope));
      VARVE_ASSIGN_OR_RETURN(Value key, Eval(*expression.children[1], scope));
      return Placed(expression, GetItem(value, key));
    }
    case NodeKind::kSlice:
      return EvalSlice(expression, scope);
    case NodeKind::kCall:
      return EvalCall(expression, scope);
    case NodeKind::kFilter:
    case NodeKind::kTest:
      return EvalNamedBuiltin(expression, scope);
    case NodeKind::kUnary:
      return EvalUnary(expression, scope);
    case NodeKind::kBinary:
      return EvalBinary(expression, scope);
    case NodeKind::kConditional: {
      VARVE_ASSIGN_OR_RETURN(Value condition, Eval(*expression.children[0], scope));
      return EvalOptional(expression.children[condition.IsTrue() ? 1 : 2], scope);
    }
  }
  return Internal("an expression of no kind");
}

Result<Value> Evaluator::EvalOptional(const ExpressionPointer& expression, Scope& scope) {
  return expression ? Eval(*expression, scope) : Result<Value>(Value());
}

Result<Value> Evaluator::EvalName(const Expression& expression, Scope& scope) const {
  if (const Value* value = scope.Find(expression.name)) return *value;
  if (const Builtin* builtin = FindGlobal(expression.name)) {
    auto function = std::make_shared<Function>();
    function->name = expression.name;
    function->builtin = builtin;
    return Value::Of(std::shared_ptr<const Function>(std::move(function)));
  }
  return Value::Undefined(expression.name);
}

Result<Value> Evaluator::EvalUnary(const Expression& expression, Scope& scope) {
  VARVE_ASSIGN_OR_RETURN(Value value, Eval(*expression.children[0], scope));
  if (expression.name == "not") return Value::Bool(!value.IsTrue());
  if (!value.is_number()) {
    return SyntaxError(expression.line, fmt::format("\"{}\" in front of a value of type {}",
                                                    expression.name, value.type_name()));
  }
  if (expression.name == "+") return value;
  return Placed(expression, Operate("-", Value::Int(0), value));
}

Result<Value> Evaluator::EvalBinary(const Expression& expression, Scope& scope) {
  VARVE_ASSIGN_OR_RETURN(Value left, Eval(*expression.children[0], scope));
  const std::string& op = expression.name;
  if (op == "and" || op == "or") {
    if (left.IsTrue() == (op == "or")) return left;
    return Eval(*expression.children[1], scope);
  }
  VARVE_ASSIGN_OR_RETURN(Value right, Eval(*expression.children[1], scope));
  const Status charged = Charge(left.weight() + right.weight());
  if (!charged.ok()) return AtLine(expression.line, charged);
  const bool is_product = op == "*" && (!left.is_number() || !right.is_number());
  if (is_product) {  // a text so many times: what can grow at once
    const Status fits =
        CheckRepetition(left.is(Kind::kInt) ? right : left, left.is(Kind::kInt) ? left : right);
    if (!fits.ok()) return AtLine(expression.line, fits);
  }
  Result<Value> value = Operate(op, left, right);
  if (value.ok() && value->is(Kind::kText)) {
    const Status status = ChargeText(value->marked().size());
    if (!status.ok()) return AtLine(expression.line, status);
  }
  return Placed(expression, std::move(value));
}

Status Evaluator::CheckRepetition(const Value& value, const Value& times) const {
  const int64_t count = times.is(Kind::kInt) ? times.integer() : 0;
  if (count <= limits_.value_weight / value.weight()) return {};
  return InvalidArgument(fmt::format("{} times a value of type {} is more than {} parts", count,
                                     value.type_name(), limits_.value_weight));
}

Result<Value> Evaluator::EvalDict(const Expression& expression, Scope& scope) {
  Entries entries;
  for (size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    VARVE_ASSIGN_OR_RETURN(Value key, Eval(*expression.children[i], scope));
    VARVE_ASSIGN_OR_RETURN(Value value, Eval(*expression.children[i + 1], scope));
    const auto old =
        std::ranges::find_if(entries, [&](const auto& entry) { return entry.first.Equals(key); });
    if (old == entries.end()) {
      entries.emplace_back(std::move(key), std::move(value));
    } else {
      old->second = std::move(value);
    }
  }
  return Value::OfDict(std::move(entries));
}

Result<Value> Evaluator::EvalSlice(const Expression& expression, Scope& scope) {
  VARVE_ASSIGN_OR_RETURN(Value value, Eval(*expression.children[0], scope));
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    VARVE_ASSIGN_OR_RETURN(parts[i], EvalOptional(expression.children[i + 1], scope));
  }
  const bool is_list = value.is(Kind::kList);
  const int64_t cost = is_list ? static_cast<int64_t>(value.list().size()) : value.weight();
  const Status charged = Charge(cost);
  if (!charged.ok()) return AtLine(expression.line, charged);
  return Placed(expression, GetSlice(value, parts[0], parts[1], parts[2]));
}

Status Evaluator::EvalArguments(const Expression& expression, Scope& scope,
                                std::vector<Value>* args, NamedValues* named) {
  for (size_t i = 1; i < expression.children.size(); ++i) {
    VARVE_ASSIGN_OR_RETURN(Value value, Eval(*expression.children[i], scope));
    args->push_back(std::move(value));
  }
  for (const auto& [name, child] : expression.named) {
    VARVE_ASSIGN_OR_RETURN(Value value, Eval(*child, scope));
    named->emplace_back(name, std::move(value));
  }
  return {};
}

Result<Value> Evaluator::EvalNamedBuiltin(const Expression& expression, Scope& scope) {
  const bool is_filter = expression.kind == NodeKind::kFilter;
  const Builtin* builtin = is_filter ? FindFilter(expression.name) : FindTest(expression.name);
  if (builtin == nullptr) {
    return Unsupported(expression.line, fmt::format("the {} {}", is_filter ? "filter" : "test",
                                                    Quoted(expression.name)));
  }
  VARVE_ASSIGN_OR_RETURN(Value input, Eval(*expression.children[0], scope));
  std::vector<Value> args;
  NamedValues named;
  VARVE_RETURN_IF_ERROR(EvalArguments(expression, scope, &args, &named));
  return Placed(expression, Call(*builtin, input, std::move(args), std::move(named)));
}

Result<Value> Evaluator::EvalCall(const Expression& expression, Scope& scope) {
  const Expression& callee = *expression.children[0];
  VARVE_ASSIGN_OR_RETURN(Value function, Eval(callee, scope));
  if (!function.is(Kind::kFunction)) {
    if (callee.kind == NodeKind::kAttribute) {
      return Unsupported(expression.line, fmt::format("the method {}", Quoted(callee.name)));
    }
    if (function.is(Kind::kUndefined)) {
      return Unsupported(expression.line, fmt::format("the function {}", Quoted(callee.name)));
    }
    return SyntaxError(expression.line,
                       fmt::format("a value of type {} is called", function.type_name()));
  }
  std::vector<Value> args;
  NamedValues named;
  VARVE_RETURN_IF_ERROR(EvalArguments(expression, scope, &args, &named));
  const Function& called = function.function();
  if (called.macro != nullptr) return CallMacro(called, std::move(args), std::move(named));
  return Placed(expression,
                Call(*called.builtin, called.receiver, std::move(args), std::move(named)));
}

Result<Value> Evaluator::CallMacro(const Function& function, std::vector<Value> args,
                                   NamedValues named) {
  const Statement& macro = *function.macro;
  if (args.size() > macro.parameters.size()) {
    return SyntaxError(macro.line, fmt::format("macro {} takes {} arguments, not {}", macro.name,
                                               macro.parameters.size(), args.size()));
  }
  Scope& scope = MakeScope(function.scope);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, otherwise] = macro.parameters[i];
    const auto given =
        std::ranges::find(named, name, [](const auto& entry) { return entry.first; });
    Value value;
    if (i < args.size()) {
      value = std::move(args[i]);
    } else if (given != named.end()) {
      value = std::move(given->second);
      named.erase(given);
    } else {
      VARVE_ASSIGN_OR_RETURN(value, EvalOptional(otherwise, scope));
    }
    scope.Set(name, std::move(value));
  }
  if (!named.empty()) {
    return SyntaxError(
        macro.line, fmt::format("macro {} has no argument {}", macro.name, Quoted(named[0].first)));
  }
  MarkedText out;
  VARVE_RETURN_IF_ERROR(Execute(macro.body, scope, &out).status());
  return Value::Text(std::move(out));
}

}  // namespace varve::jinja
