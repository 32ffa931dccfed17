#include "runtime/torch/pickle_reader.h"

#include "runtime/torch/pickle_machine.h"

namespace varve {

const char* PickleKindName(PickleKind kind) {
  switch (kind) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return "a bool";
    case PickleKind::kInt:
      return "an int";
    case PickleKind::kFloat:
      return "a float";
    case PickleKind::kString:
      return "text";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kList:
      return "a list";
    case PickleKind::kDict:
      return "a dict";
    case PickleKind::kOrderedDict:
      return "an OrderedDict";
    case PickleKind::kFunction:
      return "a function";
    case PickleKind::kStorageType:
      return "a type of storage";
    case PickleKind::kStorage:
      return "a storage";
    case PickleKind::kTensor:
      return "a tensor";
  }
  return "?";
}

const PickleValue* Pickle::Find(const PickleValue& dict, std::string_view key) const {
  for (size_t i = dict.items.size(); i >= 2; i -= 2) {
    const PickleValue& candidate = values[dict.items[i - 2]];
    if (candidate.kind == PickleKind::kString && candidate.text == key) {
      return &values[dict.items[i - 1]];
    }
  }
  return nullptr;
}

Result<Pickle> ReadPickle(std::span<const std::byte> bytes, const std::string& name) {
  return PickleMachine(bytes, name).Run();
}

}  // namespace varve
