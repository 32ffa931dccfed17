// What the library reports, as Python dicts: names are those of the C++ fields.

#ifndef VARVE_PYTHON_NATIVE_FIGURES_H_
#define VARVE_PYTHON_NATIVE_FIGURES_H_

#include <pybind11/pybind11.h>

#include "varve/cache_file.h"
#include "varve/cache_stats.h"
#include "varve/plan_estimate.h"
#include "varve/properties.h"

namespace varve::python {

pybind11::dict StatsDict(const CacheStats& stats);
pybind11::dict PropertiesDict(const std::vector<Property>& properties);
pybind11::object PropertyValue(const Property& property);
pybind11::dict CostDict(const PlanCost& cost);
pybind11::dict FileInfoDict(const CacheFileInfo& info);

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_FIGURES_H_
