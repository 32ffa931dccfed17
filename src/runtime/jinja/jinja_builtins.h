// The functions that templates may call: filters, tests, methods of values, and globals.

#ifndef VARVE_RUNTIME_JINJA_JINJA_BUILTINS_H_
#define VARVE_RUNTIME_JINJA_JINJA_BUILTINS_H_

#include <string_view>
#include <vector>

#include "runtime/jinja/jinja_value.h"
#include "varve/status.h"

namespace varve::jinja {

class Evaluator;

struct BuiltinCall {
  Evaluator& run;
  const Value& input;       // what is filtered, tested, or whose method it is
  std::vector<Value> args;  // in the order of the parameters; undefined where none was given
  NamedValues named;        // with parameters "*" alone: as they were given
};

struct Builtin {
  std::string_view name;
  // Names in order, separated by blanks. "*": any, and names too.
  std::string_view parameters;
  Result<Value> (*call)(BuiltinCall& call);
  bool is_cheap = false;  // does not look at all of its input
};

// Null where there is none.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindMethod(Kind kind, std::string_view name);
const Builtin* FindGlobal(std::string_view name);

// json.dumps. A negative indent: on one line.
struct JsonStyle {
  int64_t indent = -1;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
Result<MarkedText> JsonText(const Value& value, const JsonStyle& style);

// The members of a list, the characters of a text, the keys of a dict; none of what is undefined.
Result<List> Iterate(const Value& value);

// What Python's operators do; errors have no line.
Result<Value> Operate(std::string_view op, const Value& a, const Value& b);
Result<bool> Contains(const Value& container, const Value& item);
Result<bool> IsLess(const Value& a, const Value& b);

// Attribute and item as Jinja2 looks them up; undefined where there is none.
Result<Value> GetAttribute(const Value& value, std::string_view name);
Result<Value> GetItem(const Value& value, const Value& key);
Result<Value> GetSlice(const Value& value, const Value& begin, const Value& end, const Value& step);

// Without what stands in `characters` at either end.
MarkedText StripText(const MarkedText& text, std::string_view characters, bool left, bool right);
inline constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";
// Counts and replaces as str.replace does; count < 0: all.
MarkedText ReplaceText(const MarkedText& text, const MarkedText& from, const MarkedText& to,
                       int64_t count);
MarkedText ChangeCase(const MarkedText& text,
                      std::string_view how);  // upper lower title capitalize

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_BUILTINS_H_
