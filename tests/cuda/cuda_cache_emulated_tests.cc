// Caches on a GPU where only the emulated device can be asked (src/cuda/emulation/runtime.h): one
// with less shared memory, kernels for older devices, memory that runs out, errors left behind.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/device_attention.h"
#include "cuda/emulation/runtime.h"
#include "cuda/memory/device_buffers.h"
#include "rungs/pq/pq_testing.h"
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

// --- shared memory ---

constexpr size_t kDesktopShared = 101376;  // compute capability 8.6, 8.9 and 12.x
constexpr size_t kA100Shared = 166912;

class CudaCacheShared : public testing::Test {
 protected:
  ~CudaCacheShared() override { cuda::emulation::SetSharedMemory(cuda::emulation::kHopperShared); }

  static std::string Refusal(const CacheShape& shape, const std::string& plan) {
    CacheOptions options = OnGpu();
    options.plan = *ParsePlan(plan);
    return Cache::Create(shape, std::move(options)).status().ToString();
  }
  static std::string PqRefusal(const CacheShape& shape, int subspaces, int bits) {
    const std::string name = "pq" + std::to_string(subspaces) + "x" + std::to_string(bits);
    CacheOptions options = OnGpu();
    options.plan = *ParsePlan(name + ",exact=0");
    options.codebook =
        SharePqCodebook(shape, {{Part::kKey, {subspaces, bits}, CodebookGrain::kHead, false},
                                {Part::kValue, {subspaces, bits}, CodebookGrain::kHead, false}});
    return Cache::Create(shape, std::move(options)).status().ToString();
  }
};

TEST_F(CudaCacheShared, PqWhoseTablesDoNotFitIsRefusedByName) {
  cuda::emulation::SetSharedMemory(kDesktopShared);
  const std::string refusal = PqRefusal(WideShape(128, 1), 64, 8);
  const std::string_view begin =
      "unimplemented: CUDA: layer 0: attention with group_size 1 over pages in pq64x8 needs shared "
      "memory of 1";
  const std::string_view end = " bytes a block > 101376";
  EXPECT_TRUE(refusal.starts_with(begin) && refusal.ends_with(end)) << refusal;
  EXPECT_NE(PqRefusal(WideShape(64, 1), 32, 8), "ok");
  EXPECT_EQ(PqRefusal(WideShape(128, 4), 64, 4), "ok");
  // Groups that have no kernel for pairs of channels need more.
  cuda::emulation::SetSharedMemory(kA100Shared);
  EXPECT_EQ(PqRefusal(WideShape(128, 8), 64, 8), "ok");
  EXPECT_NE(PqRefusal(WideShape(128, 16), 64, 8), "ok");
}

TEST_F(CudaCacheShared, EveryOtherRungFitsEveryDevice) {
  cuda::emulation::SetSharedMemory(kDesktopShared);
  for (const char* plan : {"f16", "bf16,open_rung=bf16", "q8_0", "q4_0r", "t4", "t3", "t2",
                           "age=f16:64/q8_0:128/q8_0r:192/q4_0:256/t4:320/t3:384/t2"}) {
    for (const int group : {1, 8, 16}) {
      for (const auto& [dim, page] :
           {std::pair{64, 64}, {64, 128}, {96, 128}, {128, 64}, {128, 128}, {256, 64}}) {
        EXPECT_EQ(Refusal(WideShape(dim, group, page), plan), "ok")
            << plan << " " << group << " " << dim << " " << page;
      }
    }
  }
}

TEST_F(CudaCacheShared, PagesThatCannotBeEncodedAreRefusedByName) {
  cuda::emulation::SetSharedMemory(kDesktopShared);
  EXPECT_EQ(Refusal(WideShape(256, 2, 128), "q8_0"),
            "unimplemented: CUDA: layer 0: encoding pages with head_dim 256 and page_tokens 128 "
            "needs shared memory of 166912 bytes a block > 101376");
  EXPECT_EQ(Refusal(WideShape(256, 2, 128), "f16"), "ok");  // nothing is encoded
  cuda::emulation::SetSharedMemory(kA100Shared);
  EXPECT_EQ(Refusal(WideShape(256, 2, 128), "q8_0"), "ok");
}

// 163968 bytes for the kernel of prompts.
TEST_F(CudaCacheShared, PromptsWhoseKernelDoesNotFitAreAttendedQueryByQuery) {
  const CacheShape shape = WideShape(256, 2);
  const RetentionWork work(shape, 100);
  RetentionRun cpu(shape, "q8_0", work);
  const SequenceId cpu_id = *cpu.cache->CreateSequence();
  ASSERT_NO_FATAL_FAILURE(cpu.Feed(cpu_id, 80, 40));
  const std::vector<float>& want = cpu.outputs.at({cpu_id.value, 0});
  for (const size_t shared : {kDesktopShared, kA100Shared}) {
    cuda::emulation::SetSharedMemory(shared);
    RetentionRun gpu(shape, "q8_0", work, OnGpu());
    const SequenceId gpu_id = *gpu.cache->CreateSequence();
    ASSERT_NO_FATAL_FAILURE(gpu.Feed(gpu_id, 80, 40));
    const std::vector<float>& got = gpu.outputs.at({gpu_id.value, 0});
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-2) << shared;
  }
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
