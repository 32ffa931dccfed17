#include "varve/compressor.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/half.h"
#include "fold/compressor_format.h"

namespace varve {
namespace {

Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  return InvalidArgument(fmt::format("{} {} is not in {} … {}", field, value, low, high));
}

// The place of the first number that is infinite or NaN, or `count`: its exponent is all ones.
template <typename T>
size_t FindNonFinite(const std::byte* bytes, size_t count, T exponent) {
  for (size_t i = 0; i < count; ++i) {
    T bits;
    std::memcpy(&bits, bytes + i * sizeof(T), sizeof(T));
    if ((bits & exponent) == exponent) return i;
  }
  return count;
}

size_t FindNonFinite(CompressorDtype dtype, const std::byte* bytes, size_t count) {
  switch (dtype) {
    case CompressorDtype::kF16:
      return FindNonFinite<uint16_t>(bytes, count, 0x7C00);
    case CompressorDtype::kBF16:
      return FindNonFinite<uint16_t>(bytes, count, 0x7F80);
    case CompressorDtype::kF32:
      break;
  }
  return FindNonFinite<uint32_t>(bytes, count, 0x7F800000);
}

bool IsOfDtype(CompressorDtype dtype, float value) {
  if (dtype == CompressorDtype::kF16) return F16ToF32(F32ToF16(value)) == value;
  if (dtype == CompressorDtype::kBF16) return BF16ToF32(F32ToBF16(value)) == value;
  return true;
}

Status CheckNumbers(const CompressorLinear& linear, CompressorDtype dtype) {
  const size_t count = static_cast<size_t>(linear.rows) * static_cast<size_t>(linear.cols);
  const size_t bytes = count * CompressorDtypeBytes(dtype);
  if (linear.weights.size() != bytes) {
    return InvalidArgument(
        fmt::format("weights have {} bytes, not {}", linear.weights.size(), bytes));
  }
  const size_t bad = FindNonFinite(dtype, linear.weights.data(), count);
  if (bad != count) return InvalidArgument(fmt::format("weight {} is not finite", bad));
  if (linear.bias.empty()) return Status();
  if (linear.bias.size() != static_cast<size_t>(linear.rows)) {
    return InvalidArgument(
        fmt::format("bias has {} values, not {}", linear.bias.size(), linear.rows));
  }
  for (size_t i = 0; i < linear.bias.size(); ++i) {
    const float value = linear.bias[i];
    if (!std::isfinite(value)) {
      return InvalidArgument(fmt::format("bias {} is {}, not finite", i, value));
    }
    if (!IsOfDtype(dtype, value)) {
      return InvalidArgument(
          fmt::format("bias {} is {}, no value of {}", i, value, CompressorDtypeName(dtype)));
    }
  }
  return Status();
}

// `cols` and `rows` are what the neighbours ask for; 0 rows: anything.
Status CheckLinear(const CompressorLinear& linear, CompressorDtype dtype, int cols, int rows,
                   const char* from) {
  VARVE_RETURN_IF_ERROR(CheckRange("rows", linear.rows, 1, kMaxCompressorWidth));
  VARVE_RETURN_IF_ERROR(CheckRange("cols", linear.cols, 1, kMaxCompressorWidth));
  if (linear.cols != cols) {
    return InvalidArgument(fmt::format("cols {} is not {}, {}", linear.cols, cols, from));
  }
  if (rows != 0 && linear.rows != rows) {
    return InvalidArgument(fmt::format("rows {} is not head_dim {}", linear.rows, rows));
  }
  return CheckNumbers(linear, dtype);
}

Status CheckMlp(const Compressor& compressor, const CompressorMlp& mlp, CompressorPart part) {
  int cols = compressor.factor * compressor.head_dim;
  for (int slot = 0; slot < kMaxCompressorSlots; ++slot) {
    const CompressorLinear& linear = mlp.slots[static_cast<size_t>(slot)];
    if (slot >= compressor.num_slots) {
      if (linear == CompressorLinear()) continue;
      return InvalidArgument(fmt::format("{} is there, but num_slots is {}",
                                         CompressorBlockName(part, slot), compressor.num_slots));
    }
    const int rows = slot == compressor.num_slots - 1 ? compressor.head_dim : 0;
    const Status status =
        CheckLinear(linear, compressor.dtype, cols, rows,
                    slot == 0 ? "factor * head_dim" : "the rows of the block before");
    if (!status.ok()) {
      return InvalidArgument(
          fmt::format("{}: {}", CompressorBlockName(part, slot), status.message()));
    }
    cols = linear.rows;
  }
  return Status();
}

}  // namespace

const char* CompressorDtypeName(CompressorDtype dtype) {
  switch (dtype) {
    case CompressorDtype::kF16:
      return "f16";
    case CompressorDtype::kBF16:
      return "bf16";
    case CompressorDtype::kF32:
      return "f32";
  }
  return "?";
}

size_t CompressorDtypeBytes(CompressorDtype dtype) {
  return dtype == CompressorDtype::kF32 ? sizeof(float) : sizeof(uint16_t);
}

const char* CompressorPartName(CompressorPart part) {
  switch (part) {
    case CompressorPart::kTextKey:
      return "compress_tk";
    case CompressorPart::kTextValue:
      return "compress_tv";
    case CompressorPart::kImageKey:
      return "compress_ik";
    case CompressorPart::kImageValue:
      return "compress_iv";
  }
  return "?";
}

std::string CompressorBlockName(CompressorPart part, int slot) {
  return fmt::format("{}.{}", CompressorPartName(part),
                     kCompressorSlotNumbers[static_cast<size_t>(slot)]);
}

size_t Compressor::bytes() const {
  size_t total = 0;
  for (const auto& layer : layers) {
    for (const CompressorMlp& mlp : layer) {
      for (const CompressorLinear& linear : mlp.slots) {
        total += linear.weights.size() + linear.bias.size() * CompressorDtypeBytes(dtype);
      }
    }
  }
  return total;
}

Status CheckCompressor(const Compressor& compressor) {
  VARVE_RETURN_IF_ERROR(CheckRange("dtype", static_cast<int>(compressor.dtype), 0, 2));
  VARVE_RETURN_IF_ERROR(CheckRange("num_layers", static_cast<int64_t>(compressor.layers.size()), 1,
                                   kMaxCompressorLayers));
  VARVE_RETURN_IF_ERROR(CheckRange("num_heads", compressor.num_heads, 0, kMaxCompressorHeads));
  VARVE_RETURN_IF_ERROR(
      CheckRange("head_dim", compressor.head_dim, kMinCompressorDim, kMaxCompressorDim));
  if (compressor.head_dim % kMinCompressorDim != 0) {
    return InvalidArgument(
        fmt::format("head_dim {} is not a multiple of {}", compressor.head_dim, kMinCompressorDim));
  }
  VARVE_RETURN_IF_ERROR(
      CheckRange("factor", compressor.factor, kMinCompressorFactor, kMaxCompressorFactor));
  VARVE_RETURN_IF_ERROR(CheckRange("min_groups", compressor.min_groups, 0, kMaxCompressorGroups));
  VARVE_RETURN_IF_ERROR(CheckRange("num_slots", compressor.num_slots, 1, kMaxCompressorSlots));
  for (size_t layer = 0; layer < compressor.layers.size(); ++layer) {
    for (size_t i = 0; i < kCompressorParts; ++i) {
      const auto part = static_cast<CompressorPart>(i);
      const CompressorMlp& mlp = compressor.layers[layer][i];
      if (i >= 2 && !compressor.has_image) {
        if (mlp == CompressorMlp()) continue;
        return InvalidArgument(fmt::format("layer {}: {} is there without has_image", layer,
                                           CompressorPartName(part)));
      }
      const Status status = CheckMlp(compressor, mlp, part);
      if (status.ok()) continue;
      return InvalidArgument(fmt::format("layer {}: {}", layer, status.message()));
    }
  }
  return Status();
}

}  // namespace varve
