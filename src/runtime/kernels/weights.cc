#include "runtime/kernels/weights.h"

#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/kernels/weights_tables.h"

namespace varve {
namespace {

constexpr WeightTypeInfo kInfo[kNumWeightTypes] = {
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},       {"Q8_0", 32, 34},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},   {"Q2_K", 256, 84},
    {"Q3_K", 256, 110}, {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136},
};

const std::vector<WeightKernels>& Tables() {
  static const std::vector<WeightKernels> tables = [] {
    std::vector<WeightKernels> all = {ScalarWeightKernels()};
    all[0].rounded = &ScalarRoundedKernels();
    for (const WeightKernels* table : SimdWeightKernels()) all.push_back(*table);
    for (const RoundedKernels* rounded : SimdRoundedKernels()) {
      for (WeightKernels& table : all) {
        if (std::string_view(table.name) == rounded->name) table.rounded = rounded;
      }
    }
    return all;
  }();
  return tables;
}

}  // namespace

const WeightTypeInfo& InfoOf(WeightType type) { return kInfo[static_cast<int>(type)]; }

bool HasOffsets(WeightType type) {
  return type == WeightType::kQ4_1 || type == WeightType::kQ5_1 || type == WeightType::kQ4K ||
         type == WeightType::kQ5K || type == WeightType::kQ2K;
}

int OffsetRun(WeightType type) { return type == WeightType::kQ2K ? kRoundedHalf : kRoundedRun; }

int IntegerSpan(WeightType type) {
  // span * largest value * kPackedMost < 2^31.
  switch (type) {
    case WeightType::kQ4K:
    case WeightType::kQ2K:
    case WeightType::kQ3K:
      return 256;
    case WeightType::kQ5K:
      return 128;
    case WeightType::kQ6K:
    case WeightType::kIQ4_XS:
      return 64;
    default:
      return 32;
  }
}

const WeightKernels& ActiveWeightKernels() {
  const std::string_view name = ActiveKernels().name;
  for (const WeightKernels& table : Tables()) {
    if (name == table.name) return table;
  }
  return Tables().front();
}

std::span<const WeightKernels* const> AvailableWeightKernels() {
  static const std::vector<const WeightKernels*> pointers = [] {
    std::vector<const WeightKernels*> all;
    for (const WeightKernels& table : Tables()) all.push_back(&table);
    return all;
  }();
  return pointers;
}

}  // namespace varve
