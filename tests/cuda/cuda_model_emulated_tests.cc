// Models on a GPU where only the emulated device can be asked: what happens when it is lost, and
// kernels by themselves on memory of the host.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/half.h"
#include "cuda/emulation/runtime.h"
#include "cuda/layers/layer_kernels.h"
#include "tests/cuda/model_sides.h"

namespace varve {
namespace cuda_model_tests {

TEST(CudaModel, AStepOnALostDeviceLeavesTheCacheAsItWas) {
  Sides sides(Plain(), WeightType::kF16);
  const SequenceId sequence = *sides.gpu->cache->CreateSequence();
  sides.gpu->Read(sequence, Tokens(20, 1));
  std::vector<float> logits(96);
  const DecodeEntry entry = {sequence, 3};
  cuda::emulation::SetDeviceLost(true);
  EXPECT_FALSE(sides.gpu->runner->Decode(*sides.gpu->cache, {&entry, 1}, logits.data()).ok());
  cuda::emulation::SetDeviceLost(false);
  EXPECT_EQ(*sides.gpu->cache->NextPosition(sequence), 20);
  const SequenceId twin = *sides.cpu->cache->CreateSequence();
  sides.cpu->Read(twin, Tokens(20, 1));
  EXPECT_LT(RelativeError(sides.gpu->Decode({entry}), sides.cpu->Decode({{twin, 3}})), kF16Error);
}

TEST(CudaModel, WithoutADeviceTheErrorSaysSo) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const auto model = LlamaModel::Random(Plain(), WeightType::kF16, 5);
  ASSERT_OK(model.status());
  EXPECT_EQ((*model)->PlaceOnGpu(3, *executor).status().ToString(),
            "not found: CUDA: device 3 of 1");
}

// Values that f16 does not hold become its largest; NaN stays to be seen.
TEST(CudaLayers, ValuesBeyondF16BecomeItsLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up = {1e6f, -3.0f, nan, 2.0f, 1e3f, 1e9f, 1.0f, 0.5f};
  std::vector<uint16_t> out(4);
  ASSERT_TRUE(
      cuda::GateUp({.gate_up = gate_up.data(), .rows = 1, .dim = 4, .out = out.data()}, nullptr)
          .ok());
  EXPECT_EQ(F16ToF32(out[0]), 65504.0f);
  EXPECT_EQ(F16ToF32(out[1]), -65504.0f);
  EXPECT_TRUE(std::isnan(F16ToF32(out[2])));
  EXPECT_NEAR(F16ToF32(out[3]), 0.8808f, 1e-3f);
  ASSERT_TRUE(cuda::GateUp({.gate_up = gate_up.data(),
                            .rows = 1,
                            .dim = 4,
                            .type = cuda::HalfType::kBF16,
                            .out = out.data()},
                           nullptr)
                  .ok());
  EXPECT_NEAR(BF16ToF32(out[0]), 1e9f, 1e7f);
}

}  // namespace cuda_model_tests
}  // namespace varve
