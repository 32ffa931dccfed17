// JSON as the library reads and writes it: small documents, and calls that fail for want of memory
// without ending the process. (The trees of the JSON library need memory to be destroyed.)
//
// JsonValue is a tree of values; its members are a part of those of nlohmann::json, by the same
// names. JsonWriter makes text, value by value.

#ifndef VARVE_BASE_JSON_VALUE_H_
#define VARVE_BASE_JSON_VALUE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "varve/status.h"

namespace varve {

class JsonValue {
 public:
  // Refuses what is not JSON, more than max_depth levels, and a key that an object has twice.
  // Errors say what, not where.
  static Result<JsonValue> Parse(std::string_view text, int max_depth);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_number_integer() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
  }
  bool is_number() const { return is_number_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // bool, std::string or double; the type must be right.
  template <class T>
  T get() const {
    if constexpr (std::is_same_v<T, double>)
      return Number();
    else
      return std::get<T>(value_);
  }
  // As it would be written.
  std::string dump() const;

  // Of an array.
  auto begin() const { return std::get<Array>(value_).begin(); }
  auto end() const { return std::get<Array>(value_).end(); }

  // Of an object, in the order of the text.
  struct Member;
  const std::vector<Member>& items() const { return std::get<Object>(value_); }
  size_t size() const;
  // Null where there is none.
  const JsonValue* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  // The member's value, or `otherwise`.
  double value(std::string_view key, double otherwise) const;
  int64_t value(std::string_view key, int64_t otherwise) const;  // of an integer; at most 2^63 - 1
  std::string value(std::string_view key, const char* otherwise) const;

 private:
  friend class JsonReader;
  using Array = std::vector<JsonValue>;
  using Object = std::vector<Member>;
  double Number() const;

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct JsonValue::Member {
  std::string key;
  JsonValue value;
};

inline size_t JsonValue::size() const { return items().size(); }

// One value after the other, with commas and colons where they belong.
class JsonWriter {
 public:
  JsonWriter& Open(char bracket);   // '{' or '['
  JsonWriter& Close(char bracket);  // '}' or ']'
  JsonWriter& Key(std::string_view key);
  JsonWriter& Text(std::string_view text);  // bytes that are not UTF-8 become U+FFFD
  JsonWriter& Real(double number);          // null unless it is finite
  template <class T>
  requires std::is_integral_v<T> JsonWriter& Integer(T number) {
    return Verbatim(std::to_string(number));
  }
  JsonWriter& Boolean(bool flag) { return Verbatim(flag ? "true" : "false"); }

  JsonWriter& Verbatim(std::string_view json);  // a value as it is

  std::string Take() { return std::move(text_); }

 private:
  void Comma();
  void Quote(std::string_view text);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace varve

#endif  // VARVE_BASE_JSON_VALUE_H_
