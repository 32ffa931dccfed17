#include "runtime/jinja/jinja_value.h"

#include <algorithm>
#include <cstdlib>

#include "base/utf8.h"

namespace varve::jinja {
namespace {

constexpr int64_t kMostWeight = int64_t{1} << 40;
constexpr size_t kBytesPerStep = 64;  // of text

// Takes a part into what holds it.
template <typename Object>
void Include(const Value& value, Object* object) {
  object->depth = std::max(object->depth, value.depth() + 1);
  object->weight = std::min(kMostWeight, object->weight + value.weight());
}

bool SameEntries(const Entries& a, const Value& b) {
  return std::ranges::all_of(a, [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && entry.second.Equals(*other);
  });
}

}  // namespace

Value Value::Undefined(std::string name) {
  Value value;
  value.value_ = UndefinedValue{std::move(name)};
  return value;
}

Value Value::None() {
  Value value;
  value.value_ = std::monostate();
  return value;
}

Value Value::Bool(bool boolean) {
  Value value;
  value.value_ = boolean;
  return value;
}

Value Value::Int(int64_t integer) {
  Value value;
  value.value_ = integer;
  return value;
}

Value Value::Float(double number) {
  Value value;
  value.value_ = number;
  return value;
}

Value Value::Text(MarkedText text) {
  Value value;
  value.value_ = std::make_shared<const MarkedText>(std::move(text));
  return value;
}

Value Value::OfList(List items) {
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) Include(item, object.get());
  object->items = std::move(items);
  Value value;
  value.value_ = std::shared_ptr<const ListObject>(std::move(object));
  return value;
}

Value Value::OfDict(Entries entries) {
  auto object = std::make_shared<DictObject>();
  for (const auto& [key, entry] : entries) {
    Include(key, object.get());
    Include(entry, object.get());
  }
  object->entries = std::move(entries);
  Value value;
  value.value_ = std::shared_ptr<const DictObject>(std::move(object));
  return value;
}

Value Value::Of(std::shared_ptr<Namespace> names) {
  Value value;
  value.value_ = std::move(names);
  return value;
}

Value Value::Of(std::shared_ptr<const LoopState> loop) {
  Value value;
  value.value_ = std::move(loop);
  return value;
}

Value Value::Of(std::shared_ptr<const Function> function) {
  Value value;
  value.value_ = std::move(function);
  return value;
}

Value Value::FromJson(const JsonValue& json) {
  if (json.is_null()) return None();
  if (json.is_boolean()) return Bool(json.get<bool>());
  if (json.is_string()) return Text(MarkedText::Said(json.get<std::string>()));
  if (json.is_number()) {
    const auto number = json.get<double>();
    if (!json.is_number_integer() || number >= 0x1p63) return Float(number);
    return Int(std::strtoll(json.dump().c_str(), nullptr, 10));
  }
  if (json.is_array()) {
    List items;
    for (const JsonValue& item : json) items.push_back(FromJson(item));
    return OfList(std::move(items));
  }
  Entries entries;
  for (const JsonValue::Member& member : json.items()) {
    entries.emplace_back(Text(MarkedText::Said(member.key)), FromJson(member.value));
  }
  return OfDict(std::move(entries));
}

bool Value::is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }

int64_t Value::integer() const {
  return is(Kind::kBool) ? int64_t{boolean()} : std::get<int64_t>(value_);
}

double Value::number() const {
  return is(Kind::kFloat) ? std::get<double>(value_) : static_cast<double>(integer());
}

const List& Value::list() const {
  return std::get<std::shared_ptr<const ListObject>>(value_)->items;
}

const Entries& Value::dict() const {
  return std::get<std::shared_ptr<const DictObject>>(value_)->entries;
}

const Value* Value::Find(const Value& key) const {
  for (const auto& [known, value] : dict()) {
    if (known.Equals(key)) return &value;
  }
  return nullptr;
}

const Value* Value::Find(std::string_view key) const {
  for (const auto& [known, value] : dict()) {
    if (known.is(Kind::kText) && known.text() == key) return &value;
  }
  return nullptr;
}

bool Value::IsTrue() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number() != 0;
    case Kind::kText:
      return !marked().empty();
    case Kind::kList:
      return !list().empty();
    case Kind::kDict:
      return !dict().empty();
    default:
      return true;
  }
}

bool Value::Equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    if (is(Kind::kFloat) || other.is(Kind::kFloat)) return number() == other.number();
    return integer() == other.integer();
  }
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      return text() == other.text();
    case Kind::kList:
      return std::ranges::equal(list(), other.list(),
                                [](const Value& a, const Value& b) { return a.Equals(b); });
    case Kind::kDict:
      return dict().size() == other.dict().size() && SameEntries(dict(), other);
    case Kind::kNamespace:
      return &names() == &other.names();
    case Kind::kLoop:
      return &loop() == &other.loop();
    default:
      return &function() == &other.function();
  }
}

int Value::depth() const {
  if (is(Kind::kList)) return std::get<std::shared_ptr<const ListObject>>(value_)->depth;
  if (is(Kind::kDict)) return std::get<std::shared_ptr<const DictObject>>(value_)->depth;
  if (is(Kind::kLoop)) return std::max(loop().previous.depth(), loop().next.depth()) + 1;
  if (is(Kind::kFunction)) return function().receiver.depth() + 1;
  return 0;
}

int64_t Value::weight() const {
  if (is(Kind::kText)) return 1 + static_cast<int64_t>(marked().size() / kBytesPerStep);
  if (is(Kind::kList)) return std::get<std::shared_ptr<const ListObject>>(value_)->weight;
  if (is(Kind::kDict)) return std::get<std::shared_ptr<const DictObject>>(value_)->weight;
  return 1;
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"undefined", "none", "bool",    "int",
                                           "float",     "str",  "list",    "dict",
                                           "namespace", "loop", "function"};
  return kNames[value_.index()];
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += ReadUtf8(text.substr(at)).bytes) ++count;
  return count;
}

size_t CharacterOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += ReadUtf8(text.substr(at)).bytes;
  return at;
}

}  // namespace varve::jinja
