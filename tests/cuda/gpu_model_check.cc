// The tests of cuda_model_tests.cc on a real GPU; exits with 77, visibly, where there is none,
// unless VARVE_NEED_GPU is 1. Where there is one but no cuBLASLt, they fail.

#include <gtest/gtest.h>

#include <cstdio>

#include "attention/backend.h"
#include "tests/cuda/need_gpu.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (varve::LinkedCudaDevices().empty()) {
    std::printf("%s: no CUDA device\n", varve::NeedGpu() ? "VARVE_NEED_GPU=1" : "skipped");
    return varve::NeedGpu() ? 1 : 77;
  }
  return RUN_ALL_TESTS();
}
