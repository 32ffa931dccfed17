// Precedence as Jinja2 has it, from the loosest: if-else, or, and, not, comparisons and `in`, + -,
// ~, * / // %, **, signs, then what stands behind a value: .name [item] (arguments) | filter, is
// test.

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "runtime/jinja/jinja_parser.h"

namespace varve::jinja {
namespace {

using NodeKind = Expression::Kind;
using Parsed = Result<ExpressionPointer>;

Expression Node(NodeKind kind, int line, std::string name,
                std::vector<ExpressionPointer> children) {
  Expression node;
  node.kind = kind;
  node.line = line;
  node.name = std::move(name);
  node.children = std::move(children);
  return node;
}

Parsed Literal(int line, Value value) {
  Expression node = Node(NodeKind::kLiteral, line, {}, {});
  node.literal = std::move(value);
  return MakeExpression(std::move(node));
}

}  // namespace

Parsed MakeExpression(Expression expression) {
  const auto include = [&](const ExpressionPointer& child) {
    if (child) expression.depth = std::max(expression.depth, child->depth + 1);
  };
  for (const ExpressionPointer& child : expression.children) include(child);
  for (const auto& [name, child] : expression.named) include(child);
  if (expression.depth > kMaxExpressionDepth) {
    return SyntaxError(expression.line,
                       fmt::format("an expression of more than {} levels", kMaxExpressionDepth));
  }
  return std::make_shared<const Expression>(std::move(expression));
}

Parsed ExpressionParser::Parse() {
  const int line = cursor_.line();
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, ParseWithoutConditional());
  while (cursor_.SkipName("if")) {
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer condition, ParseWithoutConditional());
    ExpressionPointer otherwise;
    if (cursor_.SkipName("else")) {
      VARVE_ASSIGN_OR_RETURN(otherwise, Parse());
    }
    VARVE_ASSIGN_OR_RETURN(
        value,
        MakeExpression(Node(NodeKind::kConditional, line, {},
                            {std::move(condition), std::move(value), std::move(otherwise)})));
  }
  return value;
}

// Every recursion of the parser passes here.
Parsed ExpressionParser::ParseWithoutConditional() {
  if (depth_ >= kMaxExpressionDepth / 4) {
    return SyntaxError(cursor_.line(),
                       fmt::format("more than {} levels of brackets", kMaxExpressionDepth / 4));
  }
  ++depth_;
  Parsed value = Chain({"or"}, true, &ExpressionParser::And);
  --depth_;
  return value;
}

Parsed ExpressionParser::Chain(std::initializer_list<std::string_view> operators, bool words,
                               Level below) {
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, (this->*below)());
  while (true) {
    const auto* const found = std::ranges::find_if(operators, [&](std::string_view text) {
      return words ? cursor_.IsName(text) : cursor_.IsOperator(text);
    });
    if (found == operators.end()) return value;
    const int line = cursor_.line();
    cursor_.Next();
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer right, (this->*below)());
    VARVE_ASSIGN_OR_RETURN(value, MakeExpression(Node(NodeKind::kBinary, line, std::string(*found),
                                                      {std::move(value), std::move(right)})));
  }
}

Parsed ExpressionParser::And() { return Chain({"and"}, true, &ExpressionParser::Not); }
Parsed ExpressionParser::Sum() { return Chain({"+", "-"}, false, &ExpressionParser::Join); }
Parsed ExpressionParser::Join() { return Chain({"~"}, false, &ExpressionParser::Product); }
Parsed ExpressionParser::Product() {
  return Chain({"*", "//", "/", "%"}, false, &ExpressionParser::Power);
}
Parsed ExpressionParser::Power() { return Chain({"**"}, false, &ExpressionParser::Unary); }

Parsed ExpressionParser::Not() {
  const int line = cursor_.line();
  int count = 0;
  while (cursor_.IsName("not")) {
    cursor_.Next();
    ++count;
  }
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, Compare());
  for (; count > 0; --count) {
    VARVE_ASSIGN_OR_RETURN(value,
                           MakeExpression(Node(NodeKind::kUnary, line, "not", {std::move(value)})));
  }
  return value;
}

// Empty: none stands here.
Result<std::string> ExpressionParser::ComparisonOperator() {
  for (const char* text : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (cursor_.SkipOperator(text)) return std::string(text);
  }
  if (cursor_.SkipName("in")) return std::string("in");
  if (!cursor_.IsName("not") || !cursor_.IsName("in", 1)) return std::string();
  cursor_.Next();
  cursor_.Next();
  return std::string("not in");
}

// a < b < c is a < b and b < c.
Parsed ExpressionParser::Compare() {
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer left, Sum());
  ExpressionPointer all;
  while (true) {
    const int line = cursor_.line();
    VARVE_ASSIGN_OR_RETURN(std::string op, ComparisonOperator());
    if (op.empty()) return all ? all : left;
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer right, Sum());
    VARVE_ASSIGN_OR_RETURN(
        ExpressionPointer pair,
        MakeExpression(Node(NodeKind::kBinary, line, std::move(op), {left, right})));
    left = right;
    if (!all) {
      all = std::move(pair);
      continue;
    }
    VARVE_ASSIGN_OR_RETURN(all, MakeExpression(Node(NodeKind::kBinary, line, "and",
                                                    {std::move(all), std::move(pair)})));
  }
}

Parsed ExpressionParser::UnaryWith(bool filters) {
  const int line = cursor_.line();
  std::string signs;
  while (cursor_.IsOperator("-") || cursor_.IsOperator("+")) {
    signs += cursor_.Peek().text;
    cursor_.Next();
  }
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, Primary());
  VARVE_ASSIGN_OR_RETURN(value, Postfix(std::move(value)));
  for (; !signs.empty(); signs.pop_back()) {
    VARVE_ASSIGN_OR_RETURN(
        value, MakeExpression(Node(NodeKind::kUnary, line, signs.substr(signs.size() - 1),
                                   {std::move(value)})));
  }
  return filters ? FiltersAndTests(std::move(value)) : Parsed(std::move(value));
}

Parsed ExpressionParser::Primary() {
  const Token& token = cursor_.Peek();
  const int line = token.line;
  if (token.kind == TokenKind::kString) {
    std::string text;
    for (; cursor_.IsKind(TokenKind::kString); cursor_.Next()) text += cursor_.Peek().text;
    return Literal(line, Value::Text(text));
  }
  if (token.kind == TokenKind::kFloat || token.kind == TokenKind::kInteger) {
    const std::string text = token.text;
    const bool is_integer = token.kind == TokenKind::kInteger;
    cursor_.Next();
    if (!is_integer) return Literal(line, Value::Float(std::strtod(text.c_str(), nullptr)));
    int64_t number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc()) {
      return Unsupported(line, fmt::format("an integer of {} digits", text.size()));
    }
    return Literal(line, Value::Int(number));
  }
  if (token.kind == TokenKind::kOperator) return Brackets();
  VARVE_ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
  if (name == "true" || name == "True") return Literal(line, Value::Bool(true));
  if (name == "false" || name == "False") return Literal(line, Value::Bool(false));
  if (name == "none" || name == "None") return Literal(line, Value::None());
  return MakeExpression(Node(NodeKind::kName, line, std::move(name), {}));
}

Parsed ExpressionParser::Brackets() {
  if (cursor_.IsOperator("[")) return ListLiteral();
  if (cursor_.IsOperator("{")) return DictLiteral();
  const int line = cursor_.line();
  if (!cursor_.SkipOperator("(")) return cursor_.Unexpected("a value");
  if (cursor_.SkipOperator(")")) return MakeExpression(Node(NodeKind::kList, line, {}, {}));
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, ParseTuple(true));
  VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator(")"));
  return value;
}

Parsed ExpressionParser::ListLiteral() {
  Expression node = Node(NodeKind::kList, cursor_.line(), {}, {});
  cursor_.Next();
  while (!cursor_.SkipOperator("]")) {
    if (!node.children.empty()) VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    if (cursor_.SkipOperator("]")) break;
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer item, Parse());
    node.children.push_back(std::move(item));
  }
  return MakeExpression(std::move(node));
}

Parsed ExpressionParser::DictLiteral() {
  Expression node = Node(NodeKind::kDict, cursor_.line(), {}, {});
  cursor_.Next();
  while (!cursor_.SkipOperator("}")) {
    if (!node.children.empty()) VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    if (cursor_.SkipOperator("}")) break;
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer key, Parse());
    VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator(":"));
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, Parse());
    node.children.push_back(std::move(key));
    node.children.push_back(std::move(value));
  }
  return MakeExpression(std::move(node));
}

Parsed ExpressionParser::ParseTuple(bool conditional) {
  const auto one = [&] { return conditional ? Parse() : ParseWithoutConditional(); };
  Expression node = Node(NodeKind::kList, cursor_.line(), {}, {});
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer first, one());
  if (!cursor_.IsOperator(",")) return first;
  node.children.push_back(std::move(first));
  while (cursor_.SkipOperator(",")) {
    const bool ends = cursor_.IsOperator(")") || cursor_.IsKind(TokenKind::kBlockEnd) ||
                      cursor_.IsKind(TokenKind::kOutputEnd);
    if (ends) break;
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer item, one());
    node.children.push_back(std::move(item));
  }
  return MakeExpression(std::move(node));
}

Parsed ExpressionParser::Postfix(ExpressionPointer value) {
  while (true) {
    if (cursor_.IsOperator(".")) {
      VARVE_ASSIGN_OR_RETURN(value, Attribute(std::move(value)));
    } else if (cursor_.IsOperator("[")) {
      VARVE_ASSIGN_OR_RETURN(value, Subscript(std::move(value)));
    } else if (cursor_.IsOperator("(")) {
      Expression call = Node(NodeKind::kCall, cursor_.line(), {}, {std::move(value)});
      VARVE_RETURN_IF_ERROR(Arguments(&call));
      VARVE_ASSIGN_OR_RETURN(value, MakeExpression(std::move(call)));
    } else {
      return value;
    }
  }
}

Parsed ExpressionParser::Attribute(ExpressionPointer value) {
  const int line = cursor_.line();
  cursor_.Next();
  if (cursor_.IsKind(TokenKind::kInteger)) {  // list.0
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer index, Primary());
    return MakeExpression(Node(NodeKind::kItem, line, {}, {std::move(value), std::move(index)}));
  }
  VARVE_ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
  return MakeExpression(Node(NodeKind::kAttribute, line, std::move(name), {std::move(value)}));
}

Parsed ExpressionParser::Subscript(ExpressionPointer value) {
  const int line = cursor_.line();
  cursor_.Next();
  std::vector<ExpressionPointer> parts(1);  // then a part behind each colon
  while (!cursor_.IsOperator("]")) {
    if (cursor_.SkipOperator(":")) {
      parts.emplace_back();
      continue;
    }
    if (parts.back()) return cursor_.Unexpected("\"]\"");
    VARVE_ASSIGN_OR_RETURN(parts.back(), Parse());
  }
  if (parts.size() > 3 || (parts.size() == 1 && !parts[0])) return cursor_.Unexpected("an index");
  cursor_.Next();
  const NodeKind kind = parts.size() == 1 ? NodeKind::kItem : NodeKind::kSlice;
  if (kind == NodeKind::kSlice) parts.resize(3);
  parts.insert(parts.begin(), std::move(value));
  return MakeExpression(Node(kind, line, {}, std::move(parts)));
}

Status ExpressionParser::Arguments(Expression* call) {
  VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator("("));
  for (bool first = true; !cursor_.SkipOperator(")"); first = false) {
    if (!first) VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    if (cursor_.SkipOperator(")")) break;
    if (cursor_.IsOperator("*") || cursor_.IsOperator("**")) {
      return Unsupported(cursor_.line(), "\"*\" in front of an argument");
    }
    std::string name;
    if (cursor_.IsKind(TokenKind::kName) && cursor_.IsOperator("=", 1)) {
      name = cursor_.Peek().text;
      cursor_.Next();
      cursor_.Next();
    }
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, Parse());
    if (!name.empty()) {
      call->named.emplace_back(std::move(name), std::move(value));
    } else if (call->named.empty()) {
      call->children.push_back(std::move(value));
    } else {
      return SyntaxError(call->line, "an argument without a name behind one with a name");
    }
  }
  return {};
}

Parsed ExpressionParser::ParseFilters(ExpressionPointer value) {
  do {
    Expression filter = Node(NodeKind::kFilter, cursor_.line(), {}, {std::move(value)});
    VARVE_ASSIGN_OR_RETURN(filter.name, cursor_.TakeName());
    if (cursor_.IsOperator("(")) VARVE_RETURN_IF_ERROR(Arguments(&filter));
    VARVE_ASSIGN_OR_RETURN(value, MakeExpression(std::move(filter)));
  } while (cursor_.SkipOperator("|"));
  return value;
}

Parsed ExpressionParser::FiltersAndTests(ExpressionPointer value) {
  while (true) {
    if (cursor_.SkipOperator("|")) {
      VARVE_ASSIGN_OR_RETURN(value, ParseFilters(std::move(value)));
    } else if (cursor_.SkipName("is")) {
      VARVE_ASSIGN_OR_RETURN(value, Test(std::move(value)));
    } else {
      return value;
    }
  }
}

Parsed ExpressionParser::Test(ExpressionPointer value) {
  const int line = cursor_.line();
  const bool negated = cursor_.SkipName("not");
  Expression test = Node(NodeKind::kTest, line, {}, {std::move(value)});
  VARVE_ASSIGN_OR_RETURN(test.name, cursor_.TakeName());
  const Token& next = cursor_.Peek();
  const bool is_word = next.kind == TokenKind::kName && next.text != "else" && next.text != "or" &&
                       next.text != "and" && next.text != "is" && next.text != "if" &&
                       next.text != "not" && next.text != "in";
  const bool is_literal = next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
                          next.kind == TokenKind::kFloat;
  if (cursor_.IsOperator("(")) {
    VARVE_RETURN_IF_ERROR(Arguments(&test));
  } else if (is_word || is_literal || cursor_.IsOperator("[") || cursor_.IsOperator("{")) {
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer argument, Primary());
    VARVE_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    test.children.push_back(std::move(argument));
  }
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer result, MakeExpression(std::move(test)));
  if (!negated) return result;
  return MakeExpression(Node(NodeKind::kUnary, line, "not", {std::move(result)}));
}

}  // namespace varve::jinja
