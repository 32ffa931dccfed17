#include "tests/gguf_testing.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace varve {
namespace {

template <typename T>
void Append(std::vector<std::byte>* out, T value) {
  out->resize(out->size() + sizeof(T));
  std::memcpy(out->data() + out->size() - sizeof(T), &value, sizeof(T));
}

void AppendString(std::vector<std::byte>* out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  out->insert(out->end(), begin, begin + text.size());
}

void AppendInt(std::vector<std::byte>* out, int64_t value, GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return Append(out, static_cast<uint8_t>(value));
    case GgufType::kU16:
    case GgufType::kI16:
      return Append(out, static_cast<uint16_t>(value));
    case GgufType::kU64:
    case GgufType::kI64:
      return Append(out, static_cast<uint64_t>(value));
    default:
      return Append(out, static_cast<uint32_t>(value));
  }
}

void Pad(std::vector<std::byte>* out, uint64_t alignment) {
  out->resize((out->size() + alignment - 1) / alignment * alignment);
}

uint32_t Number(GgufType type) { return static_cast<uint32_t>(type); }

}  // namespace

uint32_t GgmlNumber(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return 0;
    case WeightType::kF16:
      return 1;
    case WeightType::kBF16:
      return 30;
    case WeightType::kQ8_0:
      return 8;
    case WeightType::kQ4_0:
      return 2;
    case WeightType::kQ4_1:
      return 3;
    case WeightType::kQ5_0:
      return 6;
    case WeightType::kQ5_1:
      return 7;
    case WeightType::kQ4K:
      return 12;
    case WeightType::kQ5K:
      return 13;
    case WeightType::kQ6K:
      return 14;
    case WeightType::kQ2K:
      return 10;
    case WeightType::kQ3K:
      return 11;
    case WeightType::kIQ4_NL:
      return 20;
    case WeightType::kIQ4_XS:
      return 23;
  }
  return 0;
}

std::vector<std::byte> TensorBytes(const std::vector<int64_t>& dims, WeightType type) {
  const WeightTypeInfo& info = InfoOf(type);
  int64_t size = dims[0] / info.block_values * info.block_bytes;
  for (size_t i = 1; i < dims.size(); ++i) size *= dims[i];
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

void GgufBuilder::AddKey(std::string_view key, uint32_t type) {
  AppendString(&keys_, key);
  Append(&keys_, type);
  ++num_keys_;
}

GgufBuilder& GgufBuilder::Version(uint32_t version) {
  version_ = version;
  return *this;
}

GgufBuilder& GgufBuilder::Alignment(uint32_t alignment) {
  alignment_ = alignment;
  return Int("general.alignment", alignment);
}

GgufBuilder& GgufBuilder::Int(std::string_view key, int64_t value, GgufType type) {
  AddKey(key, Number(type));
  AppendInt(&keys_, value, type);
  return *this;
}

GgufBuilder& GgufBuilder::Float(std::string_view key, double value, GgufType type) {
  AddKey(key, Number(type));
  if (type == GgufType::kF64) {
    Append(&keys_, value);
  } else {
    Append(&keys_, static_cast<float>(value));
  }
  return *this;
}

GgufBuilder& GgufBuilder::Bool(std::string_view key, bool value) {
  return Int(key, value ? 1 : 0, GgufType::kBool);
}

GgufBuilder& GgufBuilder::String(std::string_view key, std::string_view value) {
  AddKey(key, Number(GgufType::kString));
  AppendString(&keys_, value);
  return *this;
}

GgufBuilder& GgufBuilder::Ints(std::string_view key, const std::vector<int64_t>& values,
                               GgufType type) {
  AddKey(key, Number(GgufType::kArray));
  Append(&keys_, Number(type));
  Append<uint64_t>(&keys_, values.size());
  for (const int64_t value : values) AppendInt(&keys_, value, type);
  return *this;
}

GgufBuilder& GgufBuilder::Floats(std::string_view key, const std::vector<float>& values) {
  AddKey(key, Number(GgufType::kArray));
  Append(&keys_, Number(GgufType::kF32));
  Append<uint64_t>(&keys_, values.size());
  for (const float value : values) Append(&keys_, value);
  return *this;
}

GgufBuilder& GgufBuilder::Bools(std::string_view key, const std::vector<bool>& values) {
  return Ints(key, {values.begin(), values.end()}, GgufType::kBool);
}

GgufBuilder& GgufBuilder::Strings(std::string_view key, const std::vector<std::string>& values) {
  AddKey(key, Number(GgufType::kArray));
  Append(&keys_, Number(GgufType::kString));
  Append<uint64_t>(&keys_, values.size());
  for (const std::string& value : values) AppendString(&keys_, value);
  return *this;
}

GgufBuilder& GgufBuilder::Raw(std::string_view key, uint32_t type,
                              std::span<const std::byte> bytes) {
  AddKey(key, type);
  keys_.insert(keys_.end(), bytes.begin(), bytes.end());
  return *this;
}

GgufBuilder& GgufBuilder::Tensor(std::string_view name, const std::vector<int64_t>& dims,
                                 WeightType type, std::span<const std::byte> bytes) {
  return RawTensor(name, dims, GgmlNumber(type), bytes);
}

GgufBuilder& GgufBuilder::TensorF32(std::string_view name, const std::vector<int64_t>& dims,
                                    const std::vector<float>& values) {
  return Tensor(name, dims, WeightType::kF32, std::as_bytes(std::span(values)));
}

GgufBuilder& GgufBuilder::RawTensor(std::string_view name, const std::vector<int64_t>& dims,
                                    uint32_t type, std::span<const std::byte> bytes,
                                    std::optional<uint64_t> offset) {
  Pad(&data_, alignment_);
  AppendString(&tensors_, name);
  Append(&tensors_, static_cast<uint32_t>(dims.size()));
  for (const int64_t dim : dims) Append(&tensors_, dim);
  Append(&tensors_, type);
  Append<uint64_t>(&tensors_, offset.value_or(data_.size()));
  data_.insert(data_.end(), bytes.begin(), bytes.end());
  ++num_tensors_;
  return *this;
}

std::vector<std::byte> GgufBuilder::Build() const {
  std::vector<std::byte> file;
  Append<uint32_t>(&file, 0x46554747);  // "GGUF"
  Append(&file, version_);
  Append(&file, num_tensors_);
  Append(&file, num_keys_);
  file.insert(file.end(), keys_.begin(), keys_.end());
  file.insert(file.end(), tensors_.begin(), tensors_.end());
  if (data_.empty()) return file;
  Pad(&file, alignment_);
  file.insert(file.end(), data_.begin(), data_.end());
  return file;
}

void GgufBuilder::Write(const std::string& path) const { WriteBytes(path, Build()); }

void WriteBytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file.good()) {
    std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
    std::abort();
  }
}

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "varve_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    std::fprintf(stderr, "%s: cannot be made\n", name.c_str());
    std::abort();
  }
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace varve
