// The back end for CUDA that libvarve has in this build.

#include "cuda/backend/cuda_backend.h"

namespace varve {

MakeDeviceBackend LinkedCudaBackend() { return &cuda::MakeCudaBackend; }

}  // namespace varve
