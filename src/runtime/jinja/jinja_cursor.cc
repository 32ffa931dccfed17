#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/jinja/jinja_parser.h"

namespace varve::jinja {

const Token& TokenCursor::Peek(size_t ahead) const {
  return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
}

bool TokenCursor::IsOperator(std::string_view text, size_t ahead) const {
  return Peek(ahead).kind == TokenKind::kOperator && Peek(ahead).text == text;
}

bool TokenCursor::IsName(std::string_view text, size_t ahead) const {
  return Peek(ahead).kind == TokenKind::kName && Peek(ahead).text == text;
}

bool TokenCursor::SkipOperator(std::string_view text) {
  const bool is_there = IsOperator(text);
  if (is_there) Next();
  return is_there;
}

bool TokenCursor::SkipName(std::string_view text) {
  const bool is_there = IsName(text);
  if (is_there) Next();
  return is_there;
}

Status TokenCursor::Unexpected(std::string_view expected) const {
  const Token& token = Peek();
  std::string found = Quoted(token.text);
  if (token.kind == TokenKind::kEnd) found = "the end of the template";
  if (token.kind == TokenKind::kBlockEnd) found = "%}";
  if (token.kind == TokenKind::kOutputEnd) found = "}}";
  return SyntaxError(token.line, fmt::format("expected {}, found {}", expected, found));
}

Status TokenCursor::ExpectOperator(std::string_view text) {
  return SkipOperator(text) ? Status() : Unexpected(fmt::format("\"{}\"", text));
}

Status TokenCursor::ExpectName(std::string_view text) {
  return SkipName(text) ? Status() : Unexpected(fmt::format("\"{}\"", text));
}

Status TokenCursor::Expect(TokenKind kind, std::string_view what) {
  if (!IsKind(kind)) return Unexpected(what);
  Next();
  return {};
}

Result<std::string> TokenCursor::TakeName() {
  if (!IsKind(TokenKind::kName)) return Unexpected("a name");
  std::string name = Peek().text;
  Next();
  return name;
}

}  // namespace varve::jinja
