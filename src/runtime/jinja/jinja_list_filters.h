// Filters of lists and dicts; FindFilter (jinja_builtins.h) has these too.

#ifndef VARVE_RUNTIME_JINJA_JINJA_LIST_FILTERS_H_
#define VARVE_RUNTIME_JINJA_JINJA_LIST_FILTERS_H_

#include <string_view>

#include "runtime/jinja/jinja_builtins.h"

namespace varve::jinja {

const Builtin* FindListFilter(std::string_view name);

// The pairs of a dict, as lists of two.
Value ItemsOf(const Value& dict);

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_LIST_FILTERS_H_
