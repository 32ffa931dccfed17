#include "runtime/eval/text_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <utility>

namespace varve {
namespace {

PCRE2_SPTR Units(const std::string& text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

void TextPattern::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

TextPattern::TextPattern(const std::string& pattern, std::string replacement)
    : replacement_(std::move(replacement)) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(Units(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                            nullptr));
}

void TextPattern::Replace(std::string& text) const {
  if (code_ == nullptr) return;
  constexpr uint32_t kOptions =
      PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_EXTENDED | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH;
  // A first call with room for some growth; the second, if any, has what the first asked for.
  std::string out(text.size() + text.size() / 4 + 16, '\0');
  for (int attempt = 0; attempt < 2; ++attempt) {
    PCRE2_SIZE length = out.size();
    const int count = pcre2_substitute(code_.get(), Units(text), text.size(), 0, kOptions, nullptr,
                                       nullptr, Units(replacement_), replacement_.size(),
                                       reinterpret_cast<PCRE2_UCHAR*>(out.data()), &length);
    if (count == PCRE2_ERROR_NOMEMORY) {
      out.resize(length);
      continue;
    }
    if (count <= 0) return;
    out.resize(length);
    text = std::move(out);
    return;
  }
}

}  // namespace varve
