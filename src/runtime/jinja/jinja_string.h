// Python's texts, as templates write and print them. Pure functions.

#ifndef VARVE_RUNTIME_JINJA_JINJA_STRING_H_
#define VARVE_RUNTIME_JINJA_JINJA_STRING_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::jinja {

// What stands between the quotes of a literal, with \n, \x41, \u00e4 and the like resolved.
Result<std::string> ResolveEscapes(std::string_view literal);

// As repr() of a str has it: 'it', "it's", 'a\nb'.
void AppendRepr(std::string_view text, std::string* out);

// As repr() of a float: "1.0", "1e-05", "nan".
std::string FloatText(double number);

// As json.dumps has it, with quotes; `ascii` writes what is not ASCII as \uXXXX.
void AppendJsonString(std::string_view text, bool ascii, std::string* out);

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_STRING_H_
