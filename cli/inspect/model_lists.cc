#include "cli/inspect/model_lists.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/gguf/gguf_values.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxName = 80;
constexpr size_t kMaxValue = 72;
constexpr size_t kMaxElement = 16;
constexpr uint64_t kShownElements = 8;

std::string TypeText(const GgufValue& value) {
  if (value.type != GgufType::kArray) return std::string(GgufTypeName(value.type));
  return fmt::format("{} {}", value.count, GgufTypeName(value.element_type));
}

// One scalar or string; strings as they are.
Json ScalarJson(const GgufFile& file, std::string_view key, const GgufValue& value) {
  if (value.type == GgufType::kString) return std::string(*file.GetString(key));
  if (value.type == GgufType::kBool) return *file.GetBool(key);
  if (const std::optional<int64_t> integer = IntegerOf(value)) return *integer;
  if (const std::optional<double> number = NumberOf(value)) return *number;
  return Json();
}

// The first elements, each as a scalar of its own.
std::vector<Json> FirstElements(const GgufFile& file, std::string_view key,
                                const GgufValue& value) {
  const uint64_t count = std::min(value.count, kShownElements);
  std::vector<Json> elements;
  if (value.element_type == GgufType::kString) {
    const Result<std::vector<std::string_view>> strings = file.GetStrings(key);
    for (uint64_t i = 0; i < count; ++i) elements.emplace_back(std::string((*strings)[i]));
    return elements;
  }
  const size_t size = GgufScalarBytes(value.element_type);
  if (size == 0) return elements;
  for (uint64_t i = 0; i < count; ++i) {
    GgufValue element;
    element.type = element.element_type = value.element_type;
    element.bytes = value.bytes.subspan(i * size, size);
    if (element.type == GgufType::kBool) {
      elements.emplace_back(element.bytes[0] != std::byte{0});
    } else {
      elements.push_back(ScalarJson(file, key, element));
    }
  }
  return elements;
}

std::string ElementText(const Json& element, GgufType type, size_t max_characters) {
  if (element.is_string()) return Printable(element.get<std::string>(), max_characters);
  // A float has fewer digits than the double it is kept as.
  if (type == GgufType::kF32) return fmt::format("{}", element.get<float>());
  return element.dump();
}

std::string ValueCell(const GgufFile& file, std::string_view key, const GgufValue& value) {
  if (value.type != GgufType::kArray) {
    return ElementText(ScalarJson(file, key, value), value.type, kMaxValue);
  }
  std::string cell;
  for (const Json& element : FirstElements(file, key, value)) {
    if (!cell.empty()) cell += ", ";
    cell += ElementText(element, value.element_type, kMaxElement);
  }
  if (value.count > kShownElements && !cell.empty()) cell += ", …";
  return cell;
}

}  // namespace

TextTable MetadataTable(const GgufFile& file) {
  TextTable table({"key", ">type", "value"});
  for (const std::string_view key : file.keys()) {
    const GgufValue& value = *file.Find(key);
    table.AddRow({Printable(key, kMaxName), TypeText(value), ValueCell(file, key, value)});
  }
  return table;
}

TextTable TensorTable(const GgufFile& file) {
  TextTable table({"tensor", "type", ">columns × rows", ">bytes"});
  for (const GgufTensor& tensor : file.tensors()) {
    table.AddRow({Printable(tensor.name, kMaxName), InfoOf(tensor.type).name,
                  fmt::format("{}", fmt::join(tensor.dims, " × ")),
                  HumanBytes(static_cast<double>(tensor.data.size()))});
  }
  return table;
}

Json MetadataJson(const GgufFile& file) {
  Json rows = Json::array();
  for (const std::string_view key : file.keys()) {
    const GgufValue& value = *file.Find(key);
    Json row = {{"key", std::string(key)}, {"type", GgufTypeName(value.type)}};
    if (value.type == GgufType::kArray) {
      row["type"] = fmt::format("array of {}", GgufTypeName(value.element_type));
      row["count"] = value.count;
      if (value.element_type != GgufType::kArray) row["value"] = FirstElements(file, key, value);
    } else {
      row["value"] = ScalarJson(file, key, value);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json TensorJson(const GgufFile& file) {
  Json rows = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    rows.push_back({{"name", std::string(tensor.name)},
                    {"dims", tensor.dims},
                    {"type", InfoOf(tensor.type).name},
                    {"bytes", tensor.data.size()}});
  }
  return rows;
}

}  // namespace varve::cli
