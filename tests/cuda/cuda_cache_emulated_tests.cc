// Caches on a GPU where only the emulated device can be asked (src/cuda/emulation/runtime.h): one
// with less shared memory, kernels for older devices, memory that runs out, errors left behind.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/device_attention.h"
#include "cuda/emulation/runtime.h"
#include "cuda/memory/device_buffers.h"
#include "tests/cache/retention_testing.h"
#include "varve/cache.h"

namespace varve {
namespace cuda_cache_emulated_tests {

constexpr uint64_t kPoolBytes = uint64_t{32} << 20;

CacheShape WideShape(int dim, int group, int page = 64) {
  return ShapeOf({.kv_heads = 1, .group = group, .key_dim = dim, .value_dim = dim, .page = page});
}

CacheOptions OnGpu() {
  CacheOptions options;
  options.device = Device::kCuda;
  options.max_bytes = kPoolBytes;
  options.num_threads = 1;
  return options;
}

// --- launches ---

TEST(CudaLimits, LaunchesOverlapOnlyWhereKernelsWait) {
  cuda::DeviceLimits limits;
  ASSERT_TRUE(cuda::QueryDevice(0, &limits).ok());
  EXPECT_TRUE(limits.overlaps_launches);
  // The device is as new, but what it runs was compiled for an older one.
  cuda::emulation::SetPtxVersion(80);
  ASSERT_TRUE(cuda::QueryDevice(0, &limits).ok());
  EXPECT_FALSE(limits.overlaps_launches);
  cuda::emulation::SetPtxVersion(90);
}

TEST(CudaCache, BehindAPromptOnlyCountersAreCleared) {
  const CacheShape shape = WideShape(64, 2);
  const RetentionWork work(shape, 400);
  RetentionRun run(shape, "f16", work, OnGpu());
  run.last_queries = 20;
  const SequenceId id = *run.cache->CreateSequence();
  const auto bytes_set = [&](int64_t until, int step_tokens) {
    const uint64_t before = cuda::emulation::BytesSet();
    run.Feed(id, until, step_tokens);
    return cuda::emulation::BytesSet() - before;
  };
  bytes_set(300, 300);
  const uint64_t counter = 2 * sizeof(uint32_t);  // of a query: two heads
  EXPECT_EQ(bytes_set(301, 1), counter);
  EXPECT_EQ(bytes_set(302, 1), 0u);
  EXPECT_EQ(bytes_set(305, 3), 3 * counter);
  EXPECT_EQ(bytes_set(308, 3), 0u);
  EXPECT_EQ(bytes_set(309, 1), 0u);
  EXPECT_EQ(bytes_set(312, 3), 3 * counter);
  EXPECT_EQ(bytes_set(352, 40), 0u);
  EXPECT_EQ(bytes_set(353, 1), counter);
}

// --- memory and errors ---

TEST(DeviceScratch, TakesWhatIsWantedWhereThereIsNoRoomToGrow) {
  constexpr size_t kMost = 1 << 20;
  cuda::emulation::SetLargestAllocation(kMost);
  cuda::DeviceScratch scratch;
  bool grown = false;
  EXPECT_OK(scratch.Reserve(kMost, &grown));
  EXPECT_TRUE(grown);
  EXPECT_EQ(scratch.bytes(), kMost);
  EXPECT_EQ(scratch.Reserve(kMost + 1).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(scratch.bytes(), 0u);
  EXPECT_OK(scratch.Reserve(1000));
  EXPECT_GT(scratch.bytes(), 1000u);  // room to grow
  cuda::emulation::SetLargestAllocation(SIZE_MAX);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaCache, ThatIsRefusedLeavesNoErrorBehindAndWaitsForNobody) {
  const int waits = cuda::emulation::DefaultStreamWaits();
  CacheOptions options = OnGpu();
  options.device_index = 3;
  EXPECT_EQ(Cache::Create(WideShape(64, 1), std::move(options)).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(Cache::Create(WideShape(80, 1), OnGpu()).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cuda::emulation::DefaultStreamWaits(), waits);
}

TEST(CudaCache, ADeviceThatIsGoneLeavesNoErrorBehind) {
  const CacheShape shape = WideShape(64, 1);
  const RetentionWork work(shape, 1);
  RetentionRun run(shape, "f16", work, OnGpu());
  cuda::emulation::SetDeviceLost(true);
  EXPECT_EQ(run.cache->Report().nonfinite_values, 0u);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cuda::DeviceLimits limits;
  EXPECT_FALSE(cuda::QueryDevice(0, &limits).ok());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(Cache::Create(shape, OnGpu()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cuda::emulation::SetDeviceLost(false);
}

}  // namespace cuda_cache_emulated_tests
}  // namespace varve
