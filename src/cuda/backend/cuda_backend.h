// The back end of a cache on an NVIDIA GPU (attention/backend.h): pages in one range of device
// memory, rows appended, pages encoded and attention computed by the kernels of src/cuda.
//
// The host keeps every table and all that is known of a page; the device has the strips alone. Each
// Attend sends the records of the pages that its queries see. All work goes to one stream. Calls
// with tensors of the host wait for their results; with tensors of the device only an observer
// makes a call wait.
//
// A few queries of a sequence are attended as if each had a table of its own, with masks for what
// comes behind it. Prompts have kernels of their own (device_prompt.h); where the device has too
// little shared memory for them, and for observers, they are attended like a few queries.

#ifndef VARVE_CUDA_BACKEND_CUDA_BACKEND_H_
#define VARVE_CUDA_BACKEND_CUDA_BACKEND_H_

#include <memory>

#include "attention/backend.h"

namespace varve::cuda {

// kUnimplemented for a shape or a rung without kernels, or whose kernels need more shared memory
// than the device has; kNotFound without the device, kOutOfMemory if it has not pool_bytes.
Result<std::unique_ptr<Backend>> MakeCudaBackend(const DeviceSetup& setup);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_CUDA_BACKEND_H_
