#include "runtime/gguf/gguf_file.h"

#include <utility>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "base/pinned_name.h"
#include "base/quoted.h"
#include "kernels/content_hash.h"
#include "runtime/gguf/gguf_parser.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/gguf/name_index.h"
#include "runtime/gguf/split_name.h"

namespace varve {
namespace {

constexpr size_t kMinBaseAlignment = 8;  // of memory given to FromMemory; the least of a file

class GgufFileImpl final : public GgufFile {
 public:
  GgufFileImpl(std::string name, GgufPart first)
      : name_(std::move(name)),
        version_(first.version),
        keys_(std::move(first.keys)),
        values_(std::move(first.values)),
        tensors_(std::move(first.tensors)) {}

  const std::string& name() const override { return name_; }
  uint32_t version() const override { return version_; }
  uint64_t file_bytes() const override {
    uint64_t sum = 0;
    for (const std::span<const std::byte> part : parts_) sum += part.size();
    return sum;
  }
  uint64_t ContentHash() const override {
    uint64_t hash = 0;
    for (const std::span<const std::byte> part : parts_)
      hash = HashBytes(part.data(), part.size(), hash);
    return hash;
  }
  Status CheckWhole() const override {
    for (const auto& mapping : mappings_) {
      if (!mapping->damaged()) continue;
      return Status(StatusCode::kDataLoss,
                    fmt::format("{}: was shortened while it was in use", name_));
    }
    return Status();
  }
  std::span<const std::string_view> keys() const override { return keys_.names(); }
  const GgufValue* Find(std::string_view key) const override {
    const std::optional<size_t> index = keys_.Find(key);
    return index ? &values_[*index] : nullptr;
  }
  std::span<const GgufTensor> tensors() const override { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const override {
    const std::optional<size_t> index = tensor_names_.Find(name);
    return index ? &tensors_[*index] : nullptr;
  }

  void AddBytes(std::span<const std::byte> bytes) { parts_.push_back(bytes); }
  void Keep(std::unique_ptr<const MappedFile> mapping) {
    AddBytes(mapping->bytes());
    mappings_.push_back(std::move(mapping));
  }
  // Keys of later parts say how the file was split, nothing about the model.
  void AddTensors(GgufPart part) {
    for (GgufTensor& tensor : part.tensors) tensors_.push_back(std::move(tensor));
  }
  Status IndexTensors() {
    std::vector<std::string_view> names;
    names.reserve(tensors_.size());
    for (const GgufTensor& tensor : tensors_) names.push_back(tensor.name);
    tensor_names_ = NameIndex(std::move(names));
    const auto twice = tensor_names_.Duplicate();
    if (!twice) return Status();
    return Status(StatusCode::kDataLoss,
                  fmt::format("{}: tensor {} is there more than once", name_, Quoted(*twice)));
  }

 private:
  std::string name_;
  uint32_t version_;
  std::vector<std::span<const std::byte>> parts_;
  NameIndex keys_;
  std::vector<GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  NameIndex tensor_names_;
  std::vector<std::unique_ptr<const MappedFile>> mappings_;  // empty over memory
};

struct OpenPart {
  std::unique_ptr<const MappedFile> mapping;
  GgufPart part;
};

Result<OpenPart> OpenAndParse(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<const MappedFile> mapping, MappedFile::Open(path));
  VARVE_ASSIGN_OR_RETURN(GgufPart part, ParseGguf(mapping->bytes(), path));
  return OpenPart{std::move(mapping), std::move(part)};
}

// Parts 1 to split.count - 1, in order, after the first part at `path`.
Status AddOtherParts(const std::string& path, const SplitKeys& first, GgufFileImpl* file) {
  const std::optional<SplitName> split_name = ParseSplitName(path);
  if (!split_name || split_name->number != 1 || split_name->count != first.count) {
    return InvalidArgument(fmt::format(
        "{}: the first of {} parts (split.count); its name must end in {} for the others to be "
        "found",
        path, first.count, PartName("", 1, first.count)));
  }
  for (int64_t i = 1; i < first.count; ++i) {
    const std::string part_path = PartName(split_name->prefix, i + 1, first.count);
    Result<OpenPart> next = OpenAndParse(part_path);
    if (!next.ok()) {
      return Status(next.status().code(),
                    fmt::format("part {} of {}: {}", i + 1, first.count, next.status().message()));
    }
    VARVE_ASSIGN_OR_RETURN(SplitKeys keys, ReadSplitKeys(next->part, part_path));
    VARVE_RETURN_IF_ERROR(CheckPart(keys, i, first, part_path));
    file->Keep(std::move(next->mapping));
    file->AddTensors(std::move(next->part));
  }
  const auto num_tensors = static_cast<int64_t>(file->tensors().size());
  if (first.num_tensors >= 0 && num_tensors != first.num_tensors) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{}: the {} parts hold {} tensors, split.tensors.count says {}", path,
                              first.count, num_tensors, first.num_tensors));
  }
  return Status();
}

}  // namespace

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& pinned_path) {
  VARVE_ASSIGN_OR_RETURN(const PinnedName pinned, ParsePinnedName(pinned_path));
  const std::string& path = pinned.name;
  VARVE_ASSIGN_OR_RETURN(OpenPart first, OpenAndParse(path));
  VARVE_ASSIGN_OR_RETURN(SplitKeys split, ReadSplitKeys(first.part, path));
  if (split.number != 0) {
    const std::optional<SplitName> name = ParseSplitName(path);
    return InvalidArgument(fmt::format("{}: part {} of {}; open the first part{}", path,
                                       split.number + 1, split.count,
                                       name ? ", " + PartName(name->prefix, 1, name->count) : ""));
  }
  auto file = std::make_shared<GgufFileImpl>(path, std::move(first.part));
  file->Keep(std::move(first.mapping));
  if (split.count > 1) VARVE_RETURN_IF_ERROR(AddOtherParts(path, split, file.get()));
  VARVE_RETURN_IF_ERROR(file->IndexTensors());
  if (pinned.hash) VARVE_RETURN_IF_ERROR(pinned.Check(file->ContentHash()));
  return std::shared_ptr<const GgufFile>(std::move(file));
}

Result<std::shared_ptr<const GgufFile>> GgufFile::FromMemory(std::span<const std::byte> bytes,
                                                             std::string name) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kMinBaseAlignment != 0) {
    return InvalidArgument(
        fmt::format("{}: the bytes do not lie at a multiple of {}", name, kMinBaseAlignment));
  }
  VARVE_ASSIGN_OR_RETURN(GgufPart part, ParseGguf(bytes, name));
  VARVE_ASSIGN_OR_RETURN(SplitKeys split, ReadSplitKeys(part, name));
  if (split.count > 1) {
    return InvalidArgument(fmt::format("{}: part {} of {}; a split file must be opened by its path",
                                       name, split.number + 1, split.count));
  }
  auto file = std::make_shared<GgufFileImpl>(std::move(name), std::move(part));
  file->AddBytes(bytes);
  VARVE_RETURN_IF_ERROR(file->IndexTensors());
  return std::shared_ptr<const GgufFile>(std::move(file));
}

}  // namespace varve
