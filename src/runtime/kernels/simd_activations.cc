// The activations for every Highway target, from one source; see simd_kernels.cc.

#define HWY_WANT_AVX3_DL 1  // AVX-512 with VNNI: Ice Lake, Zen 4 and later

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/simd_table_list.h"
#include "runtime/kernels/activations_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/simd_activations.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// A vector's worth of what is left of a row, zeros behind it: the last values take the same path as
// the others.
struct RowEnd {
  alignas(64) float values[kTileTokens] = {};
  RowEnd(const float* from, int count) { std::memcpy(values, from, count * sizeof(float)); }
};

// out = function(a, b), vector by vector.
template <class Function>
HWY_INLINE void MapRow(const float* a, const float* b, int n, float* out, Function&& function) {
  const DF df;
  const int step = static_cast<int>(hn::Lanes(df));
  int i = 0;
  for (; i + step <= n; i += step) {
    hn::StoreU(function(hn::LoadU(df, a + i), hn::LoadU(df, b + i)), df, out + i);
  }
  if (i == n) return;
  const RowEnd end_a(a + i, n - i);
  const RowEnd end_b(b + i, n - i);
  alignas(64) float result[kTileTokens];
  hn::Store(function(hn::Load(df, end_a.values), hn::Load(df, end_b.values)), df, result);
  std::memcpy(out + i, result, (n - i) * sizeof(float));
}

// e^x for x <= 0, 0 below -87, within 2 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, and the series of
// e^r, whose first term left out is below 6e-9.
HWY_INLINE VF ExpOfNegative(VF x) {
  const DF df;
  const DI di;
  const VF bounded = hn::Max(x, hn::Set(df, -87.0f));
  const VF n = hn::Round(hn::Mul(bounded, hn::Set(df, 1.44269504f)));
  // ln 2 in two parts, the first with few enough bits for exact products.
  const VF coarse = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), bounded);
  const VF r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), coarse);
  VF p = hn::Set(df, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  // n >= -126: the power of two is a normal number.
  const VI exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const VF y = hn::Mul(p, hn::BitCast(df, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -87.0f)), y);
}

// 1 / (1 + e^-x); NaN only for NaN, which the caller's product with x keeps anyway.
HWY_INLINE VF SigmoidOf(VF x) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  const VF e = ExpOfNegative(hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(df)), e, one), hn::Add(one, e));
}

inline void RmsNormRow(const float* x, const float* weight, int n, float epsilon, float* out) {
  const DF df;
  const int step = static_cast<int>(hn::Lanes(df));
  VF sums[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  int i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    for (int k = 0; k < 4; ++k) {
      const VF value = hn::LoadU(df, x + i + k * step);
      sums[k] = hn::MulAdd(value, value, sums[k]);
    }
  }
  for (; i + step <= n; i += step) {
    const VF value = hn::LoadU(df, x + i);
    sums[0] = hn::MulAdd(value, value, sums[0]);
  }
  if (i < n) {
    const RowEnd end(x + i, n - i);
    const VF value = hn::Load(df, end.values);
    sums[1] = hn::MulAdd(value, value, sums[1]);
  }
  const VF total = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  const float mean = hn::GetLane(hn::SumOfLanes(df, total)) / static_cast<float>(n);
  const VF scale = hn::Set(df, 1.0f / std::sqrt(mean + epsilon));
  if (weight == nullptr) {
    MapRow(x, x, n, out, [=](VF a, VF) HWY_ATTR { return hn::Mul(a, scale); });
  } else {
    MapRow(x, weight, n, out, [=](VF a, VF b) HWY_ATTR { return hn::Mul(hn::Mul(a, scale), b); });
  }
}

// The sum of function(x[i]), in an order that depends on n alone.
template <class Function>
HWY_INLINE float SumRow(const float* x, int n, Function&& function) {
  const DF df;
  const int step = static_cast<int>(hn::Lanes(df));
  VF sums[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  int i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    for (int k = 0; k < 4; ++k) {
      sums[k] = hn::Add(sums[k], function(hn::LoadU(df, x + i + k * step)));
    }
  }
  for (; i + step <= n; i += step) sums[0] = hn::Add(sums[0], function(hn::LoadU(df, x + i)));
  const VF total = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  float sum = hn::GetLane(hn::SumOfLanes(df, total));
  if (i < n) {
    const RowEnd end(x + i, n - i);
    alignas(64) float results[kTileTokens] = {};
    hn::Store(function(hn::Load(df, end.values)), df, results);
    for (int k = 0; k < n - i; ++k) sum += results[k];
  }
  return sum;
}

inline void LayerNormRow(const float* x, const float* weight, const float* bias, int n,
                         float epsilon, float* out) {
  const DF df;
  const float mean = SumRow(x, n, [](VF a) HWY_ATTR { return a; }) / static_cast<float>(n);
  const VF means = hn::Set(df, mean);
  const float squares = SumRow(x, n, [=](VF a) HWY_ATTR {
    const VF difference = hn::Sub(a, means);
    return hn::Mul(difference, difference);
  });
  const VF scale = hn::Set(df, 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon));
  MapRow(x, weight, n, out,
         [=](VF a, VF w) HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(a, means), scale), w); });
  MapRow(out, bias, n, out, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}

inline void SwiGluRow(const float* gate, const float* up, int n, float* out) {
  MapRow(gate, up, n, out,
         [](VF g, VF u) HWY_ATTR { return hn::Mul(hn::Mul(g, SigmoidOf(g)), u); });
}

inline void GeluTanhGluRow(const float* gate, const float* up, int n, float* out) {
  MapRow(gate, up, n, out, [](VF g, VF u) HWY_ATTR {
    const DF df;
    const VF cube = hn::Mul(hn::Mul(g, g), g);
    const VF inner = hn::MulAdd(cube, hn::Set(df, 0.044715f), g);
    const VF share = SigmoidOf(hn::Mul(inner, hn::Set(df, 1.59576912f)));  // 2 sqrt(2 / pi)
    return hn::Mul(hn::Mul(g, share), u);
  });
}

// x times the normal distribution's mass below x, whose tail is 7.1.26 of Abramowitz and Stegun:
// e^(-z^2) (a1 t + ... + a5 t^5) / 2 with z = |x| / sqrt(2), t = 1 / (1 + p z), within 0.8e-7.
inline void GeluRow(const float* x, int n, float* out) {
  MapRow(x, x, n, out, [](VF a, VF) HWY_ATTR {
    const DF df;
    const VF one = hn::Set(df, 1.0f);
    const VF size = hn::Abs(a);
    const VF t = hn::Div(one, hn::MulAdd(size, hn::Set(df, 0.231641888f), one));  // p / sqrt(2)
    VF p = hn::Set(df, 1.061405429f);
    p = hn::MulAdd(p, t, hn::Set(df, -1.453152027f));
    p = hn::MulAdd(p, t, hn::Set(df, 1.421413741f));
    p = hn::MulAdd(p, t, hn::Set(df, -0.284496736f));
    p = hn::MulAdd(p, t, hn::Set(df, 0.254829592f));
    const VF e = ExpOfNegative(hn::Mul(hn::Mul(size, size), hn::Set(df, -0.5f)));
    const VF tail = hn::Mul(hn::Mul(hn::Mul(p, t), e), hn::Set(df, 0.5f));
    return hn::Mul(a, hn::IfThenElse(hn::Lt(a, hn::Zero(df)), tail, hn::Sub(one, tail)));
  });
}

inline void AddRow(float* x, const float* y, int n) {
  MapRow(x, y, n, x, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}

const ActivationKernels& ActivationTable(const char* name) {
  static const ActivationKernels table = {
      .name = name,
      .rms_norm = RmsNormRow,
      .layer_norm = LayerNormRow,
      .swi_glu = SwiGluRow,
      .gelu_tanh_glu = GeluTanhGluRow,
      .gelu = GeluRow,
      .add_in_place = AddRow,
  };
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const ActivationKernels*> SimdActivationKernels() {
  VARVE_SIMD_TABLES(ActivationKernels, ActivationTable);
}

}  // namespace varve
#endif  // HWY_ONCE
