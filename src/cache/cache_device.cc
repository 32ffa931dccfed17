#include "cache/cache_device.h"

#include <string>

namespace varve {
namespace {

Status CheckOptions(const CacheOptions& options) {
  const char* set = options.memory != nullptr ? "memory" : options.pool != nullptr ? "pool" : "";
  if (*set == '\0') return Status();
  return InvalidArgument(std::string("cache options: ") + set +
                         " is not null; pages on a device live in its own memory");
}

Status CheckClauses(std::span<const LayerPlan> layers) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const char* clause = layers[layer].pack ? "pack=" : layers[layer].fold ? "fold=" : "";
    if (*clause == '\0') continue;
    return Unimplemented("layer " + std::to_string(layer) + ": " + clause +
                         " works on the CPU alone; leave it out, or use device 0 (CPU)");
  }
  return Status();
}

std::vector<RungUse> UsesOf(std::span<const LayerPlan> layers) {
  std::vector<RungUse> uses;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = static_cast<int>(i);
    uses.push_back({layer, Part::kKey, layers[i].open_rung});
    uses.push_back({layer, Part::kValue, layers[i].open_rung});
    for (const LayerPlan::Stage& stage : layers[i].stages) {
      uses.push_back({layer, Part::kKey, stage.k});
      uses.push_back({layer, Part::kValue, stage.v});
    }
  }
  return uses;
}

}  // namespace

bool HasBackend(Device device) {
  return device == Device::kCpu || (device == Device::kCuda && LinkedCudaBackend() != nullptr);
}

Result<std::unique_ptr<Backend>> MakeBackendOfDevice(const CacheShape& shape,
                                                     const CacheOptions& options,
                                                     std::span<const LayerPlan> layers,
                                                     MakeDeviceBackend make_cuda) {
  if (options.device == Device::kCpu) return std::unique_ptr<Backend>();
  if (options.device != Device::kCuda) {
    return InvalidArgument("cache options: device " +
                           std::to_string(static_cast<int>(options.device)) +
                           " is not 0 (CPU) or 1 (CUDA)");
  }
  if (make_cuda == nullptr) {
    return Unimplemented(
        "cache options: device 1 (CUDA): this build has no CUDA; build where nvcc is, or use "
        "device "
        "0 (CPU)");
  }
  VARVE_RETURN_IF_ERROR(CheckOptions(options));
  VARVE_RETURN_IF_ERROR(CheckClauses(layers));
  return make_cuda({shape, options.device_index, options.stream, options.max_bytes,
                    options.device_chunk_bytes, UsesOf(layers)});
}

}  // namespace varve
