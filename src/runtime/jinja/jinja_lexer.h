// Lexer of templates: text between tags, and the tokens in them, as Jinja2 has them with
// trim_blocks and lstrip_blocks, which is how chat templates are written: the newline behind a
// block tag goes, and blanks in front of one on its line; "-" takes all white space, "+" keeps it.

#ifndef VARVE_RUNTIME_JINJA_JINJA_LEXER_H_
#define VARVE_RUNTIME_JINJA_JINJA_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve::jinja {

enum class TokenKind {
  kText,         // between tags
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,  // without quotes, escapes resolved
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// The last token is kEnd. Errors begin with the line.
Result<std::vector<Token>> LexTemplate(std::string_view source);

// "line 12: …"
Status AtLine(int line, const Status& status);
Status SyntaxError(int line, std::string_view what);
Status Unsupported(int line, std::string_view what);

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_LEXER_H_
