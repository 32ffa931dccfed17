#include <algorithm>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/jinja/jinja_evaluator.h"
#include "runtime/jinja/jinja_lexer.h"

namespace varve::jinja {
namespace {

using StatementKind = Statement::Kind;

}  // namespace

Result<Evaluator::Flow> Evaluator::Execute(const Block& block, Scope& scope, MarkedText* out) {
  for (const Statement& statement : block) {
    const Deeper deeper(this, statement.line);
    VARVE_RETURN_IF_ERROR(deeper.status);
    if (const Status status = Charge(1); !status.ok()) return AtLine(statement.line, status);
    VARVE_ASSIGN_OR_RETURN(const Flow flow, ExecuteOne(statement, scope, out));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecuteOne(const Statement& statement, Scope& scope,
                                              MarkedText* out) {
  switch (statement.kind) {
    case StatementKind::kText:
      VARVE_RETURN_IF_ERROR(ChargeText(statement.name.size()));
      out->Append(statement.name);
      return Flow::kNext;
    case StatementKind::kOutput: {
      VARVE_ASSIGN_OR_RETURN(Value value, Eval(*statement.value, scope));
      Status status = Charge(value.weight());
      if (status.ok()) status = Write(TextOf(value), out);
      if (!status.ok()) return AtLine(statement.line, status);
      return Flow::kNext;
    }
    case StatementKind::kIf:
      return ExecuteIf(statement, scope, out);
    case StatementKind::kFor:
      return ExecuteFor(statement, scope, out);
    case StatementKind::kSet:
      VARVE_RETURN_IF_ERROR(ExecuteSet(statement, scope));
      return Flow::kNext;
    case StatementKind::kSetBlock:
    case StatementKind::kFilterBlock:
      VARVE_RETURN_IF_ERROR(ExecuteBodyBlock(statement, scope, out));
      return Flow::kNext;
    case StatementKind::kMacro: {
      auto function = std::make_shared<Function>();
      function->name = statement.name;
      function->macro = &statement;
      function->scope = &scope;
      scope.Set(statement.name, Value::Of(std::shared_ptr<const Function>(std::move(function))));
      return Flow::kNext;
    }
    case StatementKind::kWith: {
      Scope& inner = MakeScope(&scope);
      for (const auto& [name, expression] : statement.parameters) {
        VARVE_ASSIGN_OR_RETURN(Value value, Eval(*expression, scope));
        inner.Set(name, std::move(value));
      }
      return Execute(statement.body, inner, out);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Internal("a statement of no kind");
}

Result<Evaluator::Flow> Evaluator::ExecuteIf(const Statement& statement, Scope& scope,
                                             MarkedText* out) {
  for (const Statement::Branch& branch : statement.branches) {
    bool is_true = branch.condition == nullptr;
    if (!is_true) {
      VARVE_ASSIGN_OR_RETURN(Value value, Eval(*branch.condition, scope));
      is_true = value.IsTrue();
    }
    if (is_true) return Execute(branch.body, scope, out);
  }
  return Flow::kNext;
}

Status Evaluator::Assign(const Statement& statement, Value value, Scope& scope) const {
  if (statement.targets.size() == 1) {
    scope.Set(statement.targets[0], std::move(value));
    return {};
  }
  const bool fits = value.is(Kind::kList) && value.list().size() == statement.targets.size();
  if (!fits) {
    return SyntaxError(statement.line, fmt::format("{} names for a value of type {}",
                                                   statement.targets.size(), value.type_name()));
  }
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    scope.Set(statement.targets[i], value.list()[i]);
  }
  return {};
}

// Those that the loop's own `if` lets through.
Result<List> Evaluator::LoopItems(const Statement& statement, Scope& scope) {
  VARVE_ASSIGN_OR_RETURN(Value value, Eval(*statement.value, scope));
  Result<List> items = Iterate(value);
  if (!items.ok()) return AtLine(statement.line, items.status());
  if (!statement.condition) return items;
  List kept;
  for (Value& item : *items) {
    Scope& inner = MakeScope(&scope);
    VARVE_RETURN_IF_ERROR(Assign(statement, item, inner));
    VARVE_ASSIGN_OR_RETURN(Value passes, Eval(*statement.condition, inner));
    if (passes.IsTrue()) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Evaluator::Flow> Evaluator::ExecuteFor(const Statement& statement, Scope& scope,
                                              MarkedText* out) {
  VARVE_ASSIGN_OR_RETURN(const List items, LoopItems(statement, scope));
  if (items.empty()) return Execute(statement.otherwise, MakeScope(&scope), out);
  for (size_t i = 0; i < items.size(); ++i) {
    if (const Status status = Charge(1); !status.ok()) return AtLine(statement.line, status);
    Scope& inner = MakeScope(&scope);
    auto loop = std::make_shared<LoopState>();
    loop->index0 = static_cast<int64_t>(i);
    loop->length = static_cast<int64_t>(items.size());
    loop->depth0 = loop_depth_;
    if (i > 0) loop->previous = items[i - 1];
    if (i + 1 < items.size()) loop->next = items[i + 1];
    inner.Set("loop", Value::Of(std::shared_ptr<const LoopState>(std::move(loop))));
    VARVE_RETURN_IF_ERROR(Assign(statement, items[i], inner));
    ++loop_depth_;
    Result<Flow> flow = Execute(statement.body, inner, out);
    --loop_depth_;
    if (!flow.ok()) return flow;
    if (*flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Status Evaluator::ExecuteSet(const Statement& statement, Scope& scope) {
  VARVE_ASSIGN_OR_RETURN(Value value, Eval(*statement.value, scope));
  if (statement.attribute.empty()) return Assign(statement, std::move(value), scope);
  const Value* target = scope.Find(statement.name);
  if (target == nullptr || !target->is(Kind::kNamespace)) {
    return SyntaxError(statement.line, fmt::format("{} is no namespace()", Quoted(statement.name)));
  }
  NamedValues& values = target->names().values;
  const auto old =
      std::ranges::find(values, statement.attribute, [](const auto& entry) { return entry.first; });
  if (old == values.end()) {
    values.emplace_back(statement.attribute, std::move(value));
  } else {
    old->second = std::move(value);
  }
  return {};
}

// A macro or a filter of the body sees the names around it, and what it sets stays inside.
Status Evaluator::ExecuteBodyBlock(const Statement& statement, Scope& scope, MarkedText* out) {
  MarkedText written;
  Scope& inner = MakeScope(&scope);
  VARVE_RETURN_IF_ERROR(Execute(statement.body, inner, &written).status());
  Value value = Value::Text(std::move(written));
  if (statement.value) {
    inner.Set(kBodyName, std::move(value));
    VARVE_ASSIGN_OR_RETURN(value, Eval(*statement.value, inner));
  }
  if (statement.kind == StatementKind::kSetBlock) return Assign(statement, std::move(value), scope);
  return Write(TextOf(value), out);
}

}  // namespace varve::jinja
