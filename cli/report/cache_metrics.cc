#include "cli/report/cache_metrics.h"

#include <variant>

#include <fmt/format.h>

#include "cli/report/output.h"
#include "varve/properties.h"

namespace varve::cli {

void AddCacheMetrics(const CacheMetrics& metrics, nlohmann::ordered_json* row) {
  for (const Property& property : Properties(metrics))
    std::visit([&](const auto& value) { (*row)[property.name] = value; }, property.value);
}

void PrintNonfinite(const std::string& plan, uint64_t nonfinite_values, std::FILE* out) {
  if (nonfinite_values == 0) return;
  WriteNote(fmt::format("{}: {} values of keys and values lay beyond what its rungs can hold and "
                        "were cut off (open_rung=f32 or bf16 has more room than f16)\n",
                        plan, nonfinite_values),
            out);
}

}  // namespace varve::cli
