#include "cli/report/cache_metrics.h"

#include <variant>

#include "varve/properties.h"

namespace varve::cli {

void AddCacheMetrics(const CacheMetrics& metrics, nlohmann::ordered_json* row) {
  for (const Property& property : Properties(metrics))
    std::visit([&](const auto& value) { (*row)[property.name] = value; }, property.value);
}

}  // namespace varve::cli
