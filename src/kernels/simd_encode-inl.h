// Encoding and the small vector loops of attention, for every target.

#if defined(VARVE_KERNELS_SIMD_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_ENCODE_INL_H_
#undef VARVE_KERNELS_SIMD_ENCODE_INL_H_
#else
#define VARVE_KERNELS_SIMD_ENCODE_INL_H_
#endif

#include <cmath>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/kernel_tables.h"
#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// Highway's Exp gives 0 for NaN; a NaN score must stay visible.
HWY_INLINE VF ExpKeepNan(VF x) {
  const VF y = hn::Exp(DF(), x);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

inline void Softmax(const SoftmaxArgs& args) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const float minus_inf = -std::numeric_limits<float>::infinity();
  const size_t tokens = static_cast<size_t>(args.num_tokens);
  const size_t page_tokens = static_cast<size_t>(args.page_tokens);
  for (int row = 0; row < args.num_rows; ++row) {
    float* scores = args.scores + row * page_tokens;
    // Columns from num_tokens on hold anything; -inf makes their weight zero.
    for (size_t t = tokens; t < page_tokens; ++t) scores[t] = minus_inf;
    VF max = hn::Set(df, minus_inf);
    for (size_t t = 0; t < page_tokens; t += n) max = hn::Max(hn::LoadU(df, scores + t), max);
    const float old_max = args.running_max[row];
    const float page_max = hn::GetLane(hn::MaxOfLanes(df, max));
    const float new_max = HWY_MAX(old_max, page_max);
    if (new_max == minus_inf) {
      VF nans = hn::Zero(df);  // all else is masked
      for (size_t t = 0; t < page_tokens; t += n) {
        const VF score = hn::LoadU(df, scores + t);
        const VF weight = hn::IfThenZeroElse(hn::Eq(score, score), score);
        nans = hn::Add(nans, weight);
        hn::StoreU(weight, df, scores + t);
      }
      args.page_sum[row] = hn::GetLane(hn::SumOfLanes(df, nans));
      args.rescale[row] = 1.0f;
      args.weight_max[row] = 0.0f;
      continue;
    }
    VF sum = hn::Zero(df);
    const VF shift = hn::Set(df, new_max);
    for (size_t t = 0; t < page_tokens; t += n) {
      const VF weight = ExpKeepNan(hn::Sub(hn::LoadU(df, scores + t), shift));
      sum = hn::Add(sum, weight);
      hn::StoreU(weight, df, scores + t);
    }
    args.page_sum[row] = hn::GetLane(hn::SumOfLanes(df, sum));
    args.running_max[row] = new_max;
    args.rescale[row] = old_max == new_max ? 1.0f : std::exp(old_max - new_max);
    // Rounded the same way as the weights, so that it bounds them.
    args.weight_max[row] = hn::GetLane(ExpKeepNan(hn::Set(df, page_max - new_max)));
  }
}

inline void PageMass(const float* page_max, const float* page_sum, size_t count, float log_sum_exp,
                     float* mass) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const VF shift = hn::Set(df, log_sum_exp);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    const VF sum = hn::LoadU(df, page_sum + i);
    const VF share = hn::Mul(sum, ExpKeepNan(hn::Sub(hn::LoadU(df, page_max + i), shift)));
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(df)), share), df, mass + i);
  }
  ScalarKernels().page_mass(page_max + i, page_sum + i, count - i, log_sum_exp, mass + i);
}

inline void Scale(float* values, size_t count, float factor) {
  const DF df;
  const size_t n = hn::Lanes(df);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreU(hn::Mul(hn::LoadU(df, values + i), hn::Set(df, factor)), df, values + i);
  }
  for (; i < count; ++i) values[i] *= factor;
}

inline void AddScaled(float* into, const float* from, size_t count, float factor) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const VF f = hn::Set(df, factor);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreU(hn::MulAdd(f, hn::LoadU(df, from + i), hn::LoadU(df, into + i)), df, into + i);
  }
  for (; i < count; ++i) into[i] += factor * from[i];
}

inline void NarrowF16(const float* values, size_t count, uint16_t* out) {
#if HWY_TARGET == HWY_SSE4
  // No F16C, and Highway 1.0.3 truncates here.
  ScalarKernels().narrow_f16(values, count, out);
#else
  const DF df;
  const hn::Rebind<hwy::float16_t, DF> d16;
  const size_t n = hn::Lanes(df);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(df, values + i)), d16,
               reinterpret_cast<hwy::float16_t*>(out + i));
  }
  ScalarKernels().narrow_f16(values + i, count - i, out + i);
#endif
}

inline void WidenF16(const uint16_t* bits, size_t count, float* out) {
  const DF df;
  const size_t n = hn::Lanes(df);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreU(LoadValues<FloatType::kF16>(reinterpret_cast<const std::byte*>(bits), i), df, out + i);
  }
  ScalarKernels().widen_f16(bits + i, count - i, out + i);
}

// Each stage of the butterfly with partners closer than a vector is a lane permutation by XOR and
// a multiplication by +-1, which rounds exactly like the sum or difference.
inline void Hadamard(float* rows, int num_rows, int dim, int block) {
  const DF df;
  const DI di;
  const size_t n = hn::Lanes(df);
  const size_t run = static_cast<size_t>(block);
  if (run < n) return ScalarKernels().hadamard(rows, num_rows, dim, block);
  const VF norm = hn::Set(df, 1.0f / std::sqrt(static_cast<float>(block)));
  const VI lanes = hn::Iota(di, 0);
  float* const end = rows + static_cast<size_t>(num_rows) * dim;
  for (float* x = rows; x < end; x += run) {
    for (size_t half = 1; half < n; half *= 2) {
      const VI bit = hn::Set(di, static_cast<int32_t>(half));
      const auto partner = hn::IndicesFromVec(df, hn::Xor(lanes, bit));
      const VF sign = hn::IfThenElse(hn::RebindMask(df, hn::Eq(hn::And(lanes, bit), hn::Zero(di))),
                                     hn::Set(df, 1.0f), hn::Set(df, -1.0f));
      for (size_t i = 0; i < run; i += n) {
        const VF v = hn::LoadU(df, x + i);
        hn::StoreU(hn::MulAdd(v, sign, hn::TableLookupLanes(v, partner)), df, x + i);
      }
    }
    for (size_t half = n; half < run; half *= 2) {
      for (size_t i = 0; i < run; i += 2 * half) {
        for (size_t j = i; j < i + half; j += n) {
          const VF a = hn::LoadU(df, x + j);
          const VF b = hn::LoadU(df, x + j + half);
          hn::StoreU(hn::Add(a, b), df, x + j);
          hn::StoreU(hn::Sub(a, b), df, x + j + half);
        }
      }
    }
    for (size_t i = 0; i < run; i += n) hn::StoreU(hn::Mul(hn::LoadU(df, x + i), norm), df, x + i);
  }
}

// roundf: half away from zero. The difference to the truncated value is exact.
HWY_INLINE VF RoundHalfAway(VF x) {
  const DF df;
  const VF whole = hn::Trunc(x);
  const VF one = hn::CopySign(hn::Set(df, 1.0f), x);
  const auto up = hn::Ge(hn::Abs(hn::Sub(x, whole)), hn::Set(df, 0.5f));
  return hn::IfThenElse(up, hn::Add(whole, one), whole);
}

// Blocks that hold a NaN, an over-large value, a tie of signs (q4_0) or a scale whose inverse
// overflows go through the scalar code; so the codes agree with it exactly, always.
template <BlockType kType>
uint64_t QuantizeBlocks(const float* values, size_t count, uint16_t* scales, uint8_t* codes) {
  constexpr bool kQ8 = kType == BlockType::kQ8;
  const DF df;
  const size_t n = hn::Lanes(df);
  const float limit = 65504.0f * (kQ8 ? 127.0f : 8.0f);
  uint64_t replaced = 0;
  for (size_t b = 0; b < count; ++b) {
    const float* block = values + b * kBlockValues;
    uint8_t* out = codes + b * BlockCodeBytes(kType);
    VF max = hn::LoadU(df, block);
    VF min = max;
    auto fine = hn::Le(hn::Abs(max), hn::Set(df, limit));
    for (size_t i = n; i < kBlockValues; i += n) {
      const VF x = hn::LoadU(df, block + i);
      max = hn::Max(max, x);
      min = hn::Min(min, x);
      fine = hn::And(fine, hn::Le(hn::Abs(x), hn::Set(df, limit)));
    }
    const float highest = hn::GetLane(hn::MaxOfLanes(df, max));
    const float lowest = hn::GetLane(hn::MinOfLanes(df, min));
    const float scale = kQ8 ? HWY_MAX(highest, -lowest) / 127.0f
                            : (highest > -lowest ? highest : lowest) / -8.0f;
    const float inverse = 1.0f / scale;
    if (!hn::AllTrue(df, fine) || !(std::abs(inverse) <= hwy::HighestValue<float>()) ||
        (!kQ8 && highest == -lowest)) {
      replaced += ScalarKernels().quantize_blocks[static_cast<int>(kType)](block, 1, scales + b, out);
      continue;
    }
    ScalarKernels().narrow_f16(&scale, 1, scales + b);
    const VF factor = hn::Set(df, inverse);
    if constexpr (kQ8) {
      for (size_t i = 0; i < kBlockValues; i += n) {
        const VF scaled = RoundHalfAway(hn::Mul(hn::LoadU(df, block + i), factor));
        StoreLowBytes(hn::ConvertTo(DI(), scaled), out + i);
      }
    } else {
      const auto code = [&](size_t i) HWY_ATTR {
        const VF shifted = hn::Add(hn::Mul(hn::LoadU(df, block + i), factor), hn::Set(df, 8.5f));
        return hn::ConvertTo(DI(), hn::Min(shifted, hn::Set(df, 15.0f)));
      };
      for (size_t i = 0; i < 16; i += n) {
        StoreLowBytes(hn::Or(code(i), hn::ShiftLeft<4>(code(i + 16))), out + i);
      }
    }
  }
  return replaced;
}

inline void PrepareBlockQuery(const float* query, int dim, std::byte* out) {
  const DF df;
  const DI di;
  const size_t n = hn::Lanes(df);
  const size_t blocks = static_cast<size_t>(dim) / kBlockValues;
  float* scales = reinterpret_cast<float*>(out);
  int32_t* hi_sum = reinterpret_cast<int32_t*>(out) + blocks;
  int32_t* lo_sum = hi_sum + blocks;
  uint8_t* hi = reinterpret_cast<uint8_t*>(lo_sum + blocks);
  uint8_t* lo = hi + dim;
  for (size_t b = 0; b < blocks; ++b) {
    const float* block = query + b * kBlockValues;
    VF max = hn::Zero(df);
    auto finite = hn::Lt(max, hn::Set(df, 1.0f));
    for (size_t i = 0; i < kBlockValues; i += n) {
      const VF x = hn::Abs(hn::LoadU(df, block + i));
      max = hn::Max(max, x);
      finite = hn::And(finite, hn::Le(x, hn::Set(df, hwy::HighestValue<float>())));
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(df, max));
    const bool all_finite = hn::AllTrue(df, finite);
    scales[b] = all_finite ? largest / 32512.0f : std::numeric_limits<float>::quiet_NaN();
    float inverse = largest / 32512.0f > 0.0f ? 32512.0f / largest : 0.0f;
    if (!all_finite || !(inverse <= hwy::HighestValue<float>())) inverse = 0.0f;
    VI high_total = hn::Zero(di);
    VI total = hn::Zero(di);
    for (size_t i = 0; i < kBlockValues; i += n) {
      const VF x = all_finite ? hn::LoadU(df, block + i) : hn::Zero(df);
      const VI code = hn::NearestInt(hn::Mul(x, hn::Set(df, inverse)));
      const VI high = hn::ShiftRight<8>(hn::Add(code, hn::Set(di, 128)));
      high_total = hn::Add(high_total, high);
      total = hn::Add(total, code);
      StoreLowBytes(high, hi + b * kBlockValues + i);
      StoreLowBytes(code, lo + b * kBlockValues + i);
    }
    hi_sum[b] = hn::GetLane(hn::SumOfLanes(di, high_total));
    lo_sum[b] = hn::GetLane(hn::SumOfLanes(di, total)) - 256 * hi_sum[b];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
