// What a build without CUDA links in place of src/cuda/backend.

#include "attention/backend.h"

namespace varve {

MakeDeviceBackend LinkedCudaBackend() { return nullptr; }

std::vector<DeviceInfo> LinkedCudaDevices() { return {}; }

}  // namespace varve
