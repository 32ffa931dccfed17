// What a pickle's names stand for, and what calling them makes: plain data.

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/quoted.h"
#include "runtime/torch/pickle_machine.h"

namespace varve {
namespace {

enum class Function : int64_t { kOrderedDict, kRebuildTensor, kRebuildParameter };

struct AllowedName {
  std::string_view module, name;
  Function function;
};
constexpr AllowedName kFunctions[] = {
    {"collections", "OrderedDict", Function::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", Function::kRebuildTensor},
    {"torch._utils", "_rebuild_parameter", Function::kRebuildParameter},
};
constexpr std::string_view kStorageTypes[] = {
    "FloatStorage", "HalfStorage",  "BFloat16Storage", "DoubleStorage", "LongStorage",
    "IntStorage",   "ShortStorage", "CharStorage",     "ByteStorage",   "BoolStorage"};

}  // namespace

// The only place where names become something: a number of this list, or a type of numbers.
Status PickleMachine::Global(std::string_view module, std::string_view name) {
  PickleValue value;
  for (const AllowedName& allowed : kFunctions) {
    if (module != allowed.module || name != allowed.name) continue;
    value.kind = PickleKind::kFunction;
    value.text = allowed.name;
    value.integer = static_cast<int64_t>(allowed.function);
    return Push(std::move(value));
  }
  for (const std::string_view type : kStorageTypes) {
    if (module != "torch" || name != type) continue;
    value.kind = PickleKind::kStorageType;
    value.text = type;
    return Push(std::move(value));
  }
  return Refused(
      fmt::format("{}.{} is not allowed: only tensors, dicts, lists, text and numbers are",
                  Printable(module), Printable(name)));
}

Status PickleMachine::Reduce() {
  PickleId arguments = 0, function = 0;
  VARVE_RETURN_IF_ERROR(Pop(arguments));
  VARVE_RETURN_IF_ERROR(Pop(function));
  if (ValueOf(function).kind != PickleKind::kFunction) {
    return Bad(fmt::format("REDUCE calls {}", PickleKindName(ValueOf(function).kind)));
  }
  if (ValueOf(arguments).kind != PickleKind::kTuple) {
    return Bad(fmt::format("REDUCE with {}, not a tuple", PickleKindName(ValueOf(arguments).kind)));
  }
  const std::vector<PickleId>& items = ValueOf(arguments).items;
  switch (static_cast<Function>(ValueOf(function).integer)) {
    case Function::kOrderedDict: {
      if (!items.empty())
        return Refused(fmt::format("OrderedDict with {} arguments", items.size()));
      PickleValue value;
      value.kind = PickleKind::kOrderedDict;
      return Push(std::move(value));
    }
    case Function::kRebuildTensor:
      return MakeTensor(items);
    case Function::kRebuildParameter:
      if (items.empty() || ValueOf(items[0]).kind != PickleKind::kTensor) {
        return Bad("_rebuild_parameter without a tensor");
      }
      return PushId(items[0]);
  }
  return Bad("REDUCE calls nothing that is known");
}

// (storage, offset, shape, strides, requires_grad, hooks[, metadata]); the last say nothing of the
// numbers.
Status PickleMachine::MakeTensor(const std::vector<PickleId>& arguments) {
  if (arguments.size() < 4 || arguments.size() > 7) {
    return Bad(fmt::format("tensor of {} arguments, not 4 … 7", arguments.size()));
  }
  const auto is_shape = [&](PickleId id) {
    const PickleValue& value = ValueOf(id);
    return value.kind == PickleKind::kTuple &&
           std::all_of(value.items.begin(), value.items.end(),
                       [&](PickleId item) { return ValueOf(item).kind == PickleKind::kInt; });
  };
  if (ValueOf(arguments[0]).kind != PickleKind::kStorage) return Bad("tensor without a storage");
  if (ValueOf(arguments[1]).kind != PickleKind::kInt) return Bad("tensor without an offset");
  if (!is_shape(arguments[2])) return Bad("tensor without a shape");
  if (!is_shape(arguments[3])) return Bad("tensor without strides");
  PickleValue value;
  value.kind = PickleKind::kTensor;
  value.items.assign(arguments.begin(), arguments.begin() + 4);
  return Push(std::move(value));
}

// An OrderedDict that is a state dict has attributes (_metadata: versions of modules): they say
// nothing of the numbers. Nothing else has any.
Status PickleMachine::Build() {
  PickleId state = 0;
  VARVE_RETURN_IF_ERROR(Pop(state));
  if (Available() == 0) return Bad("BUILD of nothing");
  if (Top().kind != PickleKind::kOrderedDict) {
    return Refused(fmt::format("BUILD of {} is not allowed", PickleKindName(Top().kind)));
  }
  if (ValueOf(state).is_dict()) return Status();
  return Bad(fmt::format("BUILD with {}, not a dict", PickleKindName(ValueOf(state).kind)));
}

// ("storage", type, key, location, number of values)
Status PickleMachine::PersistentId() {
  PickleId id = 0;
  VARVE_RETURN_IF_ERROR(Pop(id));
  const PickleValue& tuple = ValueOf(id);
  constexpr PickleKind kKinds[] = {PickleKind::kString, PickleKind::kStorageType,
                                   PickleKind::kString, PickleKind::kString, PickleKind::kInt};
  bool right = tuple.kind == PickleKind::kTuple && tuple.items.size() == std::size(kKinds);
  for (size_t i = 0; right && i < std::size(kKinds); ++i) {
    right = ValueOf(tuple.items[i]).kind == kKinds[i];
  }
  if (!right || ValueOf(tuple.items[0]).text != "storage") {
    return Bad("BINPERSID of something that is no storage");
  }
  PickleValue value;
  value.kind = PickleKind::kStorage;
  value.items = {tuple.items[1], tuple.items[2], tuple.items[4]};
  return Push(std::move(value));
}

}  // namespace varve
