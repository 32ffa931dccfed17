// Writing pages in device memory: rows of open pages, and pages encoded from one pair of rungs to
// another.
//
// The bytes are those that the CPU's scalar kernels write, bit for bit, for float, block and turned
// strips; of pq, the norm of a row is summed in another order, which may move a code that lies on
// the border of two. One launch per call on the caller's stream; nothing is allocated and nothing
// waits.

#ifndef VARVE_CUDA_DEVICE_ENCODE_H_
#define VARVE_CUDA_DEVICE_ENCODE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/device_attention.h"
#include "cuda/device_pages.h"
#include "cuda/device_status.h"

namespace varve::cuda {

// Rows that go behind those of an open page.
struct DeviceAppendJob {
  std::byte* page = nullptr;   // in f16 or bf16
  const void* keys = nullptr;  // num_rows rows of all KV heads
  const void* values = nullptr;
  int32_t first_row = 0;
  int32_t num_rows = 0;
};

struct RowStrides {  // in values
  int64_t token = 0;
  int64_t head = 0;
};

struct DeviceAppend {
  PageShape shape;
  DeviceRung rung = DeviceRung::kF16;     // of the pages, K and V; f16 or bf16
  const DeviceAppendJob* jobs = nullptr;  // device memory; null: `job` is the only one
  DeviceAppendJob job;
  int num_jobs = 0;
  TensorType type = TensorType::kF16;  // of the rows
  RowStrides keys;                     // of the rows of a job
  RowStrides values;
  // += finite values beyond the rung's range, which become the largest of their sign; or null.
  unsigned long long* replaced = nullptr;
};

DeviceStatus Append(const DeviceAppend& call, cudaStream_t stream);

// A page in one pair of rungs to another.
struct DeviceEncodeJob {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  DeviceRung from_key = DeviceRung::kF16;
  DeviceRung from_value = DeviceRung::kF16;
  DeviceRung to_key = DeviceRung::kF16;
  DeviceRung to_value = DeviceRung::kF16;
  int32_t rows = 0;  // rows written; the others become zero
};

struct DeviceEncode {
  PageShape shape;
  const DeviceEncodeJob* jobs = nullptr;  // device memory; null: `job` is the only one
  DeviceEncodeJob job;
  int num_jobs = 0;
  DeviceCodebook key_codebook;
  DeviceCodebook value_codebook;
  // += values that were not finite or out of the format's range; or null.
  unsigned long long* replaced = nullptr;
};

DeviceStatus Encode(const DeviceEncode& call, cudaStream_t stream);

// Bytes of shared memory that a block of Encode has, whatever the rungs.
size_t EncodeSharedBytes(const PageShape& shape);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_DEVICE_ENCODE_H_
