#include "runtime/gguf/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/gguf/gguf_values.h"

namespace varve {
namespace {

static_assert(std::endian::native == std::endian::little, "values are used as they are stored");

// Fewest bytes of a key with its value, and of a tensor with one dimension.
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
// Memory is set aside for so many; beyond that, tables grow with what is really read.
constexpr uint64_t kMaxReserved = 4096;

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  Result<GgufPart> Parse() {
    VARVE_RETURN_IF_ERROR(ReadHeader());
    VARVE_RETURN_IF_ERROR(ReadKeys());
    VARVE_RETURN_IF_ERROR(ReadAlignment());
    VARVE_RETURN_IF_ERROR(ReadTensors());
    VARVE_RETURN_IF_ERROR(PlaceTensors());
    return std::move(part_);
  }

 private:
  uint64_t left() const { return bytes_.size() - position_; }

  Status Lies(const std::string& message) const {
    return Status(StatusCode::kDataLoss, fmt::format("{}: {}", name_, message));
  }
  Status EndsIn(const std::string& field) const {
    return Lies(fmt::format("the file ends in {}, at byte {}", field, bytes_.size()));
  }

  template <typename T>
  bool Read(T* value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  bool Skip(uint64_t count) {
    if (left() < count) return false;
    position_ += count;
    return true;
  }

  Status ReadHeader();
  Status ReadKeys();
  Status ReadAlignment();
  Status ReadTensors();
  Status PlaceTensors();

  // `field` names the name: "key 3".
  Status ReadName(const std::string& field, std::string_view* name);
  Status ReadValue(std::string_view key, GgufValue* value);
  Status SkipStrings(std::string_view key, uint64_t count);
  Status CheckBools(std::string_view key, std::span<const std::byte> stored);
  Status ReadArrayHead(std::string_view key, GgufType* type, uint64_t* count);
  Status SkipElements(std::string_view key, GgufType type, uint64_t count, int depth);
  Status ReadTensor(const std::string& field, GgufTensor* tensor, uint64_t* offset);
  // Bytes of the tensor's data, with everything that could overflow checked.
  Result<uint64_t> SizeOf(const GgufTensor& tensor) const;

  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t position_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  std::vector<uint64_t> offsets_;  // of part_.tensors, in the file's data
  GgufPart part_;
};

Status GgufParser::ReadHeader() {
  static constexpr std::string_view kMagic = "GGUF";
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                               std::min<size_t>(bytes_.size(), 8));
  if (!start.starts_with(kMagic)) {
    return InvalidArgument(fmt::format("{}: not a GGUF file: begins with {}, not with \"GGUF\"",
                                       name_, Quoted(start)));
  }
  position_ = kMagic.size();
  uint32_t version = 0;
  if (!Read(&version)) return EndsIn("version");
  if (version != 0 && (version & 0xffff) == 0) {
    return Unimplemented(fmt::format("{}: a big-endian file; only little-endian is read", name_));
  }
  if (version != 2 && version != 3) {
    return Unimplemented(
        fmt::format("{}: GGUF version {}; versions 2 and 3 are read", name_, version));
  }
  part_.version = version;
  if (!Read(&num_tensors_)) return EndsIn("tensor_count");
  if (!Read(&num_keys_)) return EndsIn("metadata_kv_count");
  if (num_keys_ > left() / kMinKeyBytes) {
    return Lies(fmt::format("metadata_kv_count {} > {}, which is what {} bytes can hold", num_keys_,
                            left() / kMinKeyBytes, left()));
  }
  if (num_tensors_ > left() / kMinTensorBytes) {
    return Lies(fmt::format("tensor_count {} > {}, which is what {} bytes can hold", num_tensors_,
                            left() / kMinTensorBytes, left()));
  }
  if (std::max(num_keys_, num_tensors_) > std::numeric_limits<uint32_t>::max()) {
    return Lies(fmt::format("metadata_kv_count {} or tensor_count {} > {}", num_keys_, num_tensors_,
                            std::numeric_limits<uint32_t>::max()));
  }
  return Status();
}

Status GgufParser::ReadName(const std::string& field, std::string_view* name) {
  uint64_t length = 0;
  if (!Read(&length)) return EndsIn(fmt::format("the name of {}", field));
  if (length > kGgufMaxNameBytes) {
    return Lies(fmt::format("{}: name length {} > {}", field, length, kGgufMaxNameBytes));
  }
  const auto* begin = reinterpret_cast<const char*>(bytes_.data() + position_);
  if (!Skip(length)) return EndsIn(fmt::format("the name of {}", field));
  *name = std::string_view(begin, length);
  return Status();
}

Status GgufParser::ReadKeys() {
  std::vector<std::string_view> names;
  names.reserve(std::min(num_keys_, kMaxReserved));
  part_.values.reserve(std::min(num_keys_, kMaxReserved));
  for (uint64_t i = 0; i < num_keys_; ++i) {
    std::string_view key;
    VARVE_RETURN_IF_ERROR(ReadName(fmt::format("key {} of {}", i, num_keys_), &key));
    GgufValue value;
    VARVE_RETURN_IF_ERROR(ReadValue(key, &value));
    names.push_back(key);
    part_.values.push_back(value);
  }
  part_.keys = NameIndex(std::move(names));
  if (const auto twice = part_.keys.Duplicate()) {
    return Lies(fmt::format("key {} is there more than once", Quoted(*twice)));
  }
  return Status();
}

Status GgufParser::ReadValue(std::string_view key, GgufValue* value) {
  uint32_t type = 0;
  if (!Read(&type)) return EndsIn(fmt::format("the type of key {}", Quoted(key)));
  if (type >= kNumGgufTypes) {
    return Lies(fmt::format("key {}: type {} > {}", Quoted(key), type, kNumGgufTypes - 1));
  }
  value->type = static_cast<GgufType>(type);
  value->element_type = value->type;
  if (value->type == GgufType::kArray) {
    VARVE_RETURN_IF_ERROR(ReadArrayHead(key, &value->element_type, &value->count));
  }
  const uint64_t begin = position_;
  VARVE_RETURN_IF_ERROR(SkipElements(key, value->element_type, value->count, 1));
  value->bytes = bytes_.subspan(begin, position_ - begin);
  return Status();
}

Status GgufParser::ReadArrayHead(std::string_view key, GgufType* type, uint64_t* count) {
  uint32_t number = 0;
  if (!Read(&number)) return EndsIn(fmt::format("the element type of key {}", Quoted(key)));
  if (number >= kNumGgufTypes) {
    return Lies(
        fmt::format("key {}: element type {} > {}", Quoted(key), number, kNumGgufTypes - 1));
  }
  *type = static_cast<GgufType>(number);
  if (!Read(count)) return EndsIn(fmt::format("the array length of key {}", Quoted(key)));
  return Status();
}

// Arrays in arrays are the one recursion; its depth is bounded, and every array takes at least
// twelve bytes, so its work is bounded by the file.
Status GgufParser::SkipElements(std::string_view key, GgufType type, uint64_t count, int depth) {
  if (type == GgufType::kString) return SkipStrings(key, count);
  if (type == GgufType::kArray) {
    if (depth >= kGgufMaxArrayDepth) {
      return Lies(
          fmt::format("key {}: arrays nested more than {} deep", Quoted(key), kGgufMaxArrayDepth));
    }
    for (uint64_t i = 0; i < count; ++i) {
      GgufType inner = GgufType::kU8;
      uint64_t inner_count = 0;
      VARVE_RETURN_IF_ERROR(ReadArrayHead(key, &inner, &inner_count));
      VARVE_RETURN_IF_ERROR(SkipElements(key, inner, inner_count, depth + 1));
    }
    return Status();
  }
  const size_t size = GgufScalarBytes(type);
  if (count > left() / size) {
    return Lies(fmt::format("key {}: {} {} values of {} bytes > {} bytes left in the file",
                            Quoted(key), count, GgufTypeName(type), size, left()));
  }
  const std::span<const std::byte> stored = bytes_.subspan(position_, count * size);
  position_ += stored.size();
  return type == GgufType::kBool ? CheckBools(key, stored) : Status();
}

Status GgufParser::SkipStrings(std::string_view key, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    if (!Read(&length)) {
      return EndsIn(fmt::format("the length of string {} of {} of key {}", i, count, Quoted(key)));
    }
    if (!Skip(length)) {
      return Lies(fmt::format("key {}: length {} of string {} of {} > {} bytes left in the file",
                              Quoted(key), length, i, count, left()));
    }
  }
  return Status();
}

Status GgufParser::CheckBools(std::string_view key, std::span<const std::byte> stored) {
  for (size_t i = 0; i < stored.size(); ++i) {
    if (stored[i] > std::byte{1}) {
      return Lies(fmt::format("key {}: bool {} of {} is {}, not 0 or 1", Quoted(key), i,
                              stored.size(), std::to_integer<int>(stored[i])));
    }
  }
  return Status();
}

// A power of two: aligning then never depends on where the file lies in memory. At least 8, as the
// format's document says, so that every tensor can be read as the numbers it holds.
Status GgufParser::ReadAlignment() {
  static constexpr std::string_view kKey = "general.alignment";
  const std::optional<size_t> index = part_.keys.Find(kKey);
  if (!index) return Status();
  const std::optional<int64_t> alignment = IntegerOf(part_.values[*index]);
  if (!alignment || *alignment < 8 || *alignment > kGgufMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return Lies(fmt::format("key {}: {} is not a power of two from 8 to {}", Quoted(kKey),
                            ValueText(part_.values[*index]), kGgufMaxAlignment));
  }
  part_.alignment = static_cast<uint64_t>(*alignment);
  return Status();
}

Status GgufParser::ReadTensors() {
  part_.tensors.reserve(std::min(num_tensors_, kMaxReserved));
  offsets_.reserve(std::min(num_tensors_, kMaxReserved));
  for (uint64_t i = 0; i < num_tensors_; ++i) {
    GgufTensor tensor;
    uint64_t offset = 0;
    VARVE_RETURN_IF_ERROR(
        ReadTensor(fmt::format("tensor {} of {}", i, num_tensors_), &tensor, &offset));
    part_.tensors.push_back(std::move(tensor));
    offsets_.push_back(offset);
  }
  return Status();
}

Status GgufParser::ReadTensor(const std::string& field, GgufTensor* tensor, uint64_t* offset) {
  VARVE_RETURN_IF_ERROR(ReadName(field, &tensor->name));
  const std::string name = fmt::format("tensor {}", Quoted(tensor->name));
  uint32_t num_dims = 0;
  if (!Read(&num_dims)) return EndsIn(fmt::format("the dimensions of {}", name));
  if (num_dims < 1 || num_dims > kGgufMaxDims) {
    return Lies(fmt::format("{}: {} dimensions, not 1 to {}", name, num_dims, kGgufMaxDims));
  }
  for (uint32_t i = 0; i < num_dims; ++i) {
    uint64_t size = 0;
    if (!Read(&size)) return EndsIn(fmt::format("the dimensions of {}", name));
    if (size < 1 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Lies(fmt::format("{}: dims[{}] {} is not 1 to 2^63 - 1", name, i, size));
    }
    tensor->dims.push_back(static_cast<int64_t>(size));
  }
  uint32_t type = 0;
  if (!Read(&type)) return EndsIn(fmt::format("the type of {}", name));
  const std::optional<WeightType> known = WeightTypeFromGgml(type);
  if (!known) {
    return Unimplemented(fmt::format("{}: {}: type {} ({}) is not read; these are: {}", name_, name,
                                     type, GgmlTypeName(type), ReadableTensorTypes()));
  }
  tensor->type = *known;
  if (!Read(offset)) return EndsIn(fmt::format("the offset of {}", name));
  return Status();
}

Result<uint64_t> GgufParser::SizeOf(const GgufTensor& tensor) const {
  const WeightTypeInfo& info = InfoOf(tensor.type);
  if (tensor.dims[0] % info.block_values != 0) {
    return Lies(fmt::format("tensor {}: dims[0] {} is not a multiple of {}, the block of {}",
                            Quoted(tensor.name), tensor.dims[0], info.block_values, info.name));
  }
  uint64_t size = static_cast<uint64_t>(info.block_bytes);
  bool overflow = __builtin_mul_overflow(
      size, static_cast<uint64_t>(tensor.dims[0] / info.block_values), &size);
  for (size_t i = 1; i < tensor.dims.size(); ++i) {
    overflow |= __builtin_mul_overflow(size, static_cast<uint64_t>(tensor.dims[i]), &size);
  }
  if (overflow || size > bytes_.size()) {
    return Lies(fmt::format("tensor {}: [{}] {} > {} bytes of the file", Quoted(tensor.name),
                            fmt::join(tensor.dims, ", "), info.name, bytes_.size()));
  }
  return size;
}

// Tensors that share bytes are refused: no writer makes them (tied weights are one tensor), so they
// are a sign of damage. Gaps between tensors are tolerated.
Status GgufParser::PlaceTensors() {
  if (part_.tensors.empty()) return Status();
  const uint64_t start = AlignUp<uint64_t>(position_, part_.alignment);
  const uint64_t data_bytes = start < bytes_.size() ? bytes_.size() - start : 0;
  for (size_t i = 0; i < part_.tensors.size(); ++i) {
    GgufTensor& tensor = part_.tensors[i];
    VARVE_ASSIGN_OR_RETURN(uint64_t size, SizeOf(tensor));
    if (offsets_[i] % part_.alignment != 0) {
      return Lies(fmt::format("tensor {}: offset {} is not a multiple of the alignment {}",
                              Quoted(tensor.name), offsets_[i], part_.alignment));
    }
    if (offsets_[i] > data_bytes || size > data_bytes - offsets_[i]) {
      return Lies(fmt::format("tensor {}: offset {} and {} bytes > {} bytes of tensor data",
                              Quoted(tensor.name), offsets_[i], size, data_bytes));
    }
    tensor.data = bytes_.subspan(start + offsets_[i], size);
  }
  std::vector<uint32_t> order(part_.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [this](uint32_t a, uint32_t b) { return offsets_[a] < offsets_[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = part_.tensors[order[i - 1]];
    const GgufTensor& after = part_.tensors[order[i]];
    if (after.data.data() < before.data.data() + before.data.size()) {
      return Lies(fmt::format("tensor {}: offset {} lies inside tensor {}", Quoted(after.name),
                              offsets_[order[i]], Quoted(before.name)));
    }
  }
  return Status();
}

}  // namespace

Result<GgufPart> ParseGguf(std::span<const std::byte> bytes, const std::string& name) {
  return GgufParser(bytes, name).Parse();
}

}  // namespace varve
