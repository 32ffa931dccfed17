// Parsers of templates over a list of tokens; what ParseTemplate (jinja_syntax.h) is made of.

#ifndef VARVE_RUNTIME_JINJA_JINJA_PARSER_H_
#define VARVE_RUNTIME_JINJA_JINJA_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/jinja_lexer.h"
#include "runtime/jinja/jinja_syntax.h"

namespace varve::jinja {

// The tokens and a place in them. The last one, kEnd, is never passed.
class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const;
  void Next() { pos_ += pos_ + 1 < tokens_.size() ? 1 : 0; }
  int line() const { return Peek().line; }
  bool IsKind(TokenKind kind) const { return Peek().kind == kind; }
  bool IsOperator(std::string_view text, size_t ahead = 0) const;
  bool IsName(std::string_view text, size_t ahead = 0) const;
  // Passes the token if it is there.
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  Status ExpectOperator(std::string_view text);
  Status ExpectName(std::string_view text);
  Status Expect(TokenKind kind, std::string_view what);
  Result<std::string> TakeName();
  // "line 3: expected X, found Y"
  Status Unexpected(std::string_view expected) const;

 private:
  std::vector<Token> tokens_;
  size_t pos_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor* cursor) : cursor_(*cursor) {}
  using Parsed = Result<ExpressionPointer>;

  Parsed Parse();                       // a condition `a if b else c`, or less
  Parsed ParseWithoutConditional();     // `or` and below: what a loop's `in` takes
  Parsed ParseTuple(bool conditional);  // several, separated by commas, make a list
  // What stands behind a filter block's or a set block's name: "trim | upper".
  Parsed ParseFilters(ExpressionPointer value);

 private:
  using Level = Parsed (ExpressionParser::*)();
  // Operators of one level, from left to right.
  Parsed Chain(std::initializer_list<std::string_view> operators, bool words, Level below);
  Parsed And();
  Parsed Not();
  Parsed Compare();
  Parsed Sum();
  Parsed Join();
  Parsed Product();
  Parsed Power();
  Parsed Unary() { return UnaryWith(true); }
  Parsed UnaryWith(bool filters);
  Parsed Primary();
  Parsed Brackets();
  Parsed ListLiteral();
  Parsed DictLiteral();
  Parsed Postfix(ExpressionPointer value);
  Parsed Subscript(ExpressionPointer value);
  Parsed Attribute(ExpressionPointer value);
  Parsed FiltersAndTests(ExpressionPointer value);
  Parsed Test(ExpressionPointer value);
  Status Arguments(Expression* call);
  Result<std::string> ComparisonOperator();

  TokenCursor& cursor_;
  int depth_ = 0;
};

// Makes a node of the tree; an error where it would be too deep.
Result<ExpressionPointer> MakeExpression(Expression expression);

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_PARSER_H_
