// The tests of cuda_model_tests.cc on a real GPU; exits with 77, visibly, where there is none.

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "tests/cuda/model_sides.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::unique_ptr<varve::Executor> executor = varve::MakeThreadPool(1);
  const auto model = varve::LlamaModel::Random(varve::Plain(), varve::WeightType::kF16, 5);
  const varve::Status status = (*model)->PlaceOnGpu(0, *executor).status();
  if (status.code() == varve::StatusCode::kNotFound) {
    std::printf("skipped: %s\n", status.ToString().c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
