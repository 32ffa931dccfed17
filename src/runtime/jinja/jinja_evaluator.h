// Evaluator: runs the tree of one template once.
//
// Whatever the template does, it ends: steps, bytes of text and depth are limited, and it cannot
// reach anything but the values that it was given. One thread.

#ifndef VARVE_RUNTIME_JINJA_JINJA_EVALUATOR_H_
#define VARVE_RUNTIME_JINJA_JINJA_EVALUATOR_H_

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/jinja_builtins.h"
#include "runtime/jinja/jinja_syntax.h"

namespace varve::jinja {

struct Scope {
  Scope* parent = nullptr;
  NamedValues values;

  const Value* Find(std::string_view name) const;  // here and above
  void Set(std::string_view name, Value value);    // here
};

struct EvaluationLimits {
  int64_t steps = 20'000'000;
  int64_t text_bytes = int64_t{256} << 20;  // of all texts that are made on the way
  int depth = 300;                          // of expressions, statements and macros in one another
  int value_depth = 64;
  int64_t value_weight = 1 << 20;  // members, and 64 bytes of text, of one value
};

class Evaluator {
 public:
  Evaluator(const EvaluationLimits& limits, std::time_t now) : limits_(limits), now_(now) {}
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // What the template writes. `variables` are its globals. To be called once.
  Result<MarkedText> Run(const Block& block, NamedValues variables);

  // For builtins: counts what they do. An error where it is too much.
  Status Charge(int64_t steps);
  Status ChargeText(size_t bytes);
  Result<Value> MakeText(MarkedText text);
  Result<Value> Call(const Builtin& builtin, const Value& input, std::vector<Value> args,
                     NamedValues named = {});
  Value MakeNamespace(NamedValues values);
  std::time_t now() const { return now_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Deeper;

  // jinja_expressions.cc
  Result<Value> Eval(const Expression& expression, Scope& scope);
  Result<Value> EvalKind(const Expression& expression, Scope& scope);
  Result<Value> EvalName(const Expression& expression, Scope& scope) const;
  Result<Value> EvalBinary(const Expression& expression, Scope& scope);
  Result<Value> EvalUnary(const Expression& expression, Scope& scope);
  Status CheckRepetition(const Value& value, const Value& times) const;
  Result<Value> EvalDict(const Expression& expression, Scope& scope);
  Result<Value> EvalCall(const Expression& expression, Scope& scope);
  Result<Value> EvalNamedBuiltin(const Expression& expression, Scope& scope);
  Result<Value> EvalSlice(const Expression& expression, Scope& scope);
  Result<Value> EvalOptional(const ExpressionPointer& expression, Scope& scope);
  Status EvalArguments(const Expression& expression, Scope& scope, std::vector<Value>* args,
                       NamedValues* named);
  Result<Value> CallMacro(const Function& function, std::vector<Value> args, NamedValues named);

  // jinja_statements.cc
  Result<Flow> Execute(const Block& block, Scope& scope, MarkedText* out);
  Result<Flow> ExecuteOne(const Statement& statement, Scope& scope, MarkedText* out);
  Result<Flow> ExecuteIf(const Statement& statement, Scope& scope, MarkedText* out);
  Result<Flow> ExecuteFor(const Statement& statement, Scope& scope, MarkedText* out);
  Result<List> LoopItems(const Statement& statement, Scope& scope);
  Status ExecuteSet(const Statement& statement, Scope& scope);
  Status ExecuteBodyBlock(const Statement& statement, Scope& scope, MarkedText* out);
  Status Assign(const Statement& statement, Value value, Scope& scope) const;
  Status Write(const MarkedText& text, MarkedText* out);
  Scope& MakeScope(Scope* parent);

  EvaluationLimits limits_;
  std::time_t now_;
  int64_t steps_ = 0;
  int64_t text_bytes_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
  // Both may point at each other in circles; they live as long as the run.
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// While one lives, the run is one level deeper; `status` says whether it may.
class Evaluator::Deeper {
 public:
  Deeper(Evaluator* run, int line);
  ~Deeper() { --run_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Status status;

 private:
  Evaluator& run_;
};

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_EVALUATOR_H_
