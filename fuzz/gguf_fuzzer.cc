// Model files from strangers: no bytes may crash the reader or any getter. What opens must keep the
// reader's promises: views inside the file, tensors aligned and apart, names that are found again,
// and every matrix readable to its last byte.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/gguf/gguf_values.h"

namespace {

using varve::GgufFile;
using varve::GgufTensor;
using varve::GgufValue;
using varve::Result;

void Require(bool condition) {
  if (!condition) std::abort();
}

// A getter may fail only with kInvalidArgument and a reason.
template <typename T>
void RequireAnswer(const Result<T>& result) {
  if (result.ok()) return;
  Require(!result.status().message().empty());
  Require(result.status().code() == varve::StatusCode::kInvalidArgument);
}

bool IsInside(std::span<const std::byte> inner, std::span<const std::byte> outer) {
  return inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

void ReadKey(const GgufFile& file, std::string_view key, std::span<const std::byte> bytes) {
  const GgufValue* value = file.Find(key);
  Require(value != nullptr && IsInside(value->bytes, bytes));
  Require(!varve::ValueText(*value).empty());
  RequireAnswer(file.GetInt(key, -100, 100));
  RequireAnswer(file.GetFloat(key));
  RequireAnswer(file.GetBool(key));
  RequireAnswer(file.GetString(key));
  RequireAnswer(file.GetFloats(key));
  RequireAnswer(file.GetInts(key));
  RequireAnswer(file.GetIntOr(key, 0, 1, 2));
  RequireAnswer(file.GetFloatOr(key, 0));
  RequireAnswer(file.GetBoolOr(key, false));
  RequireAnswer(file.GetStringOr(key, ""));
  const Result<std::vector<std::string_view>> strings = file.GetStrings(key);
  RequireAnswer(strings);
  if (!strings.ok()) return;
  Require(strings->size() == value->count);
  for (const std::string_view text : *strings) {
    Require(IsInside(std::as_bytes(std::span(text.data(), text.size())), bytes));
  }
}

void ReadTensor(const GgufFile& file, const GgufTensor& tensor, std::span<const std::byte> bytes) {
  Require(file.FindTensor(tensor.name) == &tensor);
  Require(IsInside(tensor.data, bytes) && !tensor.data.empty() && !tensor.dims.empty());
  Require(reinterpret_cast<uintptr_t>(tensor.data.data()) % 8 == 0);
  RequireAnswer(file.GetMatrix(tensor.name, 1, 1));
  const int64_t rows = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
  const Result<varve::WeightMatrix> matrix = file.GetMatrix(tensor.name, rows, tensor.dims[0]);
  RequireAnswer(matrix);
  if (!matrix.ok()) return;
  Require(matrix->bytes() == tensor.data.size());
  const volatile std::byte last = matrix->row(rows - 1)[matrix->row_bytes() - 1];
  static_cast<void>(last);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy: aligned, and with nothing readable past its end.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  Result<std::shared_ptr<const GgufFile>> opened = GgufFile::FromMemory(bytes, "fuzz");
  if (!opened.ok()) {
    Require(opened.status().message().starts_with("fuzz: "));
    Require(opened.status().code() != varve::StatusCode::kInternal);
    return 0;
  }
  const GgufFile& file = **opened;
  Require(file.file_bytes() == size);
  for (const std::string_view key : file.keys()) ReadKey(file, key, bytes);
  for (const GgufTensor& tensor : file.tensors()) ReadTensor(file, tensor, bytes);
  return 0;
}
