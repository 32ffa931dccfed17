// Reads OpenAI's checkpoints: what torch.save makes of {"dims": {…}, "model_state_dict": {…}}.

#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/torch/pth_file.h"
#include "runtime/whisper/whisper_collector.h"
#include "runtime/whisper/whisper_tensors.h"

namespace varve {
namespace {

// A checkpoint has at most half a number per byte; more is possible only where tensors share
// storages, and a small file must not become a model of gigabytes.
constexpr uint64_t kMaxNumbersPerByte = 4;
constexpr int64_t kMaxSize = 1 << 30;  // of a field of dims

WeightType TypeOf(PthDtype dtype) {
  if (dtype == PthDtype::kF16) return WeightType::kF16;
  return dtype == PthDtype::kBF16 ? WeightType::kBF16 : WeightType::kF32;
}

// Infinity where a float has no room, for which the conversion is not defined.
float ToFloat(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (value > kMost || value < -kMost) return std::numeric_limits<float>::infinity();
  return static_cast<float>(value);
}

bool IsContiguous(const PthTensor& tensor) {
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

class PtReader {
 public:
  PtReader(PthFile file, const std::string& name, uint64_t file_bytes)
      : file_(std::move(file)), name_(name), numbers_left_(file_bytes * kMaxNumbersPerByte) {}

  Result<WhisperTensors> Run() {
    WhisperConfig config;
    VARVE_RETURN_IF_ERROR(ReadDims(config));
    VARVE_ASSIGN_OR_RETURN(WhisperCollector collector, WhisperCollector::Create(config, name_));
    constexpr std::string_view kState[] = {"model_state_dict"};
    const PickleValue* state = file_.FindDict(kState);
    if (state == nullptr) return Bad("has no dict model_state_dict: no checkpoint of Whisper");
    for (const PthEntry& entry : file_.Entries(*state)) {
      VARVE_RETURN_IF_ERROR(ReadTensor(entry, collector));
    }
    return std::move(collector).Finish();
  }

 private:
  Status ReadDims(WhisperConfig& config) {
    constexpr std::string_view kDims[] = {"dims"};
    const PickleValue* dims = file_.FindDict(kDims);
    if (dims == nullptr) return Bad("has no dict dims: no checkpoint of Whisper");
    for (const WhisperConfigField& field : WhisperConfigFields()) {
      const PickleValue* value = file_.pickle().Find(*dims, field.name);
      if (value == nullptr) return Bad(fmt::format("dims has no {}", field.name));
      if (value->kind != PickleKind::kInt) {
        return Bad(fmt::format("{} is {}, not an int", field.name, PickleKindName(value->kind)));
      }
      if (value->integer < 0 || value->integer > kMaxSize) {
        return Bad(fmt::format("{} {} is not in 0 … {}", field.name, value->integer, kMaxSize));
      }
      config.*field.value = static_cast<int>(value->integer);
    }
    return Status();
  }

  Status ReadTensor(const PthEntry& entry, WhisperCollector& collector) {
    Result<PthTensor> read = file_.Tensor(file_.pickle()[entry.value]);
    if (!read.ok()) {
      // "FILE: what" becomes "FILE: tensor KEY: what".
      return Status(read.status().code(),
                    fmt::format("{}: tensor {}{}", name_, Printable(entry.key),
                                read.status().message().substr(name_.size())));
    }
    const PthTensor& tensor = *read;
    const WeightType type = TypeOf(tensor.dtype);
    VARVE_ASSIGN_OR_RETURN(const size_t bytes, collector.Expect(entry.key, type, tensor.shape));
    const uint64_t count = bytes / static_cast<size_t>(InfoOf(type).block_bytes);
    if (count > numbers_left_) {
      return Bad(fmt::format("tensor {}: tensors share storages: more than {} numbers per byte",
                             entry.key, kMaxNumbersPerByte));
    }
    numbers_left_ -= count;
    if (tensor.dtype != PthDtype::kF64 && IsContiguous(tensor)) {
      const size_t at = static_cast<size_t>(tensor.offset) * PthDtypeBytes(tensor.dtype);
      return collector.Add(entry.key, type, tensor.storage.subspan(at, bytes));
    }
    return collector.Add(entry.key, type, Gather(tensor, bytes));
  }

  // The numbers in the order of the dims; doubles become floats.
  static std::vector<std::byte> Gather(const PthTensor& tensor, size_t bytes) {
    std::vector<std::byte> out(bytes);
    std::vector<int64_t> index(tensor.shape.size(), 0);
    const size_t number_bytes = PthDtypeBytes(tensor.dtype);
    for (std::byte* to = out.data(); to != out.data() + out.size();) {
      int64_t number = tensor.offset;
      for (size_t i = 0; i < index.size(); ++i) number += index[i] * tensor.strides[i];
      if (tensor.dtype == PthDtype::kF64) {
        const float value = ToFloat(tensor.At(number));
        std::memcpy(to, &value, sizeof(value));
        to += sizeof(value);
      } else {
        std::memcpy(to, tensor.storage.data() + static_cast<size_t>(number) * number_bytes,
                    number_bytes);
        to += number_bytes;
      }
      for (size_t i = index.size(); i-- > 0;) {
        if (++index[i] < tensor.shape[i]) break;
        index[i] = 0;
      }
    }
    return out;
  }

  Status Bad(const std::string& message) const {
    return InvalidArgument(fmt::format("{}: {}", name_, message));
  }

  PthFile file_;
  const std::string& name_;
  uint64_t numbers_left_;
};

}  // namespace

Result<WhisperTensors> ReadWhisperPt(std::span<const std::byte> bytes, const std::string& name) {
  VARVE_ASSIGN_OR_RETURN(PthFile file, PthFile::Open(bytes, name));
  return PtReader(std::move(file), name, bytes.size()).Run();
}

}  // namespace varve
