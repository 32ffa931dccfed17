// The smallest test framework: the tests of src/cuda build with nvcc and a C++ compiler alone, on
// machines that have no GoogleTest.
//
//   VARVE_CUDA_TEST(Suite, Promise) { EXPECT(x == y); EXPECT_NEAR_REL(...); }

#ifndef VARVE_CUDA_TESTING_CHECK_H_
#define VARVE_CUDA_TESTING_CHECK_H_

#include <cstdio>
#include <string>
#include <vector>

namespace varve::cuda::testing {

struct TestCase {
  std::string name;
  void (*run)();
};

inline std::vector<TestCase>& AllTests() {
  static std::vector<TestCase> tests;
  return tests;
}
inline int& Failures() {
  static int failures = 0;
  return failures;
}
struct Register {
  Register(const char* suite, const char* name, void (*run)()) {
    AllTests().push_back({std::string(suite) + "." + name, run});
  }
};

#define VARVE_CUDA_TEST(suite, name)                                                       \
  static void suite##_##name();                                                            \
  static const ::varve::cuda::testing::Register register_##suite##_##name(#suite, #name,   \
                                                                          suite##_##name); \
  static void suite##_##name()

// Counts a failure and says what was wrong, printf-like.
#define CHECK_THAT(condition, ...)                                          \
  do {                                                                      \
    if (!(condition)) {                                                     \
      ++::varve::cuda::testing::Failures();                                 \
      std::printf("%s:%d: %s is not so: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                             \
      std::printf("\n");                                                    \
    }                                                                       \
  } while (0)

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_CHECK_H_
