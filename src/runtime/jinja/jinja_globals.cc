// Functions that stand alone: range, namespace, dict, and those that chat templates add.

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/jinja/jinja_evaluator.h"

namespace varve::jinja {
namespace {

constexpr int64_t kMaxRange = 1 << 17;

Result<Value> Range(BuiltinCall& call) {
  if (call.args[0].is(Kind::kUndefined)) return InvalidArgument("range: no end");
  for (const Value& bound : call.args) {
    if (bound.is(Kind::kInt) || bound.is(Kind::kUndefined)) continue;
    return InvalidArgument(fmt::format("range: a {}, no integer", bound.type_name()));
  }
  const bool has_begin = call.args[1].is(Kind::kInt);
  const int64_t begin = has_begin ? call.args[0].integer() : 0;
  const int64_t end = call.args[has_begin ? 1 : 0].integer();
  const int64_t step = call.args[2].is(Kind::kInt) ? call.args[2].integer() : 1;
  if (step == 0) return InvalidArgument("range: steps of 0");
  List items;
  int64_t at = begin;
  while (step > 0 ? at < end : at > end) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      return InvalidArgument(fmt::format("range: more than {} numbers", kMaxRange));
    }
    items.push_back(Value::Int(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  VARVE_RETURN_IF_ERROR(call.run.Charge(static_cast<int64_t>(items.size())));
  return Value::OfList(std::move(items));
}

Result<Value> MakeNamespace(BuiltinCall& call) {
  NamedValues values;
  for (const Value& dict : call.args) {
    if (!dict.is(Kind::kDict)) return InvalidArgument("namespace: an argument without a name");
    for (const auto& [key, value] : dict.dict()) values.emplace_back(TextOf(key).text(), value);
  }
  for (auto& [name, value] : call.named) values.emplace_back(name, std::move(value));
  return call.run.MakeNamespace(std::move(values));
}

Result<Value> MakeDict(BuiltinCall& call) {
  Entries entries;
  if (!call.args.empty()) {
    if (!call.args[0].is(Kind::kDict)) return Unimplemented("dict() of a list is not supported");
    entries = call.args[0].dict();
  }
  for (auto& [name, value] : call.named) {
    const auto old = std::ranges::find_if(entries, [&, &key = name](const auto& entry) {
      return entry.first.is(Kind::kText) && entry.first.text() == key;
    });
    if (old == entries.end()) {
      entries.emplace_back(Value::Text(name), std::move(value));
    } else {
      old->second = std::move(value);
    }
  }
  return Value::OfDict(std::move(entries));
}

Result<Value> RaiseException(BuiltinCall& call) {
  return InvalidArgument(
      fmt::format("the template refuses: {}", Printable(TextOf(call.args[0]).text(), 200)));
}

Result<Value> FormatNow(BuiltinCall& call) {
  const MarkedText marked = TextOf(call.args[0]);
  const std::string& format = marked.text();
  if (format.empty()) return Value::Text("");
  const std::time_t now = call.run.now();
  std::tm parts{};
  std::array<char, 256> buffer{};
  if (localtime_r(&now, &parts) == nullptr) return InvalidArgument("strftime_now: no time");
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
  if (size == 0) return InvalidArgument(fmt::format("strftime_now: {}: too long", Quoted(format)));
  std::string text(buffer.data(), size);
  // Somebody's words could be the format.
  return Value::Text(marked.said().empty() ? MarkedText(std::move(text))
                                           : MarkedText::Said(std::move(text)));
}

constexpr Builtin kGlobals[] = {
    {"range", "start stop step", Range},
    {"namespace", "*", MakeNamespace},
    {"dict", "*", MakeDict},
    {"raise_exception", "message", RaiseException},
    {"strftime_now", "format", FormatNow},
};

}  // namespace

const Builtin* FindGlobal(std::string_view name) {
  const auto* const found = std::ranges::find(kGlobals, name, &Builtin::name);
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace varve::jinja
