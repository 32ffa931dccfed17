// PickleReader: the part of Python's pickle format that torch.save needs for a state dict.
//
// A pickle is a program for a stack machine that may name and call any function. This reader runs
// none of them: it knows a list of opcodes and a list of names, builds plain data from them, and
// refuses everything else by its name. What it builds are values in a flat array that refer to one
// another by number, so that neither deep nor circular data costs stack or is ever copied.
//
//   allowed     None, bool, int (64 bits), float, str, tuple, list, dict, OrderedDict, tensors
//   names       collections.OrderedDict, torch._utils._rebuild_tensor_v2, _rebuild_parameter,
//               torch.FloatStorage and its like
//   refused     everything else: other names, INST, OBJ, NEWOBJ, EXT, text opcodes of protocol 0 …
//
// Text refers to the pickle's bytes, which must outlive the values.

#ifndef VARVE_RUNTIME_TORCH_PICKLE_READER_H_
#define VARVE_RUNTIME_TORCH_PICKLE_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve {

inline constexpr size_t kMaxPickleBytes = size_t{64} << 20;
inline constexpr size_t kMaxPickleValues = size_t{1} << 20;
inline constexpr size_t kMaxPickleStack = size_t{1} << 20;
inline constexpr size_t kMaxPickleMarks = 256;  // open at a time: how deep data nests

enum class PickleKind : uint8_t {
  kNone,
  kBool,         // integer
  kInt,          // integer
  kFloat,        // real
  kString,       // text
  kTuple,        // items
  kList,         // items
  kDict,         // items: key, value, key, value … as they were set
  kOrderedDict,  // the same
  kFunction,     // text: one of the names that may be called; integer: which
  kStorageType,  // text: "FloatStorage" …
  kStorage,      // items: storage type, key (string), number of values (int)
  kTensor,       // items: storage, offset (int), shape (tuple of int), strides (tuple of int)
};

// "a dict", "None", …
const char* PickleKindName(PickleKind kind);

using PickleId = uint32_t;

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string_view text;
  std::vector<PickleId> items;

  bool is_dict() const { return kind == PickleKind::kDict || kind == PickleKind::kOrderedDict; }
};

struct Pickle {
  std::vector<PickleValue> values;
  PickleId root = 0;

  const PickleValue& operator[](PickleId id) const { return values[id]; }
  // The value of a string key, the one set last, or null. `dict` must be a dict.
  const PickleValue* Find(const PickleValue& dict, std::string_view key) const;
};

// `name` is for messages, which tell the place. kUnimplemented for what is refused, kDataLoss for
// what no pickle may have. Tensors and storages have items of the kinds above.
Result<Pickle> ReadPickle(std::span<const std::byte> bytes, const std::string& name);

}  // namespace varve

#endif  // VARVE_RUNTIME_TORCH_PICKLE_READER_H_
