#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "runtime/jinja/jinja_parser.h"

namespace varve::jinja {
namespace {

using StatementKind = Statement::Kind;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : cursor_(std::move(tokens)), expressions_(&cursor_) {}

  Result<Block> ParseAll();

 private:
  // Statements up to a block tag of one of these words, which then is the next token.
  Result<Block> Body(std::initializer_list<std::string_view> ends);
  Result<Statement> Tag();
  Result<Statement> If(Statement statement);
  Result<Statement> For(Statement statement);
  Result<Statement> Set(Statement statement);
  Result<Statement> Macro(Statement statement);
  Result<Statement> With(Statement statement);
  Result<Statement> FilterBlock(Statement statement);
  // name, name, … in front of `in` or `=`
  Status Targets(Statement* statement);
  // Body, then {% word %}.
  Result<Block> BodyUntil(std::string_view word);
  Status EndTag() { return cursor_.Expect(TokenKind::kBlockEnd, "%}"); }
  Result<ExpressionPointer> BodyFilters();

  TokenCursor cursor_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
};

Result<Block> StatementParser::ParseAll() {
  VARVE_ASSIGN_OR_RETURN(Block block, Body({}));
  if (!cursor_.IsKind(TokenKind::kEnd)) {
    return SyntaxError(cursor_.line(),
                       fmt::format("{{% {} %}} ends nothing that is open", cursor_.Peek().text));
  }
  return block;
}

Result<Block> StatementParser::Body(std::initializer_list<std::string_view> ends) {
  if (depth_ >= kMaxStatementDepth) {
    return SyntaxError(cursor_.line(),
                       fmt::format("more than {} statements in one another", kMaxStatementDepth));
  }
  ++depth_;
  Block block;
  while (!cursor_.IsKind(TokenKind::kEnd)) {
    Statement statement;
    statement.line = cursor_.line();
    if (cursor_.IsKind(TokenKind::kText)) {
      statement.name = cursor_.Peek().text;
      cursor_.Next();
    } else if (cursor_.IsKind(TokenKind::kOutputBegin)) {
      cursor_.Next();
      statement.kind = StatementKind::kOutput;
      VARVE_ASSIGN_OR_RETURN(statement.value, expressions_.ParseTuple(true));
      VARVE_RETURN_IF_ERROR(cursor_.Expect(TokenKind::kOutputEnd, "}}"));
    } else {
      VARVE_RETURN_IF_ERROR(cursor_.Expect(TokenKind::kBlockBegin, "a tag"));
      const std::string& word = cursor_.Peek().text;
      if (std::ranges::find(ends, word) != ends.end()) break;
      if (ends.size() == 0 && word.starts_with("end")) break;
      VARVE_ASSIGN_OR_RETURN(statement, Tag());
    }
    block.push_back(std::move(statement));
  }
  --depth_;
  if (ends.size() > 0 && cursor_.IsKind(TokenKind::kEnd)) {
    return cursor_.Unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
  }
  return block;
}

Result<Block> StatementParser::BodyUntil(std::string_view word) {
  VARVE_RETURN_IF_ERROR(EndTag());
  VARVE_ASSIGN_OR_RETURN(Block block, Body({word}));
  cursor_.Next();
  // {% endmacro name %}
  if (word == "endmacro" && cursor_.IsKind(TokenKind::kName)) cursor_.Next();
  VARVE_RETURN_IF_ERROR(EndTag());
  return block;
}

Result<Statement> StatementParser::Tag() {
  Statement statement;
  statement.line = cursor_.line();
  VARVE_ASSIGN_OR_RETURN(const std::string word, cursor_.TakeName());
  if (word == "if") return If(std::move(statement));
  if (word == "for") return For(std::move(statement));
  if (word == "set") return Set(std::move(statement));
  if (word == "macro") return Macro(std::move(statement));
  if (word == "with") return With(std::move(statement));
  if (word == "filter") return FilterBlock(std::move(statement));
  if (word == "generation") {  // marks what an assistant wrote, for training; no scope of its own
    statement.kind = StatementKind::kIf;
    VARVE_ASSIGN_OR_RETURN(Block body, BodyUntil("endgeneration"));
    statement.branches.push_back({nullptr, std::move(body)});
    return statement;
  }
  if (word == "break" || word == "continue") {
    if (loops_ == 0) {
      return SyntaxError(statement.line, fmt::format("{{% {} %}} outside a loop", word));
    }
    statement.kind = word == "break" ? StatementKind::kBreak : StatementKind::kContinue;
    VARVE_RETURN_IF_ERROR(EndTag());
    return statement;
  }
  return Unsupported(statement.line, fmt::format("the statement {{% {} %}}", word));
}

Result<Statement> StatementParser::If(Statement statement) {
  statement.kind = StatementKind::kIf;
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer condition, expressions_.ParseTuple(true));
  while (true) {
    VARVE_RETURN_IF_ERROR(EndTag());
    const bool is_else = condition == nullptr;
    Result<Block> body = is_else ? Body({"endif"}) : Body({"elif", "else", "endif"});
    if (!body.ok()) return body.status();
    statement.branches.push_back({std::move(condition), *std::move(body)});
    condition = nullptr;
    VARVE_ASSIGN_OR_RETURN(const std::string word, cursor_.TakeName());
    if (word == "endif") break;
    if (word == "elif") {
      VARVE_ASSIGN_OR_RETURN(condition, expressions_.ParseTuple(true));
    }
  }
  VARVE_RETURN_IF_ERROR(EndTag());
  return statement;
}

Status StatementParser::Targets(Statement* statement) {
  const bool has_brackets = cursor_.SkipOperator("(");
  do {
    VARVE_ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
    statement->targets.push_back(std::move(name));
  } while (cursor_.SkipOperator(","));
  return has_brackets ? cursor_.ExpectOperator(")") : Status();
}

Result<Statement> StatementParser::For(Statement statement) {
  statement.kind = StatementKind::kFor;
  VARVE_RETURN_IF_ERROR(Targets(&statement));
  VARVE_RETURN_IF_ERROR(cursor_.ExpectName("in"));
  VARVE_ASSIGN_OR_RETURN(statement.value, expressions_.ParseTuple(false));
  if (cursor_.SkipName("if")) {
    VARVE_ASSIGN_OR_RETURN(statement.condition, expressions_.Parse());
  }
  if (cursor_.IsName("recursive")) return Unsupported(cursor_.line(), "a recursive loop");
  VARVE_RETURN_IF_ERROR(EndTag());
  ++loops_;
  VARVE_ASSIGN_OR_RETURN(statement.body, Body({"else", "endfor"}));
  --loops_;
  if (cursor_.SkipName("else")) {
    VARVE_RETURN_IF_ERROR(EndTag());
    VARVE_ASSIGN_OR_RETURN(statement.otherwise, Body({"endfor"}));
  }
  cursor_.Next();
  VARVE_RETURN_IF_ERROR(EndTag());
  return statement;
}

// The filters in front of which the body's text stands.
Result<ExpressionPointer> StatementParser::BodyFilters() {
  Expression body;
  body.kind = Expression::Kind::kName;
  body.line = cursor_.line();
  body.name = kBodyName;
  VARVE_ASSIGN_OR_RETURN(ExpressionPointer input, MakeExpression(std::move(body)));
  return expressions_.ParseFilters(std::move(input));
}

Result<Statement> StatementParser::Set(Statement statement) {
  statement.kind = StatementKind::kSet;
  VARVE_RETURN_IF_ERROR(Targets(&statement));
  if (statement.targets.size() == 1 && cursor_.SkipOperator(".")) {
    statement.name = statement.targets[0];
    statement.targets.clear();
    VARVE_ASSIGN_OR_RETURN(statement.attribute, cursor_.TakeName());
  }
  if (cursor_.SkipOperator("=")) {
    VARVE_ASSIGN_OR_RETURN(statement.value, expressions_.ParseTuple(true));
    VARVE_RETURN_IF_ERROR(EndTag());
    return statement;
  }
  if (statement.targets.empty()) return Unsupported(statement.line, "a block for an attribute");
  statement.kind = StatementKind::kSetBlock;
  if (cursor_.SkipOperator("|")) {
    VARVE_ASSIGN_OR_RETURN(statement.value, BodyFilters());
  }
  VARVE_ASSIGN_OR_RETURN(statement.body, BodyUntil("endset"));
  return statement;
}

Result<Statement> StatementParser::FilterBlock(Statement statement) {
  statement.kind = StatementKind::kFilterBlock;
  VARVE_ASSIGN_OR_RETURN(statement.value, BodyFilters());
  VARVE_ASSIGN_OR_RETURN(statement.body, BodyUntil("endfilter"));
  return statement;
}

Result<Statement> StatementParser::Macro(Statement statement) {
  statement.kind = StatementKind::kMacro;
  VARVE_ASSIGN_OR_RETURN(statement.name, cursor_.TakeName());
  VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator("("));
  while (!cursor_.SkipOperator(")")) {
    if (!statement.parameters.empty()) VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    VARVE_ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
    ExpressionPointer otherwise;
    if (cursor_.SkipOperator("=")) {
      VARVE_ASSIGN_OR_RETURN(otherwise, expressions_.Parse());
    }
    statement.parameters.emplace_back(std::move(name), std::move(otherwise));
  }
  const int loops = std::exchange(loops_, 0);
  VARVE_ASSIGN_OR_RETURN(statement.body, BodyUntil("endmacro"));
  loops_ = loops;
  return statement;
}

Result<Statement> StatementParser::With(Statement statement) {
  statement.kind = StatementKind::kWith;
  while (!cursor_.IsKind(TokenKind::kBlockEnd)) {
    if (!statement.parameters.empty()) VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator(","));
    VARVE_ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
    VARVE_RETURN_IF_ERROR(cursor_.ExpectOperator("="));
    VARVE_ASSIGN_OR_RETURN(ExpressionPointer value, expressions_.Parse());
    statement.parameters.emplace_back(std::move(name), std::move(value));
  }
  VARVE_ASSIGN_OR_RETURN(statement.body, BodyUntil("endwith"));
  return statement;
}

}  // namespace

Result<Block> ParseTemplate(std::string_view source) {
  VARVE_ASSIGN_OR_RETURN(std::vector<Token> tokens, LexTemplate(source));
  return StatementParser(std::move(tokens)).ParseAll();
}

}  // namespace varve::jinja
