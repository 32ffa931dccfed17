// PickleMachine: the stack machine behind ReadPickle (pickle_reader.h). Opcodes are in
// pickle_machine.cc; names and what they make are in pickle_objects.cc. One pickle, one machine.

#ifndef VARVE_RUNTIME_TORCH_PICKLE_MACHINE_H_
#define VARVE_RUNTIME_TORCH_PICKLE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "runtime/torch/pickle_opcodes.h"
#include "runtime/torch/pickle_reader.h"

namespace varve {

// Every opcode takes from the bytes and the stack what is there, or fails.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name), reader_("pickle", bytes) {}

  Result<Pickle> Run();

 private:
  Status Step(PickleOp op);
  Status StepNumber(PickleOp op);
  Status StepText(PickleOp op);
  Status StepContainer(PickleOp op);
  Status StepMemo(PickleOp op);

  Status Global(std::string_view module, std::string_view name);
  Status ReadLine(std::string_view& line);
  Status Reduce();
  Status Build();
  Status PersistentId();
  Status MakeTensor(const std::vector<PickleId>& arguments);
  Status MakeTuple(size_t count);
  Status Extend(PickleKind kind, PickleKind other, bool pairs, bool marked);

  Status Push(PickleValue value);
  Status PushId(PickleId id);
  Status Pop(PickleId& id);
  // All above the last mark, which goes.
  Status PopMarked(std::vector<PickleId>& items);
  Status Memoize(uint32_t index);
  Status Recall(uint32_t index);
  PickleValue& Top() { return pickle_.values[stack_.back()]; }
  const PickleValue& ValueOf(PickleId id) const { return pickle_.values[id]; }
  // How much of the stack the code may take: what lies above the last mark.
  size_t Available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  Status Bad(std::string_view message) const {
    return DataLoss(fmt::format("{}: at {}: {}", name_, at_, message));
  }
  Status Refused(std::string_view message) const {
    return Unimplemented(fmt::format("{}: at {}: {}", name_, at_, message));
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  ByteReader reader_;
  size_t at_ = 0;  // of the opcode
  Pickle pickle_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint32_t, PickleId> memo_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TORCH_PICKLE_MACHINE_H_
