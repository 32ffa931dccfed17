// Runs the tests whose names contain an argument, or all. Exits with 77, which ctest takes as
// skipped, where there is no device.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "cuda/testing/check.h"

int main(int argc, char** argv) {
  using varve::cuda::testing::AllTests;
  using varve::cuda::testing::Failures;
  using varve::cuda::testing::TestCase;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device on this machine\n");
    return 77;
  }
  int failed = 0, passed = 0;
  for (const TestCase& test : AllTests()) {
    const auto names = [&](const char* part) { return test.name.find(part) != std::string::npos; };
    if (argc > 1 && std::none_of(argv + 1, argv + argc, names)) continue;
    const int before = Failures();
    const auto start = std::chrono::steady_clock::now();
    test.run();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const bool ok = Failures() == before;
    ok ? ++passed : ++failed;
    std::printf("%s %s (%.2f s)\n", ok ? "ok    " : "FAILED", test.name.c_str(), seconds);
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
