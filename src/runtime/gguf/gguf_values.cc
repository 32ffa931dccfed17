#include "runtime/gguf/gguf_values.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"

namespace varve {
namespace {

template <typename T>
T Load(const std::byte* stored) {
  T value;
  std::memcpy(&value, stored, sizeof(T));
  return value;
}

// Calls visit(number) with element `index`, in its own type, of a value whose (element) type is a
// number. False, without a call, for bools, strings and arrays.
template <typename Visitor>
bool VisitNumber(const GgufValue& value, uint64_t index, const Visitor& visit) {
  const std::byte* stored = value.bytes.data() + index * GgufScalarBytes(value.element_type);
  switch (value.element_type) {
    case GgufType::kU8:
      visit(Load<uint8_t>(stored));
      return true;
    case GgufType::kI8:
      visit(Load<int8_t>(stored));
      return true;
    case GgufType::kU16:
      visit(Load<uint16_t>(stored));
      return true;
    case GgufType::kI16:
      visit(Load<int16_t>(stored));
      return true;
    case GgufType::kU32:
      visit(Load<uint32_t>(stored));
      return true;
    case GgufType::kI32:
      visit(Load<int32_t>(stored));
      return true;
    case GgufType::kF32:
      visit(Load<float>(stored));
      return true;
    case GgufType::kU64:
      visit(Load<uint64_t>(stored));
      return true;
    case GgufType::kI64:
      visit(Load<int64_t>(stored));
      return true;
    case GgufType::kF64:
      visit(Load<double>(stored));
      return true;
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
      return false;
  }
  return false;
}

std::optional<int64_t> IntegerAt(const GgufValue& value, uint64_t index) {
  std::optional<int64_t> integer;
  VisitNumber(value, index, [&](auto number) {
    if constexpr (std::is_integral_v<decltype(number)>) {
      if (std::in_range<int64_t>(number)) integer = static_cast<int64_t>(number);
    }
  });
  return integer;
}

std::optional<double> NumberAt(const GgufValue& value, uint64_t index) {
  std::optional<double> result;
  VisitNumber(value, index, [&](auto number) { result = static_cast<double>(number); });
  return result;
}

Status Missing(const GgufFile& file, std::string_view key) {
  return NotFound(fmt::format("{}: key {} is missing", file.name(), Quoted(key)));
}

Status Mismatch(const GgufFile& file, std::string_view key, const GgufValue& value,
                std::string_view wanted) {
  return InvalidArgument(fmt::format("{}: key {}: {}, expected {}", file.name(), Quoted(key),
                                     ValueText(value), wanted));
}

bool IsArray(const GgufValue& value) { return value.type == GgufType::kArray; }

std::string_view StringIn(const GgufValue& value) {
  const auto length = Load<uint64_t>(value.bytes.data());
  return {reinterpret_cast<const char*>(value.bytes.data() + sizeof(length)), length};
}

// The default where the key is missing, whatever Get says where it is there.
template <typename T, typename Get>
Result<T> GetOr(const GgufFile& file, std::string_view key, T missing, const Get& get) {
  if (file.Find(key) == nullptr) return missing;
  return get();
}

}  // namespace

std::optional<int64_t> IntegerOf(const GgufValue& value) {
  return IsArray(value) ? std::nullopt : IntegerAt(value, 0);
}

std::optional<double> NumberOf(const GgufValue& value) {
  return IsArray(value) ? std::nullopt : NumberAt(value, 0);
}

std::string ValueText(const GgufValue& value) {
  const std::string_view type = GgufTypeName(value.element_type);
  if (IsArray(value)) return fmt::format("array of {} {} values", value.count, type);
  if (value.type == GgufType::kString) return fmt::format("string {}", Quoted(StringIn(value)));
  if (value.type == GgufType::kBool) {
    return value.bytes[0] == std::byte{0} ? "bool false" : "bool true";
  }
  std::string text;
  VisitNumber(value, 0, [&](auto number) { text = fmt::format("{} {}", type, number); });
  return text;
}

Result<int64_t> GgufFile::GetInt(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  const std::optional<int64_t> integer = IntegerOf(*value);
  if (!integer || *integer < min || *integer > max) {
    return Mismatch(*this, key, *value, fmt::format("an integer from {} to {}", min, max));
  }
  return *integer;
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  const std::optional<double> number = NumberOf(*value);
  if (!number) return Mismatch(*this, key, *value, "a number");
  return *number;
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  if (value->type != GgufType::kBool) return Mismatch(*this, key, *value, "a bool");
  return value->bytes[0] != std::byte{0};
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  if (value->type != GgufType::kString) return Mismatch(*this, key, *value, "a string");
  return StringIn(*value);
}

Result<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  if (!IsArray(*value) || value->element_type != GgufType::kString) {
    return Mismatch(*this, key, *value, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  const std::byte* next = value->bytes.data();
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = Load<uint64_t>(next);
    next += sizeof(length);
    strings.emplace_back(reinterpret_cast<const char*>(next), length);
    next += length;
  }
  return strings;
}

Result<std::vector<float>> GgufFile::GetFloats(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  if (!IsArray(*value) || GgufScalarBytes(value->element_type) == 0 ||
      value->element_type == GgufType::kBool) {
    return Mismatch(*this, key, *value, "an array of numbers");
  }
  std::vector<float> floats(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const double number = NumberAt(*value, i).value_or(0);
    // The conversion of a finite double that no float can hold is undefined.
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (number > kLargest || number < -kLargest) {
      const float infinity = std::numeric_limits<float>::infinity();
      floats[i] = number > 0 ? infinity : -infinity;
    } else {
      floats[i] = static_cast<float>(number);
    }
  }
  return floats;
}

Result<std::vector<int32_t>> GgufFile::GetInts(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(*this, key);
  const GgufType type = value->element_type;
  if (!IsArray(*value) || GgufScalarBytes(type) == 0 || type == GgufType::kBool ||
      type == GgufType::kF32 || type == GgufType::kF64) {
    return Mismatch(*this, key, *value, "an array of integers");
  }
  std::vector<int32_t> integers(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> integer = IntegerAt(*value, i);
    if (!integer || !std::in_range<int32_t>(*integer)) {
      return InvalidArgument(
          fmt::format("{}: key {}: element {} does not fit into 32 bits", name(), Quoted(key), i));
    }
    integers[i] = static_cast<int32_t>(*integer);
  }
  return integers;
}

Result<int64_t> GgufFile::GetIntOr(std::string_view key, int64_t min, int64_t max,
                                   int64_t missing) const {
  return GetOr(*this, key, missing, [&] { return GetInt(key, min, max); });
}

Result<double> GgufFile::GetFloatOr(std::string_view key, double missing) const {
  return GetOr(*this, key, missing, [&] { return GetFloat(key); });
}

Result<bool> GgufFile::GetBoolOr(std::string_view key, bool missing) const {
  return GetOr(*this, key, missing, [&] { return GetBool(key); });
}

Result<std::string_view> GgufFile::GetStringOr(std::string_view key,
                                               std::string_view missing) const {
  return GetOr(*this, key, missing, [&] { return GetString(key); });
}

Status GgufFile::InFile(const Status& status) const {
  const std::string prefix = name() + ": ";
  if (status.ok() || status.message().starts_with(prefix)) return status;
  return Status(status.code(), prefix + status.message());
}

Result<WeightMatrix> GgufFile::GetMatrix(std::string_view tensor_name, int64_t rows,
                                         int64_t cols) const {
  const GgufTensor* tensor = FindTensor(tensor_name);
  if (tensor == nullptr) {
    return NotFound(fmt::format("{}: tensor {} is missing", name(), Quoted(tensor_name)));
  }
  // Dimensions of size one behind the second change nothing.
  int64_t stored_rows = 1;
  bool is_matrix = true;
  for (size_t i = 1; i < tensor->dims.size(); ++i) {
    if (i == 1) stored_rows = tensor->dims[i];
    if (i > 1 && tensor->dims[i] != 1) is_matrix = false;
  }
  if (!is_matrix || tensor->dims[0] != cols || stored_rows != rows) {
    const std::string wanted =
        rows == 1 ? fmt::format("[{}]", cols) : fmt::format("[{}, {}]", cols, rows);
    return InvalidArgument(fmt::format("{}: tensor {} is [{}], expected {} (columns first)", name(),
                                       Quoted(tensor_name), fmt::join(tensor->dims, ", "), wanted));
  }
  WeightMatrix matrix;
  matrix.type = tensor->type;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.data = tensor->data.data();
  return matrix;
}

}  // namespace varve
