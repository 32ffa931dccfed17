// Pages in device memory: the record of a page that kernels read, and the sizes of its strips.
//
// The bytes of a page are those of docs/format/pages.md, the same as on the CPU. The page table of
// a (sequence, layer) is an array of DevicePage in device memory; a batch is one array of records
// and offsets into it, one per sequence and one more. This library owns neither pages nor tables.

#ifndef VARVE_CUDA_DEVICE_PAGES_H_
#define VARVE_CUDA_DEVICE_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "cuda/device_status.h"

namespace varve::cuda {

// As RungId of rungs/rung_table.h; a static_assert of the tests holds them together.
enum class DeviceRung : uint8_t {
  kF16 = 2,
  kBF16 = 3,
  kQ8_0 = 4,
  kQ8_0r = 5,
  kQ4_0 = 6,
  kQ4_0r = 7,
  kPq = 8,
  kT4 = 9,
  kT3 = 10,
  kT2 = 11,
};
inline constexpr int kNumRungIds = 12;

const char* DeviceRungName(DeviceRung rung);
constexpr bool IsFloat(DeviceRung rung) {
  return rung == DeviceRung::kF16 || rung == DeviceRung::kBF16;
}

// One page of one sequence. 32 bytes; the kernels read it as two vectors.
struct alignas(16) DevicePage {
  const std::byte* bytes = nullptr;  // device memory, a multiple of 256
  uint64_t live[2] = {0, 0};         // bit t: row t is there and counts; none from `rows` on
  DeviceRung key_rung = DeviceRung::kF16;
  DeviceRung value_rung = DeviceRung::kF16;
  uint16_t rows = 0;  // rows written
  uint32_t reserved = 0;
};
static_assert(sizeof(DevicePage) == 32);

// What all pages of a call have in common.
struct PageShape {
  int head_dim = 0;     // 64, 96, 128 or 256, for K and V
  int kv_heads = 0;     // strips of a page
  int page_tokens = 0;  // 64 or 128
  // Of pq strips; 0 where there are none.
  int pq_subspaces = 0;
  int pq_bits = 0;
};

// Ok if there are kernels for that shape.
DeviceStatus CheckShape(const PageShape& shape);

// Ok if pq strips of that shape, if there are any, have kernels.
DeviceStatus CheckPqShape(const PageShape& shape);

// Bytes of the K or the V strip of a KV head, and of a whole page.
size_t DeviceStripBytes(DeviceRung rung, bool key, const PageShape& shape);
size_t DevicePageBytes(DeviceRung key_rung, DeviceRung value_rung, const PageShape& shape);

// A pool: one range of device memory that all pages of a table must lie in.
struct DevicePool {
  const std::byte* base = nullptr;
  size_t bytes = 0;
};

// Ok if all records (in host memory) lie in the pool and hold what kernels expect: known rungs,
// rows within the page, live bits below `rows`.
DeviceStatus CheckPages(const DevicePage* pages, int64_t num_pages, const PageShape& shape,
                        const DevicePool& pool);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_DEVICE_PAGES_H_
