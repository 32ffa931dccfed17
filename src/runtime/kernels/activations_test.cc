// Activations against double precision, on every table, at awkward lengths and values.

#include "runtime/kernels/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernel_testing.h"

namespace varve {
namespace activations_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Activations : public EveryTable {
 protected:
  ScopedKernels scope_{*GetParam()};
};

double Silu(double x) { return x / (1.0 + std::exp(-x)); }
double Gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_P(Activations, RmsNormIsWithinRounding) {
  for (const int n : {1, 3, 15, 16, 17, 31, 33, 64, 65, 1000, 4096}) {
    const std::vector<float> x = TestRandom(1).Gaussians(n);
    const std::vector<float> weight = TestRandom(2).Gaussians(n);
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * v;
    const double scale = 1.0 / std::sqrt(sum / n + 1e-5);
    for (const bool with_weight : {true, false}) {
      GuardedBuffer<float> out(n);
      RmsNorm(x.data(), with_weight ? weight.data() : nullptr, n, 1e-5f, out.data());
      EXPECT_TRUE(out.ZonesIntact());
      for (int i = 0; i < n; ++i) {
        const double expected = x[i] * scale * (with_weight ? weight[i] : 1.0f);
        // The sum's error, halved by the root, and three roundings; the scalar sum adds in a row.
        EXPECT_NEAR(out[i], expected, std::abs(expected) * (2e-6 + n * 2e-8)) << n << " at " << i;
      }
    }
  }
}

TEST_P(Activations, RmsNormDoesNotDependOnTheAlignment) {
  const std::vector<float> x = TestRandom(1).Gaussians(100);
  std::vector<float> first;
  for (int offset = 0; offset < 16; ++offset) {
    std::vector<float> at(offset + 100);
    std::copy(x.begin(), x.end(), at.begin() + offset);
    RmsNorm(at.data() + offset, nullptr, 100, 1e-6f, at.data() + offset);  // in place
    const std::vector<float> out(at.begin() + offset, at.end());
    if (first.empty()) first = out;
    EXPECT_EQ(out, first);
  }
}

TEST_P(Activations, LayerNormIsWithinRounding) {
  for (const int n : {1, 3, 15, 16, 17, 31, 33, 64, 65, 384, 1280}) {
    std::vector<float> x = TestRandom(1).Gaussians(n);
    for (float& value : x) value += 3.0f;  // a mean that a careless variance would drown in
    const std::vector<float> weight = TestRandom(2).Gaussians(n);
    const std::vector<float> bias = TestRandom(3).Gaussians(n);
    double mean = 0, squares = 0;
    for (const float v : x) mean += v / n;
    for (const float v : x) squares += (v - mean) * (v - mean);
    const double scale = 1.0 / std::sqrt(squares / n + 1e-5);
    GuardedBuffer<float> out(n);
    LayerNorm(x.data(), weight.data(), bias.data(), n, 1e-5f, out.data());
    EXPECT_TRUE(out.ZonesIntact());
    for (int i = 0; i < n; ++i) {
      // One value alone is its own mean: what is left of it is rounding, and the scale 316.
      const double tolerance = n == 1 ? 1e-3 : 2e-6 + n * 2e-8;
      EXPECT_NEAR(out[i], (x[i] - mean) * scale * weight[i] + bias[i],
                  tolerance * (1 + std::abs(weight[i]) * scale * 4))
          << n << " at " << i;
    }
  }
}

TEST_P(Activations, GeluIsTheExactForm) {
  std::vector<float> x = {0.0f, -0.0f, 1e-30f, -1e-30f, 100.0f, -100.0f, 1e4f, -1e4f};
  for (float value = -12.0f; value < 12.0f; value += 0.00137f) x.push_back(value);
  const int n = static_cast<int>(x.size());
  GuardedBuffer<float> out(n);
  varve::Gelu(x.data(), n, out.data());
  EXPECT_TRUE(out.ZonesIntact());
  for (int i = 0; i < n; ++i) {
    const double value = x[i];
    EXPECT_NEAR(out[i], value * 0.5 * std::erfc(-value / std::sqrt(2.0)), std::abs(value) * 4e-7)
        << value;
  }
}

TEST_P(Activations, GatedUnitsAreExactToAFewUlp) {
  std::vector<float> gate = {0.0f,   -0.0f,   1e-30f, -1e-30f, 86.9f, -86.9f, -87.5f,
                             100.0f, -100.0f, 1e4f,   -1e4f,   3e38f, -3e38f};
  for (float x = -30.0f; x < 30.0f; x += 0.0137f) gate.push_back(x);
  const std::vector<float> up = TestRandom(2).Gaussians(gate.size());
  const int n = static_cast<int>(gate.size());
  GuardedBuffer<float> silu(n), gelu(n);
  SwiGlu(gate.data(), up.data(), n, silu.data());
  GeluTanhGlu(gate.data(), up.data(), n, gelu.data());
  EXPECT_TRUE(silu.ZonesIntact() && gelu.ZonesIntact());
  for (int i = 0; i < n; ++i) {
    const double expected = Silu(gate[i]) * up[i];
    EXPECT_NEAR(silu[i], expected, std::abs(expected) * 5e-7 + 1e-35 * std::abs(up[i])) << gate[i];
    EXPECT_NEAR(gelu[i], Gelu(gate[i]) * up[i], std::abs(gate[i] * up[i]) * 1e-6 + 1e-35)
        << gate[i];
  }
}

TEST_P(Activations, LengthsAroundTheVectorGiveTheSameValues) {
  const std::vector<float> gate = TestRandom(1).Gaussians(70);
  const std::vector<float> up = TestRandom(2).Gaussians(70);
  std::vector<float> silu(70), gelu(70), sum = gate;
  SwiGlu(gate.data(), up.data(), 70, silu.data());
  GeluTanhGlu(gate.data(), up.data(), 70, gelu.data());
  AddInPlace(sum.data(), up.data(), 70);
  for (int i = 0; i < 70; ++i) EXPECT_EQ(sum[i], gate[i] + up[i]);
  for (int n = 0; n <= 70; ++n) {
    GuardedBuffer<float> out(n);
    SwiGlu(gate.data(), up.data(), n, out.data());
    EXPECT_TRUE(SameBits(out.data(), silu.data(), n)) << n;
    GeluTanhGlu(gate.data(), up.data(), n, out.data());
    EXPECT_TRUE(SameBits(out.data(), gelu.data(), n)) << n;
    std::copy(gate.begin(), gate.begin() + n, out.data());
    AddInPlace(out.data(), up.data(), n);
    EXPECT_TRUE(SameBits(out.data(), sum.data(), n)) << n;
    EXPECT_TRUE(out.ZonesIntact());
  }
}

TEST_P(Activations, NanShowsAndInfinityIsNotMistakenForIt) {
  const std::vector<float> gate = {kNan, 1.0f, kInf, -1e30f};
  const std::vector<float> up = {1.0f, kNan, 1.0f, 1.0f};
  for (const auto function : {SwiGlu, GeluTanhGlu}) {
    float out[4];
    function(gate.data(), up.data(), 4, out);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_EQ(out[2], kInf);
    EXPECT_EQ(out[3], 0.0f);
  }
  float single[4];
  varve::Gelu(gate.data(), 4, single);
  EXPECT_TRUE(std::isnan(single[0]));
  EXPECT_EQ(single[2], kInf);
  float normed[4];
  RmsNorm(gate.data(), nullptr, 4, 1e-5f, normed);
  for (const float x : normed) EXPECT_TRUE(std::isnan(x));
}

INSTANTIATE_TEST_SUITE_P(All, Activations, testing::ValuesIn(AllTables()), TableName);

}  // namespace activations_test
}  // namespace varve
