// Encoding and the small vector loops of attention, for every target.

#if defined(VARVE_KERNELS_SIMD_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_ENCODE_INL_H_
#undef VARVE_KERNELS_SIMD_ENCODE_INL_H_
#else
#define VARVE_KERNELS_SIMD_ENCODE_INL_H_
#endif

#include <cmath>

#include "kernels/kernel_tables.h"
#include "kernels/simd_primitives-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// exp(x) for x <= 0; 0 below -87.3 and for -inf, NaN for NaN. Relative error below 3e-7 + 2e-8 |x|,
// and exp(0) is 1. Highway's Exp is more exact for very small results, twice as slow, and gives 0
// for NaN.
//   x = n ln 2 + r, |r| <= ln 2 / 2;  e^r by a polynomial of degree 5 (Chebyshev nodes)
HWY_INLINE VF ExpNonPositive(VF x) {
  const DF df;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // NaN is the second operand, so it stays.
  const VF bounded = VF{_mm512_max_ps(_mm512_set1_ps(-110.0f), x.raw)};
  const VF n = hn::Round(hn::Mul(bounded, hn::Set(df, 1.44269504f)));
#else
  const VF bounded = x;
  const VI whole = NearestLevel(hn::Mul(x, hn::Set(df, 1.44269504f)));
  const VF n = hn::ConvertTo(df, whole);
#endif
#if HWY_NATIVE_FMA
  const VF r = hn::NegMulAdd(n, hn::Set(df, 0.693147182f), bounded);
#else
  // Without a fused product ln 2 comes in two parts, the first with few enough bits to be exact.
  const VF coarse = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), bounded);
  const VF r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), coarse);
#endif
  VF p = hn::Set(df, 0.00836914871f);
  p = hn::MulAdd(p, r, hn::Set(df, 0.0419175066f));
  p = hn::MulAdd(p, r, hn::Set(df, 0.166665047f));
  p = hn::MulAdd(p, r, hn::Set(df, 0.499988705f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // At the bound the result is below 2^-126; the mask makes it 0, as it does elsewhere.
  const VF y = VF{_mm512_scalef_ps(p.raw, n.raw)};
#else
  const DI di;
  const VF y = hn::Mul(p, hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(whole, hn::Set(di, 127)))));
#endif
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -87.3f)), y);
}

// One row; `max` is finite, +inf or NaN.
HWY_INLINE float WeightsOfRow(const SoftmaxArgs& args, float* scores, float max, float* page_sums,
                              LinePrefetcher& prefetcher) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const size_t page_tokens = static_cast<size_t>(args.page_tokens);
  const VF shift = hn::Set(df, max);
  VF total = hn::Zero(df);
  for (int page = 0; page < args.num_pages; ++page, scores += page_tokens) {
    VF sum = hn::Zero(df);
    prefetcher.Lines<4>();
    for (size_t t = 0; t < page_tokens; t += n) {
      const VF weight = ExpNonPositive(hn::Sub(hn::LoadU(df, scores + t), shift));
      sum = hn::Add(sum, weight);
      hn::StoreU(weight, df, scores + t);
    }
    if (page_sums != nullptr) page_sums[page] = hn::GetLane(hn::SumOfLanes(df, sum));
    total = hn::Add(total, sum);
  }
  return hn::GetLane(hn::SumOfLanes(df, total));
}

inline void Softmax(const SoftmaxArgs& args) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const float minus_inf = -std::numeric_limits<float>::infinity();
  const size_t columns = static_cast<size_t>(args.num_pages) * args.page_tokens;
  LinePrefetcher prefetcher(args.ahead);
  for (int row = 0; row < args.num_rows; ++row) {
    float* scores = args.scores + row * args.stride;
    VF max0 = hn::Set(df, minus_inf);
    VF max1 = max0;
    size_t i = 0;
    for (; i + 2 * n <= columns; i += 2 * n) {
      max0 = hn::Max(hn::LoadU(df, scores + i), max0);
      max1 = hn::Max(hn::LoadU(df, scores + i + n), max1);
    }
    if (i < columns) max0 = hn::Max(hn::LoadU(df, scores + i), max0);
    const float max = hn::GetLane(hn::MaxOfLanes(df, hn::Max(max0, max1)));
    if (max == minus_inf) {  // nothing visible: the scalar code keeps NaN
      SoftmaxArgs one = args;
      one.scores = scores;
      one.num_rows = 1;
      one.max = args.max + row;
      one.sum = args.sum + row;
      if (args.page_sum != nullptr) one.page_sum = args.page_sum + row * args.num_pages;
      ScalarKernels().softmax(one);
      continue;
    }
    float* page_sums = args.page_sum == nullptr ? nullptr : args.page_sum + row * args.num_pages;
    args.sum[row] = WeightsOfRow(args, scores, max, page_sums, prefetcher);
    args.max[row] = max;
  }
  prefetcher.Save();
}

inline void PageMass(const float* page_max, const float* page_sum, size_t count, float log_sum_exp,
                     float* mass) {
  const DF df;
  const size_t n = hn::Lanes(df);
  const VF shift = hn::Set(df, log_sum_exp);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    const VF sum = hn::LoadU(df, page_sum + i);
    const VF share = hn::Mul(sum, ExpNonPositive(hn::Sub(hn::LoadU(df, page_max + i), shift)));
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(df)), share), df, mass + i);
  }
  ScalarKernels().page_mass(page_max + i, page_sum + i, count - i, log_sum_exp, mass + i);
}

// kCount vectors at once: each is a chain of products that wait for each other.
template <int kCount>
HWY_INLINE void MergeVectors(float* into, size_t at, std::span<const MergeTerm> terms) {
  const DF df;
  const size_t n = hn::Lanes(df);
  VF sum[kCount];
  for (int v = 0; v < kCount; ++v) sum[v] = hn::LoadU(df, into + at + v * n);
  for (const MergeTerm& term : terms) {
    for (int v = 0; v < kCount; ++v) sum[v] = hn::Mul(sum[v], hn::Set(df, term.keep));
    if (term.from == nullptr) continue;
    for (int v = 0; v < kCount; ++v)
      sum[v] = hn::MulAdd(hn::Set(df, term.add), hn::LoadU(df, term.from + at + v * n), sum[v]);
  }
  for (int v = 0; v < kCount; ++v) hn::StoreU(sum[v], df, into + at + v * n);
}

inline void MergeSums(float* into, size_t count, std::span<const MergeTerm> terms) {
  constexpr int kVectors = 8;
  const size_t n = hn::Lanes(DF());
  size_t i = 0;
  for (; i + kVectors * n <= count; i += kVectors * n) MergeVectors<kVectors>(into, i, terms);
  for (; i + n <= count; i += n) MergeVectors<1>(into, i, terms);
  for (; i < count; ++i) {
    for (const MergeTerm& term : terms) {
      into[i] *= term.keep;
      if (term.from != nullptr) into[i] += term.add * term.from[i];
    }
  }
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
    hn::StoreU(LoadValues<FloatType::kF16>(reinterpret_cast<const std::byte*>(bits), i), df,
               out + i);
  }
  ScalarKernels().widen_f16(bits + i, count - i, out + i);
}

// Partners closer than a vector: a lane permutation by XOR and a multiplication by +-1, which
// rounds exactly like the sum or difference.
inline void Hadamard(float* rows, int num_rows, int dim, int block) {
  const DF df;
  const DI di;
  const size_t n = hn::Lanes(df);
  const size_t run = static_cast<size_t>(block);
  if (run < n) return ScalarKernels().hadamard(rows, num_rows, dim, block);
  const VF norm = hn::Set(df, 1.0f / std::sqrt(static_cast<float>(block)));
  const VI lanes = hn::Iota(di, 0);
  const auto partner = [&](int half) HWY_ATTR {
    return hn::IndicesFromVec(df, hn::Xor(lanes, hn::Set(di, half)));
  };
  const auto sign = [&](int half) HWY_ATTR {
    return hn::IfThenElse(
        hn::RebindMask(df, hn::Eq(hn::And(lanes, hn::Set(di, half)), hn::Zero(di))),
        hn::Set(df, 1.0f), hn::Set(df, -1.0f));
  };
  const size_t half8 = n > 8 ? 8 : 0;
  const size_t half4 = n > 4 ? 4 : 0;
  const auto partner1 = partner(1), partner2 = partner(2);
  const auto partner4 = partner(half4), partner8 = partner(half8);
  const VF sign1 = sign(1), sign2 = sign(2), sign4 = sign(4), sign8 = sign(8);
  float* const end = rows + static_cast<size_t>(num_rows) * dim;
  for (float* x = rows; x < end; x += run) {
    for (size_t i = 0; i < run; i += n) {
      VF v = hn::LoadU(df, x + i);
      v = hn::MulAdd(v, sign1, hn::TableLookupLanes(v, partner1));
      v = hn::MulAdd(v, sign2, hn::TableLookupLanes(v, partner2));
      if (half4 != 0) v = hn::MulAdd(v, sign4, hn::TableLookupLanes(v, partner4));
      if (half8 != 0) v = hn::MulAdd(v, sign8, hn::TableLookupLanes(v, partner8));
      hn::StoreU(run == n ? hn::Mul(v, norm) : v, df, x + i);
    }
    for (size_t half = n; half < run; half *= 2) {
      const bool last = 2 * half == run;
      for (size_t i = 0; i < run; i += 2 * half) {
        for (size_t j = i; j < i + half; j += n) {
          const VF a = hn::LoadU(df, x + j);
          const VF b = hn::LoadU(df, x + j + half);
          const VF sum = hn::Add(a, b);
          const VF difference = hn::Sub(a, b);
          hn::StoreU(last ? hn::Mul(sum, norm) : sum, df, x + j);
          hn::StoreU(last ? hn::Mul(difference, norm) : difference, df, x + j + half);
        }
      }
    }
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

// Blocks with a NaN, a value that is too large, a tie of signs (q4_0) or a scale whose inverse
// overflows go through the scalar code, so that codes always agree with it exactly.
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
    const float scale =
        kQ8 ? HWY_MAX(highest, -lowest) / 127.0f : (highest > -lowest ? highest : lowest) / -8.0f;
    const float inverse = 1.0f / scale;
    if (!hn::AllTrue(df, fine) || !(std::abs(inverse) <= hwy::HighestValue<float>()) ||
        (!kQ8 && highest == -lowest)) {
      replaced +=
          ScalarKernels().quantize_blocks[static_cast<int>(kType)](block, 1, scales + b, out);
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
  float* scales4 = scales + blocks;
  int32_t* hi_offset8 = reinterpret_cast<int32_t*>(out) + 2 * blocks;
  int32_t* lo_offset8 = hi_offset8 + blocks;
  int32_t* hi_offset4 = lo_offset8 + blocks;
  uint8_t* hi = reinterpret_cast<uint8_t*>(hi_offset4 + blocks);
  uint8_t* lo = hi + dim;
  int16_t* pairs = reinterpret_cast<int16_t*>(lo + dim);
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
    scales4[b] = 256.0f * scales[b];
    float inverse = largest / 32512.0f > 0.0f ? 32512.0f / largest : 0.0f;
    if (!all_finite || !(inverse <= hwy::HighestValue<float>())) inverse = 0.0f;
    VI high_total = hn::Zero(di);
    VI total = hn::Zero(di);
    for (size_t i = 0; i < kBlockValues; i += 2 * n) {
      VI pair[2];
      for (size_t half = 0; half < 2; ++half) {
        const size_t at = b * kBlockValues + i + half * n;
        const VF x = all_finite ? hn::LoadU(df, query + at) : hn::Zero(df);
        const VI code = hn::NearestInt(hn::Mul(x, hn::Set(df, inverse)));
        const VI high = hn::ShiftRight<8>(hn::Add(code, hn::Set(di, 128)));
        high_total = hn::Add(high_total, high);
        total = hn::Add(total, code);
        StoreLowBytes(high, hi + at);
        StoreLowBytes(code, lo + at);
        // Of each four lanes the first two become (0, 2) and (1, 3).
        pair[half] =
            hn::Or(hn::And(code, hn::Set(di, 0xFFFF)), hn::ShiftLeft<16>(hn::Shuffle1032(code)));
      }
      const hn::Repartition<int64_t, DI> d64;
      const auto packed = hn::ConcatEven(d64, hn::BitCast(d64, pair[1]), hn::BitCast(d64, pair[0]));
      hn::StoreU(hn::BitCast(di, packed), di,
                 reinterpret_cast<int32_t*>(pairs + b * kBlockValues + i));
    }
    const int32_t hi_sum = hn::GetLane(hn::SumOfLanes(di, high_total));
    const int32_t lo_sum = hn::GetLane(hn::SumOfLanes(di, total)) - 256 * hi_sum;
    hi_offset8[b] = -128 * hi_sum;
    lo_offset8[b] = -128 * lo_sum;
    hi_offset4[b] = -8 * hi_sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
