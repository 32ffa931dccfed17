// The specification of the activations in plain C++ (the table "scalar"), and the choice of table.

#include "runtime/kernels/activations.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/kernels/activations_tables.h"

namespace varve {
namespace {

void ScalarRmsNorm(const float* x, const float* weight, int n, float epsilon, float* out) {
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
  for (int i = 0; i < n; ++i) {
    const float normed = x[i] * scale;
    out[i] = weight != nullptr ? normed * weight[i] : normed;
  }
}

void ScalarLayerNorm(const float* x, const float* weight, const float* bias, int n, float epsilon,
                     float* out) {
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += x[i];
  const float mean = sum / static_cast<float>(n);
  float squares = 0.0f;
  for (int i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
  for (int i = 0; i < n; ++i) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

// 1 / (1 + e^-x), by an exponential that cannot overflow.
float Sigmoid(float x) {
  const float e = std::exp(-std::abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

void ScalarSwiGlu(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = gate[i] * Sigmoid(gate[i]) * up[i];
}

// (1 + tanh z) / 2 = 1 / (1 + e^-2z).
void ScalarGeluTanhGlu(const float* gate, const float* up, int n, float* out) {
  constexpr float kTwiceRoot = 1.59576912f;  // 2 sqrt(2 / pi)
  for (int i = 0; i < n; ++i) {
    const float x = gate[i];
    out[i] = x * Sigmoid(kTwiceRoot * (x + 0.044715f * x * x * x)) * up[i];
  }
}

// The tail is taken by erfc, which does not cancel.
void ScalarGelu(const float* x, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = x[i] * 0.5f * std::erfc(-x[i] * 0.707106781f);
}

void ScalarAddInPlace(float* x, const float* y, int n) {
  for (int i = 0; i < n; ++i) x[i] += y[i];
}

const ActivationKernels kScalar = {
    .name = "scalar",
    .rms_norm = ScalarRmsNorm,
    .layer_norm = ScalarLayerNorm,
    .swi_glu = ScalarSwiGlu,
    .gelu_tanh_glu = ScalarGeluTanhGlu,
    .gelu = ScalarGelu,
    .add_in_place = ScalarAddInPlace,
};

const ActivationKernels& ActiveActivations() {
  // Names are compared here only: a step asks hundreds of times. The best table, which is mostly
  // the active one, comes first.
  using Pair = std::pair<const Kernels*, const ActivationKernels*>;
  static const std::vector<Pair> pairs = [] {
    std::vector<Pair> found;
    for (const ActivationKernels* table : SimdActivationKernels()) {
      found.emplace(found.begin(), FindKernels(table->name), table);
    }
    return found;
  }();
  const Kernels* active = &ActiveKernels();
  for (const auto& [kernels, table] : pairs) {
    if (kernels == active) return *table;
  }
  return kScalar;
}

}  // namespace

void RmsNorm(const float* x, const float* weight, int n, float epsilon, float* out) {
  ActiveActivations().rms_norm(x, weight, n, epsilon, out);
}

void SwiGlu(const float* gate, const float* up, int n, float* out) {
  ActiveActivations().swi_glu(gate, up, n, out);
}

void GeluTanhGlu(const float* gate, const float* up, int n, float* out) {
  ActiveActivations().gelu_tanh_glu(gate, up, n, out);
}

void LayerNorm(const float* x, const float* weight, const float* bias, int n, float epsilon,
               float* out) {
  ActiveActivations().layer_norm(x, weight, bias, n, epsilon, out);
}

void Gelu(const float* x, int n, float* out) { ActiveActivations().gelu(x, n, out); }

void AddInPlace(float* x, const float* y, int n) { ActiveActivations().add_in_place(x, y, n); }

}  // namespace varve
