#include "runtime/jinja/jinja_evaluator.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/jinja/jinja_lexer.h"

namespace varve::jinja {
namespace {

std::vector<std::string_view> SplitWords(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// Puts arguments in the order of the parameters.
Status BindArguments(const Builtin& builtin, BuiltinCall* call) {
  const std::vector<std::string_view> names = SplitWords(builtin.parameters);
  if (call->args.size() > names.size()) {
    return InvalidArgument(fmt::format("{} takes {} arguments, not {}", builtin.name, names.size(),
                                       call->args.size()));
  }
  const size_t given = call->args.size();
  call->args.resize(names.size());
  for (auto& [name, value] : call->named) {
    const auto index = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (index < given || index == names.size()) {
      return Unimplemented(
          fmt::format("the argument {} of {} is not supported", Quoted(name), builtin.name));
    }
    call->args[index] = std::move(value);
  }
  return {};
}

}  // namespace

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->values) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [known, old] : values) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  values.emplace_back(std::string(name), std::move(value));
}

Evaluator::Deeper::Deeper(Evaluator* run, int line) : run_(*run) {
  if (++run_.depth_ > run_.limits_.depth) {
    status = SyntaxError(line, fmt::format("more than {} levels deep", run_.limits_.depth));
  }
}

// A namespace may hold itself.
Evaluator::~Evaluator() {
  for (const std::shared_ptr<Namespace>& names : namespaces_) names->values.clear();
}

Result<MarkedText> Evaluator::Run(const Block& block, NamedValues variables) {
  Scope& globals = MakeScope(nullptr);
  globals.values = std::move(variables);
  MarkedText out;
  VARVE_RETURN_IF_ERROR(Execute(block, MakeScope(&globals), &out).status());
  return out;
}

Status Evaluator::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.steps) return {};
  return InvalidArgument(fmt::format("more than {} steps", limits_.steps));
}

Status Evaluator::ChargeText(size_t bytes) {
  text_bytes_ += static_cast<int64_t>(bytes);
  if (text_bytes_ <= limits_.text_bytes) return {};
  return InvalidArgument(fmt::format("more than {} bytes of text", limits_.text_bytes));
}

Result<Value> Evaluator::MakeText(MarkedText text) {
  VARVE_RETURN_IF_ERROR(ChargeText(text.size()));
  return Value::Text(std::move(text));
}

Result<Value> Evaluator::Call(const Builtin& builtin, const Value& input, std::vector<Value> args,
                              NamedValues named) {
  VARVE_RETURN_IF_ERROR(Charge(builtin.is_cheap ? 1 : input.weight()));
  BuiltinCall call{*this, input, std::move(args), std::move(named)};
  if (builtin.parameters != "*") VARVE_RETURN_IF_ERROR(BindArguments(builtin, &call));
  return builtin.call(call);
}

Value Evaluator::MakeNamespace(NamedValues values) {
  auto names = std::make_shared<Namespace>();
  names->values = std::move(values);
  namespaces_.push_back(names);
  return Value::Of(std::move(names));
}

Scope& Evaluator::MakeScope(Scope* parent) {
  scopes_.push_back(std::make_unique<Scope>());
  scopes_.back()->parent = parent;
  return *scopes_.back();
}

Status Evaluator::Write(const MarkedText& text, MarkedText* out) {
  VARVE_RETURN_IF_ERROR(ChargeText(text.size()));
  out->Append(text);
  return {};
}

}  // namespace varve::jinja
