// Attributes, items and slices.

#include <algorithm>

#include <fmt/format.h>

#include "base/quoted.h"
#include "base/utf8.h"
#include "runtime/jinja/jinja_builtins.h"

namespace varve::jinja {
namespace {

Value Method(const Value& receiver, const Builtin* builtin) {
  auto function = std::make_shared<Function>();
  function->name = builtin->name;
  function->builtin = builtin;
  function->receiver = receiver;
  return Value::Of(std::shared_ptr<const Function>(std::move(function)));
}

Value LoopAttribute(const LoopState& loop, std::string_view name) {
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "revindex") return Value::Int(loop.length - loop.index0);
  if (name == "revindex0") return Value::Int(loop.length - loop.index0 - 1);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(loop.index0 + 1 == loop.length);
  if (name == "length") return Value::Int(loop.length);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") return loop.previous;
  if (name == "nextitem") return loop.next;
  return Value::Undefined(fmt::format("loop.{}", name));
}

// The value under a name: of a dict or a namespace. Null where there is none.
const Value* Member(const Value& value, std::string_view name) {
  if (value.is(Kind::kDict)) return value.Find(name);
  if (!value.is(Kind::kNamespace)) return nullptr;
  const NamedValues& values = value.names().values;
  const auto found = std::ranges::find(values, name, [](const auto& entry) { return entry.first; });
  return found == values.end() ? nullptr : &found->second;
}

// One character, by index from either end; false: there is none.
bool CharacterAt(const MarkedText& text, int64_t index, MarkedText* character) {
  if (index < 0) index += static_cast<int64_t>(CountCharacters(text.text()));
  if (index < 0) return false;
  const size_t begin = CharacterOffset(text.text(), static_cast<size_t>(index));
  if (begin >= text.size()) return false;
  const size_t bytes = ReadUtf8(std::string_view(text.text()).substr(begin)).bytes;
  *character = text.Part(begin, begin + bytes);
  return true;
}

// Where a slice begins or ends, as Python cuts it.
int64_t Bound(const Value& value, int64_t otherwise, int64_t length, int64_t step) {
  if (!value.is(Kind::kInt)) return otherwise;
  const int64_t at = value.integer();
  const int64_t low = step < 0 ? -1 : 0;
  const int64_t high = step < 0 ? length - 1 : length;
  return std::clamp(at < 0 ? std::max(at, -length - 1) + length : at, low, high);
}

}  // namespace

Result<Value> GetAttribute(const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined)) {
    return InvalidArgument(
        fmt::format("'{}' is undefined, so it has no {}", value.undefined_name(), Quoted(name)));
  }
  if (value.is(Kind::kLoop)) {
    const Builtin* method = FindMethod(Kind::kLoop, name);
    return method != nullptr ? Method(value, method) : LoopAttribute(value.loop(), name);
  }
  if (const Builtin* method = FindMethod(value.kind(), name)) return Method(value, method);
  const Value* member = Member(value, name);
  return member != nullptr ? *member : Value::Undefined(std::string(name));
}

Result<Value> GetItem(const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) {
    return InvalidArgument(
        fmt::format("'{}' is undefined, so it has no items", value.undefined_name()));
  }
  if (value.is(Kind::kDict)) {
    if (const Value* found = value.Find(key)) return *found;
  }
  if (key.is(Kind::kText)) return GetAttribute(value, key.text());
  if (key.is(Kind::kInt) && value.is(Kind::kList)) {
    const auto length = static_cast<int64_t>(value.list().size());
    const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index >= 0 && index < length) return value.list()[static_cast<size_t>(index)];
  }
  MarkedText character;
  if (key.is(Kind::kInt) && value.is(Kind::kText) &&
      CharacterAt(value.marked(), key.integer(), &character)) {
    return Value::Text(std::move(character));
  }
  return Value::Undefined(TextOf(key).text().substr(0, kMaxShownCharacters));
}

Result<Value> GetSlice(const Value& value, const Value& begin, const Value& end,
                       const Value& step) {
  for (const Value* bound : {&begin, &end, &step}) {
    const bool fits =
        bound->is(Kind::kInt) || bound->is(Kind::kUndefined) || bound->is(Kind::kNone);
    if (!fits) return InvalidArgument(fmt::format("a slice by a {}", bound->type_name()));
  }
  if (!value.is(Kind::kList) && !value.is(Kind::kText)) {
    return InvalidArgument(fmt::format("a slice of a {}", value.type_name()));
  }
  const int64_t by = step.is(Kind::kInt) ? step.integer() : 1;
  if (by == 0) return InvalidArgument("a slice by steps of 0");
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(value));
  const auto length = static_cast<int64_t>(items.size());
  const int64_t first = Bound(begin, by < 0 ? length - 1 : 0, length, by);
  const int64_t last = Bound(end, by < 0 ? -1 : length, length, by);
  List kept;
  int64_t at = first;
  while (by > 0 ? at < last : at > last) {
    kept.push_back(items[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  if (value.is(Kind::kList)) return Value::OfList(std::move(kept));
  MarkedText text;
  for (const Value& character : kept) text.Append(character.marked());
  return Value::Text(std::move(text));
}

Result<List> Iterate(const Value& value) {
  List items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
      return value.list();
    case Kind::kDict:
      for (const auto& [key, entry] : value.dict()) items.push_back(key);
      return items;
    case Kind::kText: {
      const MarkedText& text = value.marked();
      for (size_t at = 0; at < text.size();) {
        const size_t bytes = ReadUtf8(std::string_view(text.text()).substr(at)).bytes;
        items.push_back(Value::Text(text.Part(at, at + bytes)));
        at += bytes;
      }
      return items;
    }
    default:
      return InvalidArgument(fmt::format("a value of type {} has no items", value.type_name()));
  }
}

}  // namespace varve::jinja
