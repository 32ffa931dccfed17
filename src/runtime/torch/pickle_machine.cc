#include "runtime/torch/pickle_machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace varve {

Result<Pickle> PickleMachine::Run() {
  if (bytes_.size() > kMaxPickleBytes) {
    return Bad(fmt::format("{} bytes > {}", bytes_.size(), kMaxPickleBytes));
  }
  for (;;) {
    at_ = bytes_.size() - reader_.left();
    uint8_t code = 0;
    if (!reader_.Read("opcode", code).ok()) return Bad("ends without STOP");
    const auto op = static_cast<PickleOp>(code);
    if (op == PickleOp::kStop) break;
    Status status = Step(op);
    if (status.ok()) continue;
    // What the byte reader says does not know the place.
    if (status.message().starts_with("pickle: ")) return Bad(status.message().substr(8));
    return status;
  }
  if (reader_.left() != 0) return Bad(fmt::format("{} bytes follow STOP", reader_.left()));
  if (!marks_.empty() || stack_.size() != 1) {
    return Bad(fmt::format("STOP with {} values on the stack, not 1", stack_.size()));
  }
  pickle_.root = stack_.back();
  return std::move(pickle_);
}

Status PickleMachine::Step(PickleOp op) {
  switch (op) {
    case PickleOp::kProto: {
      uint8_t protocol = 0;
      VARVE_RETURN_IF_ERROR(reader_.Read("protocol", protocol));
      if (protocol >= 2 && protocol <= 5) return Status();
      return Refused(fmt::format("protocol {} is not in 2 … 5", protocol));
    }
    case PickleOp::kFrame: {
      uint64_t bytes = 0;
      VARVE_RETURN_IF_ERROR(reader_.Read("frame size", bytes));
      if (bytes <= reader_.left()) return Status();
      return Bad(fmt::format("frame of {} bytes, {} are left", bytes, reader_.left()));
    }
    case PickleOp::kMark:
      if (marks_.size() == kMaxPickleMarks) {
        return Refused(fmt::format("nests deeper than {}", kMaxPickleMarks));
      }
      marks_.push_back(stack_.size());
      return Status();
    case PickleOp::kNone:
    case PickleOp::kNewTrue:
    case PickleOp::kNewFalse:
    case PickleOp::kBinInt:
    case PickleOp::kBinInt1:
    case PickleOp::kBinInt2:
    case PickleOp::kLong1:
    case PickleOp::kBinFloat:
      return StepNumber(op);
    case PickleOp::kBinUnicode:
    case PickleOp::kShortBinUnicode:
    case PickleOp::kBinUnicode8:
    case PickleOp::kGlobal:
    case PickleOp::kStackGlobal:
      return StepText(op);
    case PickleOp::kBinGet:
    case PickleOp::kLongBinGet:
    case PickleOp::kBinPut:
    case PickleOp::kLongBinPut:
    case PickleOp::kMemoize:
      return StepMemo(op);
    case PickleOp::kReduce:
      return Reduce();
    case PickleOp::kBuild:
      return Build();
    case PickleOp::kBinPersId:
      return PersistentId();
    default:
      return StepContainer(op);
  }
}

Status PickleMachine::StepNumber(PickleOp op) {
  PickleValue value;
  value.kind = PickleKind::kInt;
  if (op == PickleOp::kNone) {
    value.kind = PickleKind::kNone;
  } else if (op == PickleOp::kNewTrue || op == PickleOp::kNewFalse) {
    value.kind = PickleKind::kBool;
    value.integer = op == PickleOp::kNewTrue ? 1 : 0;
  } else if (op == PickleOp::kBinInt) {
    int32_t number = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("integer", number));
    value.integer = number;
  } else if (op == PickleOp::kBinInt1) {
    uint8_t number = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("integer", number));
    value.integer = number;
  } else if (op == PickleOp::kBinInt2) {
    uint16_t number = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("integer", number));
    value.integer = number;
  } else if (op == PickleOp::kLong1) {
    uint8_t size = 0;
    std::span<const std::byte> bytes;
    VARVE_RETURN_IF_ERROR(reader_.Read("integer size", size));
    VARVE_RETURN_IF_ERROR(reader_.Take("integer", size, bytes));
    if (size > sizeof(int64_t)) return Refused(fmt::format("integer of {} bytes > 8", size));
    // Two's complement, little-endian: the sign is that of the last byte.
    const bool negative = size > 0 && (bytes.back() & std::byte{0x80}) != std::byte{0};
    value.integer = negative ? -1 : 0;
    std::memcpy(&value.integer, bytes.data(), bytes.size());
  } else {
    std::span<const std::byte> bytes;
    VARVE_RETURN_IF_ERROR(reader_.Take("float", sizeof(double), bytes));
    std::array<std::byte, sizeof(double)> turned;  // the one number that is big-endian
    std::reverse_copy(bytes.begin(), bytes.end(), turned.begin());
    value.kind = PickleKind::kFloat;
    value.real = std::bit_cast<double>(turned);
  }
  return Push(std::move(value));
}

Status PickleMachine::StepText(PickleOp op) {
  if (op == PickleOp::kGlobal) {
    std::string_view module, name;
    VARVE_RETURN_IF_ERROR(ReadLine(module));
    VARVE_RETURN_IF_ERROR(ReadLine(name));
    return Global(module, name);
  }
  if (op == PickleOp::kStackGlobal) {
    PickleId name = 0, module = 0;
    VARVE_RETURN_IF_ERROR(Pop(name));
    VARVE_RETURN_IF_ERROR(Pop(module));
    if (ValueOf(name).kind != PickleKind::kString || ValueOf(module).kind != PickleKind::kString) {
      return Bad("STACK_GLOBAL of something that is no text");
    }
    return Global(ValueOf(module).text, ValueOf(name).text);
  }
  uint64_t size = 0;
  if (op == PickleOp::kShortBinUnicode) {
    uint8_t small = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("text size", small));
    size = small;
  } else if (op == PickleOp::kBinUnicode) {
    uint32_t small = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("text size", small));
    size = small;
  } else {
    VARVE_RETURN_IF_ERROR(reader_.Read("text size", size));
  }
  std::span<const std::byte> bytes;
  VARVE_RETURN_IF_ERROR(reader_.Take("text", size, bytes));
  PickleValue value;
  value.kind = PickleKind::kString;
  value.text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return Push(std::move(value));
}

Status PickleMachine::ReadLine(std::string_view& line) {
  const auto rest = bytes_.last(reader_.left());
  const auto newline = std::find(rest.begin(), rest.end(), std::byte{'\n'});
  if (newline == rest.end()) return Bad("a name without its end");
  std::span<const std::byte> taken;
  const auto size = static_cast<size_t>(newline - rest.begin());
  VARVE_RETURN_IF_ERROR(reader_.Take("name", size + 1, taken));
  line = {reinterpret_cast<const char*>(taken.data()), size};
  return Status();
}

Status PickleMachine::StepContainer(PickleOp op) {
  PickleValue value;
  switch (op) {
    case PickleOp::kEmptyTuple:
      value.kind = PickleKind::kTuple;
      return Push(std::move(value));
    case PickleOp::kEmptyList:
      value.kind = PickleKind::kList;
      return Push(std::move(value));
    case PickleOp::kEmptyDict:
      value.kind = PickleKind::kDict;
      return Push(std::move(value));
    case PickleOp::kTuple1:
      return MakeTuple(1);
    case PickleOp::kTuple2:
      return MakeTuple(2);
    case PickleOp::kTuple3:
      return MakeTuple(3);
    case PickleOp::kTuple:
      value.kind = PickleKind::kTuple;
      VARVE_RETURN_IF_ERROR(PopMarked(value.items));
      return Push(std::move(value));
    case PickleOp::kAppend:
    case PickleOp::kAppends:
      return Extend(PickleKind::kList, PickleKind::kList, false, op == PickleOp::kAppends);
    case PickleOp::kSetItem:
    case PickleOp::kSetItems:
      return Extend(PickleKind::kDict, PickleKind::kOrderedDict, true, op == PickleOp::kSetItems);
    default:
      break;
  }
  const auto code = static_cast<uint8_t>(op);
  const char* name = RefusedPickleOpName(code);
  if (name != nullptr) return Refused(fmt::format("opcode {} is not allowed", name));
  return Bad(fmt::format("opcode 0x{:02x} is not known", code));
}

Status PickleMachine::MakeTuple(size_t count) {
  PickleValue value;
  value.kind = PickleKind::kTuple;
  value.items.resize(count);
  for (size_t i = count; i-- > 0;) VARVE_RETURN_IF_ERROR(Pop(value.items[i]));
  return Push(std::move(value));
}

// Puts one value or pair, or all above the last mark, into the list or dict below them.
Status PickleMachine::Extend(PickleKind kind, PickleKind other, bool pairs, bool marked) {
  std::vector<PickleId> items(pairs ? 2 : 1);
  if (marked) {
    VARVE_RETURN_IF_ERROR(PopMarked(items));
  } else {
    for (size_t i = items.size(); i-- > 0;) VARVE_RETURN_IF_ERROR(Pop(items[i]));
  }
  if (pairs && items.size() % 2 != 0) return Bad("a key without a value");
  if (Available() == 0) return Bad("nothing to put items into");
  PickleValue& target = Top();
  if (target.kind != kind && target.kind != other) {
    return Bad(
        fmt::format("items for {}, not {}", PickleKindName(target.kind), PickleKindName(kind)));
  }
  target.items.insert(target.items.end(), items.begin(), items.end());
  return Status();
}

Status PickleMachine::StepMemo(PickleOp op) {
  if (op == PickleOp::kMemoize) return Memoize(static_cast<uint32_t>(memo_.size()));
  uint32_t index = 0;
  if (op == PickleOp::kBinGet || op == PickleOp::kBinPut) {
    uint8_t small = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("memo index", small));
    index = small;
  } else {
    VARVE_RETURN_IF_ERROR(reader_.Read("memo index", index));
  }
  const bool put = op == PickleOp::kBinPut || op == PickleOp::kLongBinPut;
  return put ? Memoize(index) : Recall(index);
}

Status PickleMachine::Memoize(uint32_t index) {
  if (Available() == 0) return Bad("nothing to memoize");
  if (memo_.size() == kMaxPickleValues) {
    return Refused(fmt::format("more than {} memoized values", kMaxPickleValues));
  }
  memo_[index] = stack_.back();
  return Status();
}

Status PickleMachine::Recall(uint32_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) return Bad(fmt::format("memo {} is empty", index));
  return PushId(found->second);
}

Status PickleMachine::Push(PickleValue value) {
  if (pickle_.values.size() == kMaxPickleValues) {
    return Refused(fmt::format("more than {} values", kMaxPickleValues));
  }
  pickle_.values.push_back(std::move(value));
  return PushId(static_cast<PickleId>(pickle_.values.size() - 1));
}

Status PickleMachine::PushId(PickleId id) {
  if (stack_.size() == kMaxPickleStack) {
    return Refused(fmt::format("more than {} values on the stack", kMaxPickleStack));
  }
  stack_.push_back(id);
  return Status();
}

Status PickleMachine::Pop(PickleId& id) {
  if (Available() == 0) return Bad("takes from an empty stack");
  id = stack_.back();
  stack_.pop_back();
  return Status();
}

Status PickleMachine::PopMarked(std::vector<PickleId>& items) {
  if (marks_.empty()) return Bad("takes up to a mark, and there is none");
  const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
  items.assign(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return Status();
}

}  // namespace varve
