// Properties: everything that a cache knows about itself, by name.
//
// CacheStats has the dozen figures that programs compute with; a CacheReport has all of them,
// typed. Properties are the same figures as a flat list of names and values, for logs, dashboards
// and other languages. Names are part of the API: some may be added, none is renamed. Names that
// the plan gives no meaning (lossless_* without pack=) are there all the same, at their neutral
// value.
//
// docs/metrics.md defines every name.

#ifndef VARVE_PROPERTIES_H_
#define VARVE_PROPERTIES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "varve/cache.h"
#include "varve/export.h"
#include "varve/status.h"

namespace varve {

struct Property {
  std::string name;                                   // "lossless_ratio"
  std::variant<uint64_t, double, std::string> value;  // a count, a number, or text

  bool is_text() const { return std::holds_alternative<std::string>(value); }
  // The value of a count or number; 0 for text.
  VARVE_API double number() const;
  // The value as text, whatever it is.
  VARVE_API std::string text() const;
};

// In a fixed order: "plan", the figures of CacheStats and CacheReport, then per rung and state
// "rung.q8_0.sealed.pages" and ".bytes", per layer "layer.0.bytes_held" and others, per note and
// fallback of the plan "plan_note.0", "fallback.0" and so on.
VARVE_API std::vector<Property> Properties(const Cache& cache);
// Those of ratios, policies and packing alone, for figures that were taken earlier.
VARVE_API std::vector<Property> Properties(const CacheMetrics& metrics);
// kNotFound names the property.
VARVE_API Result<Property> FindProperty(const Cache& cache, std::string_view name);
// One line: an object of all properties.
VARVE_API std::string PropertiesJson(const Cache& cache);

}  // namespace varve

#endif  // VARVE_PROPERTIES_H_
