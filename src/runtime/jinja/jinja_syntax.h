// The tree of a template: statements and expressions. Immutable once it is parsed.

#ifndef VARVE_RUNTIME_JINJA_JINJA_SYNTAX_H_
#define VARVE_RUNTIME_JINJA_JINJA_SYNTAX_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/jinja/jinja_value.h"
#include "varve/status.h"

namespace varve::jinja {

struct Expression;
using ExpressionPointer = std::shared_ptr<const Expression>;

struct Expression {
  enum class Kind {
    kLiteral,
    kName,
    kList,         // children
    kDict,         // children: key, value, key, value …
    kAttribute,    // child.name
    kItem,         // child[child]
    kSlice,        // child[child:child:child]; null where nothing stands
    kCall,         // child(children…, named…)
    kFilter,       // child | name(children…, named…)
    kTest,         // child is name(children…)
    kUnary,        // name: "not", "-", "+"
    kBinary,       // name: the operator
    kConditional,  // children: condition, then, otherwise (null: undefined)
  };
  Kind kind = Kind::kLiteral;
  int line = 1;
  int depth = 1;  // of the tree below, itself included
  std::string name;
  Value literal;
  std::vector<ExpressionPointer> children;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind {
    kText,
    kOutput,       // value
    kIf,           // branches
    kFor,          // targets in value if condition; body; otherwise
    kSet,          // targets, or name.attribute, = value
    kSetBlock,     // targets = what the body writes, through `value` (filters) if there is one
    kMacro,        // name(parameters); body
    kFilterBlock,  // value: filters of what the body writes
    kWith,         // parameters; body
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPointer condition;  // null: else
    Block body;
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string name;
  std::string attribute;
  std::vector<std::string> targets;
  std::vector<std::pair<std::string, ExpressionPointer>> parameters;  // null: no default
  ExpressionPointer value;
  ExpressionPointer condition;
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
};

// In a filter's or set's block: what its body has written.
inline constexpr std::string_view kBodyName = " body";  // no template can spell it

// Nesting of statements and of expressions: more than any template that people wrote.
inline constexpr int kMaxStatementDepth = 64;
inline constexpr int kMaxExpressionDepth = 200;

// Errors begin with the line, and say what is wrong, or (kUnimplemented) not supported.
Result<Block> ParseTemplate(std::string_view source);

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_SYNTAX_H_
