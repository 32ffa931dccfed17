// The back end of a cache on a device: what a plan must not ask for there, and what the back end is
// told.

#ifndef VARVE_CACHE_CACHE_DEVICE_H_
#define VARVE_CACHE_CACHE_DEVICE_H_

#include <memory>
#include <span>

#include "attention/backend.h"
#include "plan/layer_plan.h"
#include "varve/cache.h"

namespace varve {

// Null for the CPU. `make_cuda` may be null: no such build.
Result<std::unique_ptr<Backend>> MakeBackendOfDevice(const CacheShape& shape,
                                                     const CacheOptions& options,
                                                     std::span<const LayerPlan> layers,
                                                     MakeDeviceBackend make_cuda);

}  // namespace varve

#endif  // VARVE_CACHE_CACHE_DEVICE_H_
