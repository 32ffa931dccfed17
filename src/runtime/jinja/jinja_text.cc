// Texts of values, and what is done to texts.

#include <algorithm>

#include "runtime/jinja/jinja_builtins.h"
#include "runtime/jinja/jinja_string.h"

namespace varve::jinja {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool AnySaid(const Value& value) {
  const auto any = [](const auto& values) { return std::ranges::any_of(values, AnySaid); };
  if (value.is(Kind::kText)) return !value.marked().said().empty();
  if (value.is(Kind::kList)) return any(value.list());
  if (!value.is(Kind::kDict)) return false;
  return std::ranges::any_of(value.dict(), [](const auto& entry) {
    return AnySaid(entry.first) || AnySaid(entry.second);
  });
}

void AppendValueRepr(const Value& value, std::string* out) {
  std::string_view separator;
  if (value.is(Kind::kText)) {
    AppendRepr(value.text(), out);
  } else if (value.is(Kind::kList)) {
    *out += '[';
    for (const Value& item : value.list()) {
      out->append(separator);
      AppendValueRepr(item, out);
      separator = ", ";
    }
    *out += ']';
  } else if (value.is(Kind::kDict)) {
    *out += '{';
    for (const auto& [key, entry] : value.dict()) {
      out->append(separator);
      AppendValueRepr(key, out);
      out->append(": ");
      AppendValueRepr(entry, out);
      separator = ", ";
    }
    *out += '}';
  } else {
    *out += TextOf(value).text();
  }
}

}  // namespace

MarkedText TextOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kNone:
      return MarkedText("None");
    case Kind::kBool:
      return MarkedText(value.boolean() ? "True" : "False");
    case Kind::kInt:
      return MarkedText(std::to_string(value.integer()));
    case Kind::kFloat:
      return MarkedText(FloatText(value.number()));
    case Kind::kText:
      return value.marked();
    case Kind::kList:
    case Kind::kDict: {
      std::string text;
      AppendValueRepr(value, &text);
      return AnySaid(value) ? MarkedText::Said(std::move(text)) : MarkedText(std::move(text));
    }
    default:
      return MarkedText(std::string("<") + value.type_name() + ">");
  }
}

MarkedText StripText(const MarkedText& text, std::string_view characters, bool left, bool right) {
  const std::string& bytes = text.text();
  size_t begin = 0;
  size_t end = bytes.size();
  const auto strips = [&](size_t at) { return characters.find(bytes[at]) != characters.npos; };
  while (left && begin < end && strips(begin)) ++begin;
  while (right && end > begin && strips(end - 1)) --end;
  return text.Part(begin, end);
}

MarkedText ReplaceText(const MarkedText& text, const MarkedText& from, const MarkedText& to,
                       int64_t count) {
  if (from.empty()) return text;
  MarkedText result;
  size_t at = 0;
  while (count != 0) {
    const size_t found = text.text().find(from.text(), at);
    if (found == std::string::npos) break;
    result.AppendPart(text, at, found);
    result.Append(to);
    at = found + from.size();
    --count;
  }
  result.AppendPart(text, at, text.size());
  return result;
}

// Letters of ASCII alone; others stay as they are.
MarkedText ChangeCase(const MarkedText& text, std::string_view how) {
  std::string bytes = text.text();
  bool in_word = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool upper =
        how == "upper" || (how == "title" && !in_word) || (how == "capitalize" && i == 0);
    in_word = IsLetter(bytes[i]) || static_cast<unsigned char>(bytes[i]) >= 0x80;
    bytes[i] = upper ? Upper(bytes[i]) : Lower(bytes[i]);
  }
  return text.WithBytes(std::move(bytes));
}

}  // namespace varve::jinja
