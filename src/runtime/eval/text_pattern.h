// TextPattern: a regular expression (PCRE2, with Unicode's letters, digits and blanks) and what its
// matches are replaced by.
//
// Patterns are literals of the program; one that does not compile replaces nothing, which its test
// sees. Immutable; any number of threads may use one.

#ifndef VARVE_RUNTIME_EVAL_TEXT_PATTERN_H_
#define VARVE_RUNTIME_EVAL_TEXT_PATTERN_H_

#include <memory>
#include <string>

struct pcre2_real_code_8;

namespace varve {

class TextPattern {
 public:
  // In `replacement` $1 is the first group, $$ a dollar sign, \L what follows in lower case.
  TextPattern(const std::string& pattern, std::string replacement);

  // Every match, from left to right. `text` is UTF-8.
  void Replace(std::string& text) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
  std::string replacement_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_TEXT_PATTERN_H_
