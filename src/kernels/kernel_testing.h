// What the tests of kernels and rungs share: random numbers that are the same everywhere, buffers
// that notice a write past their ends, and the list of tables to test. Not part of the library.

#ifndef VARVE_KERNELS_KERNEL_TESTING_H_
#define VARVE_KERNELS_KERNEL_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "kernels/kernels.h"

namespace varve {

// Relative error of one f32 rounding.
inline constexpr double kUnitRoundoff = 0x1p-24;

// gtest prints a table by its name.
inline void PrintTo(const Kernels* kernels, std::ostream* os) { *os << kernels->name; }

inline std::vector<const Kernels*> AllTables() {
  const auto tables = AvailableKernels();
  return {tables.begin(), tables.end()};
}

inline std::string TableName(const testing::TestParamInfo<const Kernels*>& info) {
  return info.param->name;
}

// A suite that runs once per table of this machine.
class EveryTable : public testing::TestWithParam<const Kernels*> {};

// Puts a table in use until the end of the scope.
class ScopedKernels {
 public:
  explicit ScopedKernels(const Kernels& kernels) : before_(ActiveKernels()) {
    SetActiveKernels(kernels);
  }
  ~ScopedKernels() { SetActiveKernels(before_); }
  ScopedKernels(const ScopedKernels&) = delete;
  ScopedKernels& operator=(const ScopedKernels&) = delete;

 private:
  const Kernels& before_;
};

class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : bits_(seed) {}

  uint64_t Bits() { return bits_.Next(); }
  // In [0, 1).
  float Uniform() { return static_cast<float>(Bits() >> 40) * 0x1p-24f; }
  float Gaussian() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(Uniform())));
    return static_cast<float>(radius * std::cos(6.283185307179586 * Uniform()));
  }
  std::vector<float> Gaussians(size_t count) {
    std::vector<float> values(count);
    for (float& x : values) x = Gaussian();
    return values;
  }

 private:
  SplitMix64 bits_;
};

// `count` values between two zones that nobody may write. Inputs of kernels are plain vectors of
// the exact size instead, so that AddressSanitizer sees reads past the end.
template <typename T>
class GuardedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit GuardedBuffer(size_t count)
      : count_(count), bytes_(count * sizeof(T) + 2 * kZone, kMark) {}

  T* data() { return reinterpret_cast<T*>(bytes_.data() + kZone); }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return count_; }
  void Fill(T value) {
    for (size_t i = 0; i < count_; ++i) data()[i] = value;
  }
  void Assign(const std::vector<T>& values) {
    ASSERT_EQ(values.size(), count_);
    std::copy(values.begin(), values.end(), data());
  }
  bool ZonesIntact() const {
    for (size_t i = 0; i < kZone; ++i) {
      if (bytes_[i] != kMark || bytes_[bytes_.size() - 1 - i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kZone = 256;  // four vectors of the widest target
  static constexpr uint8_t kMark = 0xA5;
  size_t count_;
  std::vector<uint8_t> bytes_;
};

inline uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

}  // namespace varve

#endif  // VARVE_KERNELS_KERNEL_TESTING_H_
