#include "base/json_value.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quoted.h"
#include "base/utf8.h"

namespace varve {

// Takes the events of the JSON library's parser.
class JsonReader {
 public:
  explicit JsonReader(int max_depth) : max_depth_(max_depth) {}

  Result<JsonValue> Read(std::string_view text) {
    const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), this);
    if (!refused_.ok()) return refused_;
    if (!parsed) return InvalidArgument("not valid JSON");
    return std::move(root_);
  }

  bool null() { return Add(std::monostate()); }
  bool boolean(bool flag) { return Add(flag); }
  bool number_integer(int64_t number) { return Add(number); }
  bool number_unsigned(uint64_t number) { return Add(number); }
  bool number_float(double number, const std::string&) { return Add(number); }
  bool string(std::string& text) { return Add(std::move(text)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return Enter(JsonValue::Object()); }
  bool start_array(size_t) { return Enter(JsonValue::Array()); }
  bool end_object() { return Leave(); }
  bool end_array() { return Leave(); }
  bool key(std::string& name) {
    auto& members = std::get<JsonValue::Object>(open_.back()->value_);
    for (const JsonValue::Member& member : members) {
      if (member.key != name) continue;
      refused_ = InvalidArgument(fmt::format("key {}: repeated in one object", Quoted(name)));
      return false;
    }
    members.push_back({std::move(name), JsonValue()});
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) { return false; }

 private:
  // Where the next value goes: behind a key, behind the elements of an array, or at the root.
  // Values that are open lie inside each other, so none of them moves while it is.
  JsonValue& Place() {
    if (open_.empty()) return root_;
    auto& value = open_.back()->value_;
    if (auto* members = std::get_if<JsonValue::Object>(&value)) return members->back().value;
    return std::get<JsonValue::Array>(value).emplace_back();
  }
  template <class T>
  bool Add(T value) {
    Place().value_ = std::move(value);
    return true;
  }
  template <class T>
  bool Enter(T container) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      refused_ = InvalidArgument(fmt::format("JSON nested deeper than {} levels", max_depth_));
      return false;
    }
    JsonValue& place = Place();
    place.value_ = std::move(container);
    open_.push_back(&place);
    return true;
  }
  bool Leave() {
    open_.pop_back();
    return true;
  }

  int max_depth_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  Status refused_;
};

Result<JsonValue> JsonValue::Parse(std::string_view text, int max_depth) {
  return JsonReader(max_depth).Read(text);
}

double JsonValue::Number() const {
  if (const auto* number = std::get_if<int64_t>(&value_)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value_)) return static_cast<double>(*number);
  return std::get<double>(value_);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const Member& member : items()) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

double JsonValue::value(std::string_view key, double otherwise) const {
  const JsonValue* found = find(key);
  return found != nullptr ? found->Number() : otherwise;
}

int64_t JsonValue::value(std::string_view key, int64_t otherwise) const {
  const JsonValue* found = find(key);
  if (found == nullptr) return otherwise;
  if (const auto* number = std::get_if<int64_t>(&found->value_)) return *number;
  const uint64_t number = std::get<uint64_t>(found->value_);
  return static_cast<int64_t>(std::min<uint64_t>(number, INT64_MAX));
}

std::string JsonValue::value(std::string_view key, const char* otherwise) const {
  const JsonValue* found = find(key);
  return found != nullptr ? found->get<std::string>() : std::string(otherwise);
}

namespace {

void Write(const JsonValue& value, JsonWriter& writer) {
  if (value.is_object()) {
    writer.Open('{');
    for (const JsonValue::Member& member : value.items())
      Write(member.value, writer.Key(member.key));
    writer.Close('}');
  } else if (value.is_array()) {
    writer.Open('[');
    for (const JsonValue& element : value) Write(element, writer);
    writer.Close(']');
  } else if (value.is_string()) {
    writer.Text(value.get<std::string>());
  } else if (value.is_boolean()) {
    writer.Boolean(value.get<bool>());
  } else if (value.is_number_integer()) {
    writer.Verbatim(value.dump());
  } else if (value.is_number()) {
    writer.Real(value.get<double>());
  } else {
    writer.Real(NAN);
  }
}

}  // namespace

std::string JsonValue::dump() const {
  if (const auto* number = std::get_if<int64_t>(&value_)) return std::to_string(*number);
  if (const auto* number = std::get_if<uint64_t>(&value_)) return std::to_string(*number);
  JsonWriter writer;
  Write(*this, writer);
  return writer.Take();
}

JsonWriter& JsonWriter::Verbatim(std::string_view json) {
  Comma();
  text_ += json;
  needs_comma_ = true;
  return *this;
}

void JsonWriter::Comma() {
  if (needs_comma_) text_ += ',';
}

JsonWriter& JsonWriter::Open(char bracket) {
  Comma();
  text_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Text(key);
  text_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Text(std::string_view text) {
  Comma();
  Quote(text);
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Real(double number) {
  if (!std::isfinite(number)) return Verbatim("null");
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // stays a real when it is read
  return Verbatim(text);
}

void JsonWriter::Quote(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const Utf8Sequence sequence = ReadUtf8(text);
    const char c = text[0];
    if (!sequence.valid) {
      text_ += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (c == '\t') {
      text_ += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      text_ += text.substr(0, sequence.bytes);
    }
    text.remove_prefix(sequence.bytes);
  }
  text_ += '"';
}

}  // namespace varve
