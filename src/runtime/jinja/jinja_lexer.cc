#include "runtime/jinja/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/jinja/jinja_string.h"

namespace varve::jinja {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\v\f";
// Longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsBlank(char c) { return kBlanks.find(c) != std::string_view::npos; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// One kind of newline, and none at the very end.
std::string NormaliseLines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class TemplateLexer {
 public:
  explicit TemplateLexer(std::string_view source) : source_(source) {}
  Result<std::vector<Token>> Run();

 private:
  bool At(std::string_view text) const { return source_.substr(pos_).starts_with(text); }
  void Add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, std::move(text), line_});
  }
  // Moves on and counts lines.
  void Skip(size_t count);
  void SkipBlanks();
  // The text up to the tag that begins at `tag`, less what the tag takes away.
  void AddText(size_t tag, char kind);
  // Behind a tag's end: "-" takes white space; a block takes one newline.
  void AfterTag(char sign, bool is_block);
  Status Comment();
  // {% raw %} … {% endraw %}; false: this is none.
  Result<bool> Raw();
  // The word of a block tag at `pos` if the tag holds nothing else; then *end is behind its "%}".
  std::string_view LoneWord(size_t pos, size_t* end, char* sign) const;
  Status Tag(bool is_block);
  // True at the end of the tag, which it then passes.
  bool TagEnds(bool is_block);
  Status TagToken();
  void NumberToken();
  Status StringToken();
  Status OperatorToken();

  std::string_view source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // what came before pos_ ended in a newline, or nothing came
  std::string brackets_;       // open in this tag
  std::vector<Token> tokens_;
};

void TemplateLexer::Skip(size_t count) {
  const std::string_view passed = source_.substr(pos_, count);
  line_ += static_cast<int>(std::ranges::count(passed, '\n'));
  if (!passed.empty()) at_line_start_ = passed.back() == '\n';
  pos_ += passed.size();
}

void TemplateLexer::SkipBlanks() {
  size_t count = 0;
  while (pos_ + count < source_.size() && IsBlank(source_[pos_ + count])) ++count;
  Skip(count);
}

void TemplateLexer::AddText(size_t tag, char kind) {
  std::string_view text = source_.substr(pos_, tag - pos_);
  const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
  const size_t length = text.size();
  if (sign == '-') {
    const size_t last = text.find_last_not_of(kBlanks);
    text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  } else if (sign != '+' && kind != '{') {
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool is_line = begin > 0 || at_line_start_;
    if (is_line && text.find_first_not_of(kBlanks, begin) == std::string_view::npos) {
      text = text.substr(0, begin);
    }
  }
  if (!text.empty()) Add(TokenKind::kText, std::string(text));
  Skip(length);
}

void TemplateLexer::AfterTag(char sign, bool is_block) {
  if (sign == '-') {
    SkipBlanks();
  } else if (is_block && sign != '+' && At("\n")) {
    Skip(1);
  }
}

Status TemplateLexer::Comment() {
  const size_t end = source_.find("#}", pos_ + 2);
  if (end == std::string_view::npos) return SyntaxError(line_, "a comment {# has no end");
  const char sign = end > pos_ + 2 ? source_[end - 1] : ' ';
  Skip(end + 2 - pos_);
  AfterTag(sign, true);
  return {};
}

std::string_view TemplateLexer::LoneWord(size_t pos, size_t* end, char* sign) const {
  const auto blanks = [&] {
    while (pos < source_.size() && IsBlank(source_[pos])) ++pos;
  };
  pos += 2;
  if (pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+')) ++pos;
  blanks();
  const size_t begin = pos;
  while (pos < source_.size() && IsNameStart(source_[pos])) ++pos;
  const std::string_view word = source_.substr(begin, pos - begin);
  blanks();
  *sign = pos < source_.size() ? source_[pos] : ' ';
  if (*sign == '-' || *sign == '+') ++pos;
  if (!source_.substr(std::min(pos, source_.size())).starts_with("%}")) return {};
  *end = pos + 2;
  return word;
}

Result<bool> TemplateLexer::Raw() {
  size_t end = 0;
  char sign = ' ';
  if (LoneWord(pos_, &end, &sign) != "raw") return false;
  const int line = line_;
  Skip(end - pos_);
  AfterTag(sign, false);
  for (size_t tag = source_.find("{%", pos_); tag != std::string_view::npos;
       tag = source_.find("{%", tag + 2)) {
    if (LoneWord(tag, &end, &sign) != "endraw") continue;
    AddText(tag, '%');
    Skip(end - pos_);
    AfterTag(sign, true);
    return true;
  }
  return SyntaxError(line, "{% raw %} has no {% endraw %}");
}

bool TemplateLexer::TagEnds(bool is_block) {
  if (!brackets_.empty()) return false;
  const std::string_view end = is_block ? "%}" : "}}";
  const char first = pos_ < source_.size() ? source_[pos_] : ' ';
  const bool has_sign = first == '-' || (is_block && first == '+');
  if (!source_.substr(std::min(pos_ + (has_sign ? 1 : 0), source_.size())).starts_with(end)) {
    return false;
  }
  Add(is_block ? TokenKind::kBlockEnd : TokenKind::kOutputEnd);
  Skip(end.size() + (has_sign ? 1 : 0));
  AfterTag(has_sign ? first : ' ', is_block);
  return true;
}

void TemplateLexer::NumberToken() {
  const size_t begin = pos_;
  size_t end = pos_;
  const auto digits = [&] {
    while (end < source_.size() && (IsDigit(source_[end]) || source_[end] == '_')) ++end;
  };
  const auto digit_at = [&](size_t at) { return at < source_.size() && IsDigit(source_[at]); };
  digits();
  bool is_float = false;
  if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
    is_float = true;
    ++end;
    digits();
  }
  if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
    const bool has_sign =
        end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+');
    if (digit_at(end + (has_sign ? 2 : 1))) {
      is_float = true;
      end += has_sign ? 2 : 1;
      digits();
    }
  }
  std::string number(source_.substr(begin, end - begin));
  std::erase(number, '_');
  Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(number));
  Skip(end - begin);
}

Status TemplateLexer::StringToken() {
  const char quote = source_[pos_];
  size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return SyntaxError(line_, "a string has no end");
  Result<std::string> text = ResolveEscapes(source_.substr(pos_ + 1, end - pos_ - 1));
  if (!text.ok()) return AtLine(line_, text.status());
  Add(TokenKind::kString, *std::move(text));
  Skip(end + 1 - pos_);
  return {};
}

Status TemplateLexer::OperatorToken() {
  const auto* const found =
      std::ranges::find_if(kOperators, [&](std::string_view known) { return At(known); });
  if (found == kOperators.end()) {
    return SyntaxError(line_,
                       fmt::format("unexpected {} in a tag", Quoted(source_.substr(pos_, 1))));
  }
  const char first = found->front();
  if (first == '(' || first == '[' || first == '{') brackets_ += first;
  if (first == ')' || first == ']' || first == '}') {
    const char open = first == ')' ? '(' : first == ']' ? '[' : '{';
    if (brackets_.empty() || brackets_.back() != open) {
      return SyntaxError(line_, fmt::format("\"{}\" closes nothing", first));
    }
    brackets_.pop_back();
  }
  Add(TokenKind::kOperator, std::string(*found));
  Skip(found->size());
  return {};
}

Status TemplateLexer::TagToken() {
  const char c = source_[pos_];
  if (c == '"' || c == '\'') return StringToken();
  if (IsDigit(c)) {
    NumberToken();
    return {};
  }
  if (!IsNameStart(c)) return OperatorToken();
  size_t end = pos_;
  while (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end]))) ++end;
  Add(TokenKind::kName, std::string(source_.substr(pos_, end - pos_)));
  Skip(end - pos_);
  return {};
}

Status TemplateLexer::Tag(bool is_block) {
  const int line = line_;
  Add(is_block ? TokenKind::kBlockBegin : TokenKind::kOutputBegin);
  Skip(2);
  if (At("-") || At("+")) Skip(1);
  brackets_.clear();
  while (true) {
    SkipBlanks();
    if (TagEnds(is_block)) return {};
    if (pos_ >= source_.size()) {
      return SyntaxError(line, fmt::format("{} has no end", is_block ? "{%" : "{{"));
    }
    VARVE_RETURN_IF_ERROR(TagToken());
  }
}

Result<std::vector<Token>> TemplateLexer::Run() {
  while (pos_ < source_.size()) {
    size_t tag = pos_;
    const auto is_tag = [&] {
      return source_[tag] == '{' && tag + 1 < source_.size() &&
             (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#');
    };
    while (tag < source_.size() && !is_tag()) ++tag;
    if (tag == source_.size()) {
      Add(TokenKind::kText, std::string(source_.substr(pos_)));
      break;
    }
    const char kind = source_[tag + 1];
    AddText(tag, kind);
    if (kind == '#') {
      VARVE_RETURN_IF_ERROR(Comment());
      continue;
    }
    if (kind == '%') {
      VARVE_ASSIGN_OR_RETURN(const bool is_raw, Raw());
      if (is_raw) continue;
    }
    VARVE_RETURN_IF_ERROR(Tag(kind == '%'));
  }
  Add(TokenKind::kEnd);
  return std::move(tokens_);
}

}  // namespace

Result<std::vector<Token>> LexTemplate(std::string_view source) {
  const std::string text = NormaliseLines(source);
  return TemplateLexer(text).Run();
}

Status AtLine(int line, const Status& status) {
  return {status.code(), fmt::format("line {}: {}", line, status.message())};
}

Status SyntaxError(int line, std::string_view what) {
  return InvalidArgument(fmt::format("line {}: {}", line, what));
}

Status Unsupported(int line, std::string_view what) {
  return Unimplemented(fmt::format("line {}: {} is not supported", line, what));
}

}  // namespace varve::jinja
