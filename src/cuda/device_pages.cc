#include "cuda/device_pages.h"

#include "kernels/kernels.h"
#include "kernels/pq_kernels.h"
#include "kernels/turned_kernels.h"

namespace varve::cuda {
namespace {

bool IsKnown(DeviceRung rung) { return rung >= DeviceRung::kF16 && rung <= DeviceRung::kT2; }

}  // namespace

const char* DeviceRungName(DeviceRung rung) {
  static constexpr const char* kNames[kNumRungIds] = {
      "?", "f32", "f16", "bf16", "q8_0", "q8_0r", "q4_0", "q4_0r", "pq", "t4", "t3", "t2"};
  return IsKnown(rung) ? kNames[static_cast<int>(rung)] : "?";
}

DeviceStatus CheckShape(const PageShape& shape) {
  const int dim = shape.head_dim;
  if (dim != 64 && dim != 96 && dim != 128 && dim != 256) {
    return {StatusCode::kUnimplemented, "head_dim %d: kernels are for 64, 96, 128 and 256", dim};
  }
  if (shape.page_tokens != 64 && shape.page_tokens != 128) {
    return {StatusCode::kUnimplemented, "page_tokens %d: kernels are for 64 and 128",
            shape.page_tokens};
  }
  if (shape.kv_heads < 1 || shape.kv_heads > 1024) {
    return {StatusCode::kInvalidArgument, "kv_heads %d is not in 1 ... 1024", shape.kv_heads};
  }
  return {};
}

DeviceStatus CheckPqShape(const PageShape& shape) {
  const int subspaces = shape.pq_subspaces, dim = shape.head_dim;
  if (subspaces == 0 && shape.pq_bits == 0) return {};
  if (subspaces != dim / 4 && subspaces != dim / 2 && subspaces != dim) {
    return {StatusCode::kUnimplemented,
            "pq_subspaces %d: kernels are for %d, %d and %d",
            subspaces,
            dim / 4,
            dim / 2,
            dim};
  }
  if (shape.pq_bits < 4 || shape.pq_bits > 8) {
    return {StatusCode::kUnimplemented, "pq_bits %d: kernels are for 4 ... 8", shape.pq_bits};
  }
  return {};
}

size_t DeviceStripBytes(DeviceRung rung, bool key, const PageShape& shape) {
  const size_t values = static_cast<size_t>(shape.page_tokens) * shape.head_dim;
  const auto block = [&](BlockType type) {
    return values / kBlockValues * (2 + BlockCodeBytes(type));
  };
  const auto turned = [&](int bits) {
    return TurnedStripBytes(bits, key, shape.head_dim, shape.page_tokens);
  };
  switch (rung) {
    case DeviceRung::kF16:
    case DeviceRung::kBF16:
      return 2 * values;
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ8_0r:
      return block(BlockType::kQ8);
    case DeviceRung::kQ4_0:
    case DeviceRung::kQ4_0r:
      return block(BlockType::kQ4);
    case DeviceRung::kT4:
      return turned(4);
    case DeviceRung::kT3:
      return turned(3);
    case DeviceRung::kT2:
      return turned(2);
    case DeviceRung::kPq:
      if (shape.pq_subspaces <= 0 || shape.pq_bits <= 0) return 0;
      return PqShape{shape.head_dim, shape.pq_subspaces, shape.pq_bits, shape.page_tokens}
          .strip_bytes();
  }
  return 0;
}

size_t DevicePageBytes(DeviceRung key_rung, DeviceRung value_rung, const PageShape& shape) {
  return static_cast<size_t>(shape.kv_heads) *
         (DeviceStripBytes(key_rung, true, shape) + DeviceStripBytes(value_rung, false, shape));
}

DeviceStatus CheckPages(const DevicePage* pages, int64_t num_pages, const PageShape& shape,
                        const DevicePool& pool) {
  for (int64_t i = 0; i < num_pages; ++i) {
    const DevicePage& page = pages[i];
    const auto at = static_cast<long long>(i);
    if (!IsKnown(page.key_rung) || !IsKnown(page.value_rung)) {
      return {StatusCode::kInvalidArgument, "page %lld: rungs %d and %d are not both known", at,
              static_cast<int>(page.key_rung), static_cast<int>(page.value_rung)};
    }
    const size_t bytes = DevicePageBytes(page.key_rung, page.value_rung, shape);
    const auto offset =
        reinterpret_cast<uintptr_t>(page.bytes) - reinterpret_cast<uintptr_t>(pool.base);
    if (page.bytes < pool.base || bytes > pool.bytes || offset > pool.bytes - bytes) {
      return {StatusCode::kInvalidArgument,
              "page %lld: %zu bytes at offset %lld are not within the pool's %zu",
              at,
              bytes,
              static_cast<long long>(offset),
              pool.bytes};
    }
    if (offset % 256 != 0) {
      return {StatusCode::kInvalidArgument, "page %lld: offset %lld is not a multiple of 256", at,
              static_cast<long long>(offset)};
    }
    if (page.rows > shape.page_tokens) {
      return {StatusCode::kInvalidArgument, "page %lld: rows %d > %d", at, page.rows,
              shape.page_tokens};
    }
    const uint64_t low = page.rows >= 64 ? ~uint64_t{0} : (uint64_t{1} << page.rows) - 1;
    const int above = page.rows - 64;
    const uint64_t high = above <= 0 ? 0 : above >= 64 ? ~uint64_t{0} : (uint64_t{1} << above) - 1;
    if ((page.live[0] & ~low) != 0 || (page.live[1] & ~high) != 0) {
      return {StatusCode::kInvalidArgument, "page %lld: a row from %d on is marked live", at,
              page.rows};
    }
  }
  return {};
}

}  // namespace varve::cuda
