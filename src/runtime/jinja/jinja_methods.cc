// Methods of texts, dicts, lists and `loop`.

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "runtime/jinja/jinja_evaluator.h"
#include "runtime/jinja/jinja_list_filters.h"

namespace varve::jinja {
namespace {

template <bool left, bool right>
Result<Value> Strip(BuiltinCall& call) {
  const std::string_view characters =
      call.args[0].is(Kind::kText) ? std::string_view(call.args[0].text()) : kWhiteSpace;
  return call.run.MakeText(StripText(call.input.marked(), characters, left, right));
}

// A filter of the same name does it.
template <const char* filter>
Result<Value> AsFilter(BuiltinCall& call) {
  return call.run.Call(*FindFilter(filter), call.input, call.args);
}
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kTitle[] = "title";
constexpr char kCapitalize[] = "capitalize";
constexpr char kReplace[] = "replace";

// The text itself, or any of a list of them.
template <bool at_start>
Result<Value> HasEnd(BuiltinCall& call) {
  const List one = {call.args[0]};
  const List& ends = call.args[0].is(Kind::kList) ? call.args[0].list() : one;
  for (const Value& end : ends) {
    if (!end.is(Kind::kText)) {
      return InvalidArgument(fmt::format("startswith or endswith: a {}, no text", end.type_name()));
    }
    const std::string& text = call.input.text();
    if (at_start ? text.starts_with(end.text()) : text.ends_with(end.text()))
      return Value::Bool(true);
  }
  return Value::Bool(false);
}

// Runs of white space, or each separator, from the left.
Result<Value> Split(BuiltinCall& call) {
  const MarkedText& text = call.input.marked();
  int64_t left = call.args[1].is(Kind::kInt) ? call.args[1].integer() : -1;
  List parts;
  size_t at = 0;
  if (call.args[0].is(Kind::kText)) {
    const std::string& separator = call.args[0].text();
    if (separator.empty()) return InvalidArgument("split: an empty separator");
    for (; left != 0; --left) {
      const size_t found = text.text().find(separator, at);
      if (found == std::string::npos) break;
      parts.push_back(Value::Text(text.Part(at, found)));
      at = found + separator.size();
    }
    parts.push_back(Value::Text(text.Part(at, text.size())));
  } else {
    for (; (at = text.text().find_first_not_of(kWhiteSpace, at)) != std::string::npos; --left) {
      const size_t end = std::min(text.text().find_first_of(kWhiteSpace, at), text.size());
      const size_t last = left == 0 ? text.size() : end;
      parts.push_back(Value::Text(text.Part(at, last)));
      if (left == 0) break;
      at = end;
    }
  }
  VARVE_RETURN_IF_ERROR(call.run.Charge(static_cast<int64_t>(parts.size())));
  return Value::OfList(std::move(parts));
}

Result<Value> RightSplit(BuiltinCall& call) {
  if (!call.args[0].is(Kind::kText) || call.args[0].text().empty()) {
    return Unimplemented("rsplit without a separator is not supported");
  }
  const MarkedText& text = call.input.marked();
  const std::string& separator = call.args[0].text();
  List parts;
  size_t end = text.size();
  for (int64_t left = call.args[1].is(Kind::kInt) ? call.args[1].integer() : -1;
       left != 0 && end >= separator.size(); --left) {
    const size_t found = text.text().rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    parts.push_back(Value::Text(text.Part(found + separator.size(), end)));
    end = found;
  }
  parts.push_back(Value::Text(text.Part(0, end)));
  std::ranges::reverse(parts);
  return Value::OfList(std::move(parts));
}

Result<Value> SplitLines(BuiltinCall& call) {
  const MarkedText& text = call.input.marked();
  List lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.text().find('\n', at), text.size());
    lines.push_back(Value::Text(text.Part(at, end)));
    at = end + 1;
  }
  return Value::OfList(std::move(lines));
}

Result<Value> JoinBy(BuiltinCall& call) {
  return call.run.Call(*FindFilter("join"), call.args[0], {call.input});
}

// In characters, as Python counts.
template <bool from_left>
Result<Value> FindIn(BuiltinCall& call) {
  if (!call.args[0].is(Kind::kText)) return InvalidArgument("find: no text");
  const std::string& text = call.input.text();
  const std::string& part = call.args[0].text();
  const size_t found = from_left ? text.find(part) : text.rfind(part);
  if (found == std::string::npos) return Value::Int(-1);
  return Value::Int(static_cast<int64_t>(CountCharacters(std::string_view(text).substr(0, found))));
}

Result<Value> CountIn(BuiltinCall& call) {
  if (!call.input.is(Kind::kText)) {
    return Value::Int(std::ranges::count_if(
        call.input.list(), [&](const Value& item) { return item.Equals(call.args[0]); }));
  }
  const std::string part = TextOf(call.args[0]).text();
  if (part.empty()) return InvalidArgument("count: of an empty text");
  int64_t count = 0;
  for (size_t at = call.input.text().find(part); at != std::string::npos;
       at = call.input.text().find(part, at + part.size())) {
    ++count;
  }
  return Value::Int(count);
}

template <bool at_start>
Result<Value> RemoveEnd(BuiltinCall& call) {
  const MarkedText& text = call.input.marked();
  const std::string end = TextOf(call.args[0]).text();
  const bool has = at_start ? text.text().starts_with(end) : text.text().ends_with(end);
  if (!has) return call.input;
  return Value::Text(at_start ? text.Part(end.size(), text.size())
                              : text.Part(0, text.size() - end.size()));
}

Result<Value> IsDigits(BuiltinCall& call) {
  const std::string& text = call.input.text();
  return Value::Bool(!text.empty() &&
                     std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }));
}

Result<Value> Get(BuiltinCall& call) {
  if (const Value* found = call.input.Find(call.args[0])) return *found;
  return call.args[1].is(Kind::kUndefined) ? Value::None() : call.args[1];
}

Result<Value> DictItems(BuiltinCall& call) { return ItemsOf(call.input); }

Result<Value> Keys(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(List keys, Iterate(call.input));
  return Value::OfList(std::move(keys));
}

Result<Value> Values(BuiltinCall& call) {
  List values;
  for (const auto& [key, value] : call.input.dict()) values.push_back(value);
  return Value::OfList(std::move(values));
}

Result<Value> Cycle(BuiltinCall& call) {
  if (call.args.empty()) return InvalidArgument("loop.cycle: no values");
  return call.args[static_cast<size_t>(call.input.loop().index0) % call.args.size()];
}

constexpr Builtin kTextMethods[] = {
    {"strip", "chars", Strip<true, true>},
    {"lstrip", "chars", Strip<true, false>},
    {"rstrip", "chars", Strip<false, true>},
    {"upper", "", AsFilter<kUpper>},
    {"lower", "", AsFilter<kLower>},
    {"title", "", AsFilter<kTitle>},
    {"capitalize", "", AsFilter<kCapitalize>},
    {"replace", "old new count", AsFilter<kReplace>},
    {"startswith", "prefix", HasEnd<true>},
    {"endswith", "suffix", HasEnd<false>},
    {"split", "sep maxsplit", Split},
    {"rsplit", "sep maxsplit", RightSplit},
    {"splitlines", "", SplitLines},
    {"join", "iterable", JoinBy},
    {"find", "sub", FindIn<true>},
    {"rfind", "sub", FindIn<false>},
    {"count", "sub", CountIn},
    {"removeprefix", "prefix", RemoveEnd<true>},
    {"removesuffix", "suffix", RemoveEnd<false>},
    {"isdigit", "", IsDigits},
};
constexpr Builtin kListMethods[] = {{"count", "value", CountIn}};
constexpr Builtin kDictMethods[] = {
    {"get", "key default", Get, true},
    {"items", "", DictItems},
    {"keys", "", Keys},
    {"values", "", Values},
};
constexpr Builtin kLoopMethods[] = {{"cycle", "*", Cycle}};

template <typename Table>
const Builtin* FindEntry(const Table& table, std::string_view name) {
  const auto* const found = std::ranges::find(table, name, &Builtin::name);
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

const Builtin* FindMethod(Kind kind, std::string_view name) {
  if (kind == Kind::kText) return FindEntry(kTextMethods, name);
  if (kind == Kind::kList) return FindEntry(kListMethods, name);
  if (kind == Kind::kDict) return FindEntry(kDictMethods, name);
  if (kind == Kind::kLoop) return FindEntry(kLoopMethods, name);
  return nullptr;
}

}  // namespace varve::jinja
