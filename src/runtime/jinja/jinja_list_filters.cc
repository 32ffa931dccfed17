#include "runtime/jinja/jinja_list_filters.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/jinja/jinja_evaluator.h"

namespace varve::jinja {
namespace {

Result<Value> Length(BuiltinCall& call) {
  const Value& value = call.input;
  if (value.is(Kind::kText)) {
    VARVE_RETURN_IF_ERROR(call.run.Charge(value.weight()));
    return Value::Int(static_cast<int64_t>(CountCharacters(value.text())));
  }
  if (value.is(Kind::kDict)) return Value::Int(static_cast<int64_t>(value.dict().size()));
  if (value.is(Kind::kList)) return Value::Int(static_cast<int64_t>(value.list().size()));
  if (value.is(Kind::kUndefined)) return Value::Int(0);
  return InvalidArgument(fmt::format("length: a value of type {}", value.type_name()));
}

// Cheap, since templates ask for them in every round of a loop: a list is not copied.
template <bool first>
Result<Value> EndOf(BuiltinCall& call) {
  if (call.input.is(Kind::kList)) {
    const List& items = call.input.list();
    if (items.empty()) return Value();
    return first ? items.front() : items.back();
  }
  VARVE_RETURN_IF_ERROR(call.run.Charge(call.input.weight()));
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(call.input));
  if (items.empty()) return Value();
  return first ? items.front() : items.back();
}

Result<Value> ToList(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(List items, Iterate(call.input));
  return Value::OfList(std::move(items));
}

// "a.b.0" of a value.
Result<Value> GetPath(const Value& value, const Value& path) {
  if (!path.is(Kind::kText)) return GetItem(value, path);
  std::string_view rest = path.text();
  Value found = value;
  while (true) {
    const size_t end = std::min(rest.find('.'), rest.size());
    VARVE_ASSIGN_OR_RETURN(found, GetItem(found, Value::Text(rest.substr(0, end))));
    if (end == rest.size()) return found;
    rest.remove_prefix(end + 1);
  }
}

Result<Value> Join(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(call.input));
  const MarkedText separator = TextOf(call.args[0]);
  VARVE_RETURN_IF_ERROR(call.run.ChargeText(separator.size() * items.size()));
  MarkedText text;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (call.args[1].is(Kind::kText)) {
      VARVE_ASSIGN_OR_RETURN(item, GetPath(item, call.args[1]));
    }
    if (i > 0) text.Append(separator);
    text.Append(TextOf(item));
  }
  return call.run.MakeText(std::move(text));
}

Result<Value> Items(BuiltinCall& call) {
  if (call.input.is(Kind::kUndefined)) return Value::OfList({});
  if (call.input.is(Kind::kDict)) return ItemsOf(call.input);
  return InvalidArgument(fmt::format("items: a value of type {}", call.input.type_name()));
}

Result<Value> Reverse(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(List items, Iterate(call.input));
  std::ranges::reverse(items);
  if (!call.input.is(Kind::kText)) return Value::OfList(std::move(items));
  MarkedText text;
  for (const Value& character : items) text.Append(character.marked());
  return call.run.MakeText(std::move(text));
}

// Sorted without a throw: by insertion into what is sorted, each place found by halves.
Status SortItems(BuiltinCall& call, const Value& attribute, bool fold_case, bool reverse,
                 List* items) {
  std::vector<std::pair<Value, Value>> sorted;  // key, item
  for (Value& item : *items) {
    Value key = item;
    if (attribute.is(Kind::kText) || attribute.is(Kind::kInt)) {
      VARVE_ASSIGN_OR_RETURN(key, GetPath(item, attribute));
    }
    if (fold_case && key.is(Kind::kText)) key = Value::Text(ChangeCase(key.marked(), "lower"));
    size_t low = 0;
    for (size_t high = sorted.size(); low < high;) {
      const size_t middle = low + (high - low) / 2;
      const Value& other = sorted[middle].first;
      VARVE_ASSIGN_OR_RETURN(const bool before, reverse ? IsLess(other, key) : IsLess(key, other));
      if (before) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    VARVE_RETURN_IF_ERROR(call.run.Charge(static_cast<int64_t>(sorted.size() - low) / 16 + 1));
    sorted.insert(sorted.begin() + static_cast<ptrdiff_t>(low), {std::move(key), std::move(item)});
  }
  items->clear();
  for (auto& [key, item] : sorted) items->push_back(std::move(item));
  return {};
}

Result<Value> Sort(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(List items, Iterate(call.input));
  VARVE_RETURN_IF_ERROR(
      SortItems(call, call.args[2], !call.args[1].IsTrue(), call.args[0].IsTrue(), &items));
  return Value::OfList(std::move(items));
}

Result<Value> DictSort(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const Value pairs, Items(call));
  List items = pairs.list();
  const bool by_value = call.args[1].is(Kind::kText) && call.args[1].text() == "value";
  VARVE_RETURN_IF_ERROR(SortItems(call, Value::Int(by_value ? 1 : 0), !call.args[0].IsTrue(),
                                  call.args[2].IsTrue(), &items));
  return Value::OfList(std::move(items));
}

Result<Value> Unique(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(call.input));
  List kept;
  for (const Value& item : items) {
    VARVE_RETURN_IF_ERROR(call.run.Charge(static_cast<int64_t>(kept.size()) + item.weight()));
    const bool known = std::ranges::any_of(kept, [&](const Value& v) { return v.Equals(item); });
    if (!known) kept.push_back(item);
  }
  return Value::OfList(std::move(kept));
}

Result<Value> Sum(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(call.input));
  Value sum = call.args[1].is(Kind::kUndefined) ? Value::Int(0) : call.args[1];
  for (Value item : items) {
    if (call.args[0].is(Kind::kText)) {
      VARVE_ASSIGN_OR_RETURN(item, GetPath(item, call.args[0]));
    }
    VARVE_ASSIGN_OR_RETURN(sum, Operate("+", sum, item));
    if (sum.is(Kind::kText)) VARVE_RETURN_IF_ERROR(call.run.ChargeText(sum.marked().size()));
    VARVE_RETURN_IF_ERROR(call.run.Charge(sum.weight()));
  }
  return sum;
}

template <bool greatest>
Result<Value> Extreme(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(call.input));
  Value best;
  for (const Value& item : items) {
    bool takes = best.is(Kind::kUndefined);
    if (!takes) {
      VARVE_ASSIGN_OR_RETURN(takes, greatest ? IsLess(best, item) : IsLess(item, best));
    }
    if (takes) best = item;
  }
  return best;
}

// The filter or test that the first argument names, with the others as its arguments.
struct NamedBuiltin {
  const Builtin* builtin = nullptr;
  std::vector<Value> args;
};
Result<NamedBuiltin> NamedBy(const BuiltinCall& call, size_t index, bool is_filter) {
  const Value& name = call.args[index];
  const std::string text = TextOf(name).text();
  const Builtin* builtin = is_filter ? FindFilter(text) : FindTest(text);
  if (builtin == nullptr) {
    return Unimplemented(
        fmt::format("the {} {} is not supported", is_filter ? "filter" : "test", Quoted(text)));
  }
  return NamedBuiltin{builtin,
                      {call.args.begin() + static_cast<ptrdiff_t>(index) + 1, call.args.end()}};
}

Result<Value> Map(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(call.input));
  const auto named = [&](std::string_view name) {
    const auto found = std::ranges::find(call.named, name, [](const auto& e) { return e.first; });
    return found == call.named.end() ? Value() : found->second;
  };
  const Value attribute = named("attribute");
  List results;
  if (!attribute.is(Kind::kUndefined)) {
    const Value otherwise = named("default");
    for (const Value& item : items) {
      VARVE_ASSIGN_OR_RETURN(Value value, GetPath(item, attribute));
      if (value.is(Kind::kUndefined)) value = otherwise;
      results.push_back(std::move(value));
    }
    return Value::OfList(std::move(results));
  }
  if (call.args.empty()) return InvalidArgument("map: neither a filter nor attribute=");
  VARVE_ASSIGN_OR_RETURN(const NamedBuiltin filter, NamedBy(call, 0, true));
  for (const Value& item : items) {
    VARVE_ASSIGN_OR_RETURN(Value value,
                           call.run.Call(*filter.builtin, item, filter.args, call.named));
    results.push_back(std::move(value));
  }
  return Value::OfList(std::move(results));
}

// select, reject, selectattr, rejectattr.
template <bool keeps, bool by_attribute>
Result<Value> Select(BuiltinCall& call) {
  VARVE_ASSIGN_OR_RETURN(const List items, Iterate(call.input));
  const size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && call.args.empty()) return InvalidArgument("selectattr: no attribute");
  NamedBuiltin test;
  if (call.args.size() > test_at) {
    VARVE_ASSIGN_OR_RETURN(test, NamedBy(call, test_at, false));
  }
  List kept;
  for (const Value& item : items) {
    Value value = item;
    if constexpr (by_attribute) {
      VARVE_ASSIGN_OR_RETURN(value, GetPath(item, call.args[0]));
    }
    if (test.builtin != nullptr) {
      VARVE_ASSIGN_OR_RETURN(value, call.run.Call(*test.builtin, value, test.args));
    }
    if (value.IsTrue() == keeps) kept.push_back(item);
  }
  return Value::OfList(std::move(kept));
}

constexpr Builtin kListFilters[] = {
    {"length", "", Length, true},
    {"count", "", Length, true},
    {"first", "", EndOf<true>, true},
    {"last", "", EndOf<false>, true},
    {"list", "", ToList},
    {"join", "d attribute", Join},
    {"items", "", Items},
    {"reverse", "", Reverse},
    {"sort", "reverse case_sensitive attribute", Sort},
    {"dictsort", "case_sensitive by reverse", DictSort},
    {"unique", "", Unique},
    {"sum", "attribute start", Sum},
    {"min", "", Extreme<false>},
    {"max", "", Extreme<true>},
    {"map", "*", Map},
    {"select", "*", Select<true, false>},
    {"reject", "*", Select<false, false>},
    {"selectattr", "*", Select<true, true>},
    {"rejectattr", "*", Select<false, true>},
};

}  // namespace

Value ItemsOf(const Value& dict) {
  List pairs;
  for (const auto& [key, value] : dict.dict()) pairs.push_back(Value::OfList({key, value}));
  return Value::OfList(std::move(pairs));
}

const Builtin* FindListFilter(std::string_view name) {
  const auto* const found = std::ranges::find(kListFilters, name, &Builtin::name);
  return found == std::end(kListFilters) ? nullptr : found;
}

}  // namespace varve::jinja
