#include <algorithm>
#include <cmath>

#include "runtime/jinja/jinja_builtins.h"
#include "runtime/jinja/jinja_string.h"

namespace varve::jinja {
namespace {

class JsonPrinter {
 public:
  explicit JsonPrinter(const JsonStyle& style) : style_(style) {}

  Status Print(const Value& value);
  MarkedText Take() {
    return any_said_ ? MarkedText::Said(std::move(text_)) : MarkedText(std::move(text_));
  }

 private:
  void String(const MarkedText& text) {
    any_said_ = any_said_ || !text.said().empty();
    AppendJsonString(text.text(), style_.ascii, &text_);
  }
  void NewLine() {
    if (style_.indent < 0) return;
    text_ += '\n';
    text_.append(static_cast<size_t>(style_.indent) * static_cast<size_t>(level_), ' ');
  }
  // Opens, prints each, closes.
  template <typename Items, typename One>
  Status Group(char open, char close, const Items& items, const One& one);

  const JsonStyle& style_;
  std::string text_;
  int level_ = 0;
  bool any_said_ = false;
};

template <typename Items, typename One>
Status JsonPrinter::Group(char open, char close, const Items& items, const One& one) {
  text_ += open;
  ++level_;
  bool first = true;
  for (const auto& item : items) {
    if (!first) text_ += style_.item_separator;
    first = false;
    NewLine();
    VARVE_RETURN_IF_ERROR(one(item));
  }
  --level_;
  if (!first) NewLine();
  text_ += close;
  return {};
}

Status JsonPrinter::Print(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      text_ += "null";
      return {};
    case Kind::kBool:
      text_ += value.boolean() ? "true" : "false";
      return {};
    case Kind::kFloat: {
      const double number = value.number();
      const char* infinite = number < 0 ? "-Infinity" : "Infinity";
      if (std::isfinite(number)) {
        text_ += FloatText(number);
      } else {
        text_ += std::isnan(number) ? "NaN" : infinite;
      }
      return {};
    }
    case Kind::kInt:
      text_ += std::to_string(value.integer());
      return {};
    case Kind::kText:
      String(value.marked());
      return {};
    case Kind::kList:
      return Group('[', ']', value.list(), [this](const Value& item) { return Print(item); });
    case Kind::kDict: {
      Entries entries = value.dict();
      if (style_.sort_keys) {
        std::ranges::stable_sort(entries, [](const auto& a, const auto& b) {
          return TextOf(a.first).text() < TextOf(b.first).text();
        });
      }
      return Group('{', '}', entries, [this](const std::pair<Value, Value>& entry) {
        String(TextOf(entry.first));
        text_ += style_.key_separator;
        return Print(entry.second);
      });
    }
    default:
      return InvalidArgument(std::string("tojson: a value of type ") + value.type_name() +
                             " is no JSON");
  }
}

}  // namespace

Result<MarkedText> JsonText(const Value& value, const JsonStyle& style) {
  JsonPrinter printer(style);
  VARVE_RETURN_IF_ERROR(printer.Print(value));
  return printer.Take();
}

}  // namespace varve::jinja
