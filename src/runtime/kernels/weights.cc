#include "runtime/kernels/weights.h"

#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/kernels/weights_tables.h"

namespace varve {
namespace {

constexpr WeightTypeInfo kInfo[kNumWeightTypes] = {
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q8_0", 32, 34},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
};

const std::vector<const WeightKernels*>& Tables() {
  static const std::vector<const WeightKernels*> tables = [] {
    std::vector<const WeightKernels*> all = {&ScalarWeightKernels()};
    for (const WeightKernels* table : SimdWeightKernels()) all.push_back(table);
    return all;
  }();
  return tables;
}

}  // namespace

const WeightTypeInfo& InfoOf(WeightType type) { return kInfo[static_cast<int>(type)]; }

const WeightKernels& ActiveWeightKernels() {
  const std::string_view name = ActiveKernels().name;
  for (const WeightKernels* table : Tables()) {
    if (name == table->name) return *table;
  }
  return ScalarWeightKernels();
}

std::span<const WeightKernels* const> AvailableWeightKernels() { return Tables(); }

}  // namespace varve
