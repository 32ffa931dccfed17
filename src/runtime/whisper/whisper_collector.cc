#include "runtime/whisper/whisper_collector.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quoted.h"

namespace varve {
namespace {

// The position of the first number whose exponent has all bits of `mask`; -1 if there is none.
// Chunks without a branch inside let the compiler use vectors: a file has millions of numbers.
template <typename T>
int64_t FirstWithExponent(std::span<const std::byte> data, T mask) {
  constexpr size_t kChunk = 1024;
  const size_t count = data.size() / sizeof(T);
  std::array<T, kChunk> numbers;
  for (size_t at = 0; at < count; at += kChunk) {
    const size_t size = std::min(kChunk, count - at);
    std::memcpy(numbers.data(), data.data() + at * sizeof(T), size * sizeof(T));
    bool found = false;
    for (size_t i = 0; i < size; ++i) found |= (numbers[i] & mask) == mask;
    if (!found) continue;
    for (size_t i = 0; i < size; ++i) {
      if ((numbers[i] & mask) == mask) return static_cast<int64_t>(at + i);
    }
  }
  return -1;
}

bool IsFiniteF16(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return (bits & 0x7C00u) != 0x7C00u;
}

// The first number, or of integers the first block, that is not finite; -1 if all are.
int64_t FirstNotFinite(WeightType type, std::span<const std::byte> data) {
  if (type == WeightType::kF32) return FirstWithExponent<uint32_t>(data, 0x7F800000u);
  if (type == WeightType::kF16) return FirstWithExponent<uint16_t>(data, 0x7C00u);
  if (type == WeightType::kBF16) return FirstWithExponent<uint16_t>(data, 0x7F80u);
  // Every type that comes here begins its blocks with the scale, and those with an offset have it
  // behind that.
  const auto block_bytes = static_cast<size_t>(InfoOf(type).block_bytes);
  for (size_t at = 0; at < data.size(); at += block_bytes) {
    const std::byte* block = data.data() + at;
    if (!IsFiniteF16(block) || (HasOffsets(type) && !IsFiniteF16(block + 2))) {
      return static_cast<int64_t>(at / block_bytes);
    }
  }
  return -1;
}

bool IsReadable(WeightType type) { return type <= WeightType::kQ5_1; }

}  // namespace

std::string WhisperDimsText(std::span<const int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

WhisperCollector::WhisperCollector(const WhisperConfig& config, std::string name)
    : name_(std::move(name)), shapes_(WhisperTensorShapes(config)) {
  model_.config = config;
  for (const WhisperTensorShape& shape : shapes_) by_name_.emplace(shape.name, &shape);
}

Result<WhisperCollector> WhisperCollector::Create(const WhisperConfig& config, std::string name) {
  VARVE_RETURN_IF_ERROR(CheckWhisperConfig(config, name));
  return WhisperCollector(config, std::move(name));
}

Status WhisperCollector::Bad(std::string_view tensor, const std::string& message) const {
  return DataLoss(fmt::format("{}: tensor {}: {}", name_, Printable(tensor), message));
}

Result<size_t> WhisperCollector::Expect(std::string_view tensor, WeightType type,
                                        std::span<const int64_t> dims) const {
  const auto found = by_name_.find(tensor);
  if (found == by_name_.end()) {
    return Bad(tensor, fmt::format("is no part of a Whisper model of {} + {} layers",
                                   model_.config.audio_layers, model_.config.text_layers));
  }
  if (model_.tensors.contains(std::string(tensor))) return Bad(tensor, "comes twice");
  const WhisperTensorShape& shape = *found->second;
  const bool has_one_more = dims.size() == shape.dims.size() + 1 && dims.back() == 1;
  const auto said = dims.first(dims.size() - (has_one_more ? 1 : 0));
  if (!std::ranges::equal(said, shape.dims)) {
    return Bad(tensor, fmt::format("has the shape {}, not {}", WhisperDimsText(dims),
                                   WhisperDimsText(shape.dims)));
  }
  const WeightTypeInfo& info = InfoOf(type);
  if (!IsReadable(type) || (IsInteger(type) && (!shape.is_factor || shape.dims.size() != 2))) {
    return Bad(tensor, fmt::format("type {} is not read here", info.name));
  }
  if (shape.dims.back() % info.block_values != 0) {
    return Bad(tensor, fmt::format("rows of {} values are no blocks of {} ({})", shape.dims.back(),
                                   info.block_values, info.name));
  }
  return WhisperTensor{type, shape.dims, nullptr}.bytes();
}

Status WhisperCollector::Add(std::string_view tensor, WeightType type,
                             std::span<const std::byte> data) {
  const WhisperTensorShape& shape = *by_name_.at(tensor);
  if (const int64_t bad = FirstNotFinite(type, data); bad >= 0) {
    return Bad(tensor, fmt::format("{} {} is not finite",
                                   IsInteger(type) ? "the scale of block" : "number", bad));
  }
  const WeightType stored = shape.is_factor ? type : WeightType::kF32;
  std::byte* to = model_.Add(shape.name, stored, shape.dims);
  if (to == nullptr) return OutOfMemory(fmt::format("{}: no memory for {}", name_, tensor));
  if (stored == type) {
    std::memcpy(to, data.data(), data.size());
    return Status();
  }
  // Kernels want numbers where their type may lie.
  const std::vector<std::byte> aligned(data.begin(), data.end());
  const int64_t count = model_.tensors.at(shape.name).values();
  ActiveWeightKernels().decode[static_cast<int>(type)](aligned.data(), count,
                                                       reinterpret_cast<float*>(to));
  return Status();
}

Result<WhisperTensors> WhisperCollector::Finish() && {
  size_t missing = 0;
  std::string first;
  for (const WhisperTensorShape& shape : shapes_) {
    if (model_.tensors.contains(shape.name)) continue;
    if (missing++ == 0) first = shape.name;
  }
  if (missing == 0) return std::move(model_);
  return Bad(first,
             missing == 1 ? "is missing" : fmt::format("and {} more are missing", missing - 1));
}

}  // namespace varve
