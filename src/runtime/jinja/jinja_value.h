// Value: what an expression of a template is. The types of Python that templates use, with Python's
// rules for truth, equality and text.
//
// Values do not change once they are made, but for namespaces; copies share what they hold. Those
// of one run are used by one thread.

#ifndef VARVE_RUNTIME_JINJA_JINJA_VALUE_H_
#define VARVE_RUNTIME_JINJA_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_value.h"
#include "runtime/jinja/marked_text.h"
#include "varve/status.h"

namespace varve::jinja {

class Value;
struct Builtin;  // jinja_builtins.h
struct Statement;
struct Scope;
using List = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;  // in the order of insertion
using NamedValues = std::vector<std::pair<std::string, Value>>;

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,  // tuples too
  kDict,
  kNamespace,
  kLoop,
  kFunction,
};

// Lists and dicts carry how deep they go and how much they hold when everything is written out, so
// that no operation on them needs more stack or time than it may have.
struct ListObject;
struct DictObject;
struct Namespace;
struct LoopState;
struct Function;

class Value {
 public:
  Value() = default;  // undefined
  static Value Undefined(std::string name);
  static Value None();
  static Value Bool(bool boolean);
  static Value Int(int64_t integer);
  static Value Float(double number);
  static Value Text(MarkedText text);
  static Value Text(std::string_view written) { return Text(MarkedText(std::string(written))); }
  static Value OfList(List items);
  static Value OfDict(Entries entries);
  static Value Of(std::shared_ptr<Namespace> names);
  static Value Of(std::shared_ptr<const LoopState> loop);
  static Value Of(std::shared_ptr<const Function> function);
  // Texts and keys of the document are said; so a tool's description forges nothing.
  static Value FromJson(const JsonValue& json);

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_number() const;  // bool is one, as in Python

  // The kind must be right.
  bool boolean() const { return std::get<bool>(value_); }
  int64_t integer() const;  // of kBool and kInt
  double number() const;    // of any number
  const MarkedText& marked() const { return *std::get<TextPointer>(value_); }
  const std::string& text() const { return marked().text(); }
  const List& list() const;
  const Entries& dict() const;
  Namespace& names() const { return *std::get<std::shared_ptr<Namespace>>(value_); }
  const LoopState& loop() const { return *std::get<std::shared_ptr<const LoopState>>(value_); }
  const Function& function() const { return *std::get<std::shared_ptr<const Function>>(value_); }
  const std::string& undefined_name() const { return std::get<UndefinedValue>(value_).name; }

  // Of a dict; null where there is none.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  bool IsTrue() const;
  bool Equals(const Value& other) const;
  int depth() const;       // 0 for what holds no values
  int64_t weight() const;  // steps that reading all of it takes
  // "str", "list", as Python has it.
  const char* type_name() const;

 private:
  struct UndefinedValue {
    std::string name;
  };
  using TextPointer = std::shared_ptr<const MarkedText>;
  std::variant<UndefinedValue, std::monostate, bool, int64_t, double, TextPointer,
               std::shared_ptr<const ListObject>, std::shared_ptr<const DictObject>,
               std::shared_ptr<Namespace>, std::shared_ptr<const LoopState>,
               std::shared_ptr<const Function>>
      value_;
};

struct ListObject {
  List items;
  int depth = 1;
  int64_t weight = 1;
};
struct DictObject {
  Entries entries;
  int depth = 1;
  int64_t weight = 1;
};
// `namespace()`: the one thing that a template may change. May hold itself, so whoever runs the
// template empties all of them in the end.
struct Namespace {
  NamedValues values;
};
// `loop` in one round.
struct LoopState {
  int64_t index0 = 0;
  int64_t length = 0;
  int depth0 = 0;
  Value previous;
  Value next;
};
// A function of the interpreter, a method with the value that it is of, or a macro with the scope
// that it was written in.
struct Function {
  std::string name;
  const Builtin* builtin = nullptr;
  Value receiver;
  const Statement* macro = nullptr;
  Scope* scope = nullptr;
};

// What `{{ value }}` writes. Lists and dicts are written as Python's repr does; the whole of such a
// text counts as said if anything in it was.
MarkedText TextOf(const Value& value);

// Characters of UTF-8; a byte that is part of none counts as one.
size_t CountCharacters(std::string_view text);
// Where character `index` begins; the text's size beyond the last.
size_t CharacterOffset(std::string_view text, size_t index);

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_JINJA_VALUE_H_
