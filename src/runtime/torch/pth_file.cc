#include "runtime/torch/pth_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/half.h"

namespace varve {
namespace {

constexpr std::string_view kPickleName = "data.pkl";
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxKeyBytes = 256;
constexpr int64_t kMaxExtent = 0x7FFFFFFF;

std::optional<PthDtype> DtypeOf(std::string_view storage_type) {
  if (storage_type == "HalfStorage") return PthDtype::kF16;
  if (storage_type == "BFloat16Storage") return PthDtype::kBF16;
  if (storage_type == "FloatStorage") return PthDtype::kF32;
  if (storage_type == "DoubleStorage") return PthDtype::kF64;
  return std::nullopt;
}

template <typename T>
T Load(std::span<const std::byte> bytes, int64_t number) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(number) * sizeof(T), sizeof(T));
  return value;
}

// The number of the last element, or nothing if it is not within `count` numbers. A tensor without
// elements has none; that is fine.
bool LiesWithin(const PthTensor& tensor, int64_t count) {
  int64_t last = tensor.offset;
  if (last < 0 || last > count) return false;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return true;
    int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  return last < count;
}

}  // namespace

size_t PthDtypeBytes(PthDtype dtype) {
  if (dtype == PthDtype::kF64) return 8;
  return dtype == PthDtype::kF32 ? 4 : 2;
}

double PthTensor::At(int64_t number) const {
  switch (dtype) {
    case PthDtype::kF16:
      return F16ToF32(Load<uint16_t>(storage, number));
    case PthDtype::kBF16:
      return BF16ToF32(Load<uint16_t>(storage, number));
    case PthDtype::kF32:
      return Load<float>(storage, number);
    case PthDtype::kF64:
      break;
  }
  return Load<double>(storage, number);
}

Status PthFile::Bad(const std::string& message) const {
  return DataLoss(fmt::format("{}: {}", name_, message));
}

Result<PthFile> PthFile::Open(std::span<const std::byte> bytes, const std::string& name) {
  Result<ZipReader> zip = ZipReader::Open(bytes, name);
  if (!zip.ok()) {
    // The file of PyTorch before 1.6 is no zip but pickles in a row; the first is a number.
    constexpr unsigned char kOldMagic[] = {0x80, 0x02, 0x8A, 0x0A, 0x6C, 0xFC, 0x9C};
    if (bytes.size() > sizeof(kOldMagic) &&
        std::memcmp(bytes.data(), kOldMagic, sizeof(kOldMagic)) == 0) {
      return Unimplemented(fmt::format(
          "{}: is in the form of PyTorch before 1.6, no zip; torch.save it again", name));
    }
    return zip.status();
  }
  PthFile file(std::move(*zip), name);
  VARVE_RETURN_IF_ERROR(file.ReadRecords());
  return file;
}

Status PthFile::ReadRecords() {
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : zip_.entries()) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string_view::npos || entry.name.substr(slash + 1) != kPickleName) continue;
    if (pickle != nullptr) return Bad("has two entries FOLDER/data.pkl");
    pickle = &entry;
    folder_ = entry.name.substr(0, slash + 1);
  }
  if (pickle == nullptr) {
    return InvalidArgument(
        fmt::format("{}: is no file of torch.save: a zip without an entry FOLDER/data.pkl", name_));
  }
  if (const ZipEntry* order = zip_.Find(folder_ + "byteorder"); order != nullptr) {
    VARVE_ASSIGN_OR_RETURN(const auto text, zip_.Read(*order));
    const std::string_view said(reinterpret_cast<const char*>(text.data()), text.size());
    if (said == "big") return Unimplemented(fmt::format("{}: its numbers are big-endian", name_));
    if (said != "little") return Bad("its byteorder is neither little nor big");
  }
  VARVE_ASSIGN_OR_RETURN(const auto bytes, zip_.Read(*pickle));
  VARVE_ASSIGN_OR_RETURN(Pickle read, ReadPickle(bytes, fmt::format("{}: {}", name_, kPickleName)));
  pickle_ = std::move(read);
  return Status();
}

const PickleValue* PthFile::FindDict(std::span<const std::string_view> path) const {
  const PickleValue* value = &pickle_[pickle_.root];
  for (const std::string_view key : path) {
    if (!value->is_dict()) return nullptr;
    value = pickle_.Find(*value, key);
    if (value == nullptr) return nullptr;
  }
  return value->is_dict() ? value : nullptr;
}

std::vector<PthEntry> PthFile::Entries(const PickleValue& dict) const {
  std::vector<PthEntry> entries;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& key = pickle_[dict.items[i]];
    if (key.kind != PickleKind::kString || key.text.size() > kMaxKeyBytes) continue;
    entries.push_back({key.text, dict.items[i + 1]});
  }
  std::stable_sort(entries.begin(), entries.end());
  // Backwards, so that of equal keys the last is the one that stays.
  const auto same = [](const PthEntry& a, const PthEntry& b) { return a.key == b.key; };
  const auto kept = std::unique(entries.rbegin(), entries.rend(), same);
  entries.erase(entries.begin(), kept.base());
  return entries;
}

Result<PthTensor> PthFile::Tensor(const PickleValue& value) {
  if (value.kind != PickleKind::kTensor) {
    return InvalidArgument(
        fmt::format("{}: is {}, not a tensor", name_, PickleKindName(value.kind)));
  }
  const PickleValue& storage = pickle_[value.items[0]];
  const std::string_view type = pickle_[storage.items[0]].text;
  const std::string_view key = pickle_[storage.items[1]].text;
  const int64_t count = pickle_[storage.items[2]].integer;
  const std::optional<PthDtype> dtype = DtypeOf(type);
  if (!dtype.has_value()) {
    return InvalidArgument(
        fmt::format("{}: is of a {}, not of f16, bf16, f32 or f64", name_, type));
  }
  PthTensor tensor;
  tensor.dtype = *dtype;
  tensor.offset = pickle_[value.items[1]].integer;
  for (const PickleId id : pickle_[value.items[2]].items) {
    tensor.shape.push_back(pickle_[id].integer);
  }
  for (const PickleId id : pickle_[value.items[3]].items) {
    tensor.strides.push_back(pickle_[id].integer);
  }
  if (tensor.shape.size() > kMaxDims || tensor.strides.size() != tensor.shape.size()) {
    return Bad(fmt::format("tensor of {} dimensions (limit {}) with {} strides",
                           tensor.shape.size(), kMaxDims, tensor.strides.size()));
  }
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] < 0 || tensor.shape[i] > kMaxExtent) {
      return Bad(
          fmt::format("size {} of dimension {} is not in 0 … {}", tensor.shape[i], i, kMaxExtent));
    }
    if (tensor.strides[i] < 0) {
      return Bad(fmt::format("stride {} of dimension {} < 0", tensor.strides[i], i));
    }
  }
  VARVE_ASSIGN_OR_RETURN(const auto content, ReadStorage(key, count, PthDtypeBytes(*dtype)));
  tensor.storage = content;
  if (LiesWithin(tensor, count)) return tensor;
  return Bad(fmt::format("offset {} and its strides lead out of a storage of {} numbers",
                         tensor.offset, count));
}

Result<std::span<const std::byte>> PthFile::ReadStorage(std::string_view key, int64_t count,
                                                        size_t number_bytes) {
  const ZipEntry* entry = zip_.Find(fmt::format("{}data/{}", folder_, key));
  if (entry == nullptr) return Bad("its storage is not in the zip");
  // Division, because the count may be anything.
  if (entry->bytes % number_bytes != 0 || count < 0 ||
      static_cast<uint64_t>(count) != entry->bytes / number_bytes) {
    return Bad(fmt::format("its storage has {} bytes, not {} numbers of {} bytes", entry->bytes,
                           count, number_bytes));
  }
  if (const auto found = storages_.find(key); found != storages_.end()) return found->second;
  auto content = zip_.Read(*entry);
  if (content.ok()) storages_.emplace(key, *content);
  return content;
}

}  // namespace varve
