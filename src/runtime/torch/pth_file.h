// PthFile: tensors by name from a file of torch.save, without PyTorch and without running anything.
//
// Such a file is a zip with a pickle (NAME/data.pkl) and the storages of its tensors
// (NAME/data/KEY). See zip_reader.h and pickle_reader.h for what is refused. The bytes must outlive
// the file and its tensors.

#ifndef VARVE_RUNTIME_TORCH_PTH_FILE_H_
#define VARVE_RUNTIME_TORCH_PTH_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/torch/pickle_reader.h"
#include "runtime/torch/zip_reader.h"
#include "varve/status.h"

namespace varve {

enum class PthDtype : uint8_t { kF16, kBF16, kF32, kF64 };
size_t PthDtypeBytes(PthDtype dtype);

// A view of a storage, within it: element (i, j, …) is number offset + i * strides[0] + j *
// strides[1] + … of it.
struct PthTensor {
  PthDtype dtype = PthDtype::kF32;
  std::vector<int64_t> shape;    // each 0 … 2^31 - 1
  std::vector<int64_t> strides;  // in numbers, each >= 0
  int64_t offset = 0;            // in numbers
  std::span<const std::byte> storage;

  double At(int64_t number) const;  // of the storage
};

// Where a value of a state dict lies.
struct PthEntry {
  std::string_view key;
  PickleId value = 0;
  bool operator<(const PthEntry& other) const { return key < other.key; }
};

class PthFile {
 public:
  // `name` is for messages.
  static Result<PthFile> Open(std::span<const std::byte> bytes, const std::string& name);

  const Pickle& pickle() const { return pickle_; }
  // The dict at `path` from the root, by keys; null if there is none.
  const PickleValue* FindDict(std::span<const std::string_view> path) const;
  // Of a dict the entries with text as key, sorted, the one set last where a key comes twice. Keys
  // longer than 256 bytes, which no weight has, are left out: sorting them could take hours.
  std::vector<PthEntry> Entries(const PickleValue& dict) const;
  // `value` must be of this pickle. kInvalidArgument if it is no tensor of floating-point numbers,
  // kDataLoss if its storage is missing, damaged, too short, or not all of it lies within.
  // The checksum of a storage is computed when the first of its tensors is asked for.
  Result<PthTensor> Tensor(const PickleValue& value);

 private:
  PthFile(ZipReader zip, std::string name) : zip_(std::move(zip)), name_(std::move(name)) {}

  Status ReadRecords();
  Result<std::span<const std::byte>> ReadStorage(std::string_view key, int64_t count,
                                                 size_t number_bytes);
  Status Bad(const std::string& message) const;

  ZipReader zip_;
  std::string name_;
  std::string folder_;  // of the zip's entries, with its slash
  Pickle pickle_;
  std::map<std::string_view, std::span<const std::byte>> storages_;  // read so far, by key
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TORCH_PTH_FILE_H_
