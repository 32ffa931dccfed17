// The rung of a strip to the code that reads it.

#ifndef VARVE_CUDA_RUNG_DISPATCH_CUH_
#define VARVE_CUDA_RUNG_DISPATCH_CUH_

#include "cuda/key_scores.cuh"
#include "cuda/pq_attend.cuh"
#include "cuda/query_setup.cuh"
#include "cuda/turned_values.cuh"
#include "cuda/value_sums.cuh"

namespace varve::cuda {

// Kernels for one rung meet that one and floats; kOnly = 0: all. What is asked of blocks holds for
// their turned kin.
template <int kOnly>
constexpr bool MayMeet(DeviceRung rung) {
  if (rung == DeviceRung::kQ8_0 && kOnly == static_cast<int>(DeviceRung::kQ8_0r)) return true;
  if (rung == DeviceRung::kQ4_0 && kOnly == static_cast<int>(DeviceRung::kQ4_0r)) return true;
  return kOnly == 0 || static_cast<int>(rung) == kOnly || rung == DeviceRung::kF16 ||
         rung == DeviceRung::kBF16;
}

// This lane's view of an order of the queries.
template <int D, int NT, class Shared>
__device__ __forceinline__ QuerySet<D, NT> SetOf(Shared& shared, int order, int offsets,
                                                 const LanePlace& at) {
  return {shared.Set(order) + at.lane, &shared.offsets[offsets][0][2 * at.i]};
}

// Strips of these kernels always fit into 227 KiB of shared memory, but for those of floats. From
// compute capability 12.0 on devices have 99 KiB again, so nothing is assumed there.
template <int D, bool kPq>
__device__ __forceinline__ const std::byte* StripInShared(const std::byte* strip) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
  if constexpr (D <= 128 && !kPq) return InShared(strip);
#endif
  return strip;
}

__device__ __forceinline__ bool IsTurnedRung(DeviceRung rung) {
  return rung == DeviceRung::kT4 || rung == DeviceRung::kT3 || rung == DeviceRung::kT2;
}

// Keys of t4, t3 and t2. Kernels whose warps share each page take no t3 and t2.
template <int D, int NT, int kTiles, bool kPq, int kOnly, class Shared>
__device__ __forceinline__ void TurnedKeyScores(DeviceRung rung, const std::byte* strip,
                                                int page_tokens, int first_tile,
                                                const LanePlace& at, Shared& shared,
                                                Scores<NT, kTiles>& s) {
  const int order = rung == DeviceRung::kT4   ? kOrderT4
                    : rung == DeviceRung::kT3 ? kOrderT3
                                              : kOrderT2;
  const auto query = SetOf<D, NT>(shared, order, kOffsetsTurned, at);
  int sums[kTiles][NT][4];
  if constexpr (MayMeet<kOnly>(DeviceRung::kT4)) {
    if (rung == DeviceRung::kT4) {
      Turned4KeyScores<D, NT, kTiles>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                      query, sums);
    }
  }
  if constexpr (kTiles == 4 && MayMeet<kOnly>(DeviceRung::kT3)) {
    if (rung == DeviceRung::kT3) {
      CellKeyScores<D, NT, kTiles, 3>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                      query, sums);
    }
  }
  if constexpr (kTiles == 4 && MayMeet<kOnly>(DeviceRung::kT2)) {
    if (rung == DeviceRung::kT2) {
      CellKeyScores<D, NT, kTiles, 2>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                      query, sums);
    }
  }
  FinishTurnedScores<D, NT, kTiles>(StripInShared<D, kPq>(strip), first_tile, at, query,
                                    &shared.inverse_unit[2 * at.i],
                                    SetOf<D, NT>(shared, kOrderMean, 0, at), sums, s);
}

template <int NT, int kTiles>
__device__ __forceinline__ void FillScores(float value, Scores<NT, kTiles>& s) {
#pragma unroll
  for (int k = 0; k < 4 * kTiles * NT; ++k) s[k / (4 * NT)][k / 4 % NT][k % 4] = value;
}

// Keys of q8_0, q4_0 and their turned kin.
template <int D, int NT, int kTiles, bool kPq, int kOnly, class Shared>
__device__ __forceinline__ void BlockScores(DeviceRung rung, const std::byte* strip,
                                            int page_tokens, int first_tile, const LanePlace& at,
                                            Shared& shared, Scores<NT, kTiles>& s) {
  const bool turned = rung == DeviceRung::kQ8_0r || rung == DeviceRung::kQ4_0r;
  const int order = turned ? kOrderBlockTurned : kOrderBlock;
  if constexpr (MayMeet<kOnly>(DeviceRung::kQ8_0)) {
    if (rung == DeviceRung::kQ8_0 || rung == DeviceRung::kQ8_0r) {
      const auto set = SetOf<D, NT>(shared, order, turned ? kOffsetsQ8r : kOffsetsQ8, at);
      return BlockKeyScores<D, NT, kTiles, 2>(StripInShared<D, kPq>(strip), page_tokens, first_tile,
                                              at, set, s);
    }
  }
  if constexpr (MayMeet<kOnly>(DeviceRung::kQ4_0)) {
    const auto set = SetOf<D, NT>(shared, order, turned ? kOffsetsQ4r : kOffsetsQ4, at);
    BlockKeyScores<D, NT, kTiles, 1>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at, set,
                                     s);
  }
}

// Scores are in units of the head's factor: of turned keys turned_factor, of others factor
// (BlockShared). kPq: kernels for pq have its tables in shared memory.
template <int D, int NT, int kTiles, bool kPq, int kOnly, class Shared>
__device__ __forceinline__ void ScoreKeys(DeviceRung rung, const std::byte* strip, int page_tokens,
                                          int first_tile, const LanePlace& at, const PqReader& pq,
                                          Shared& shared, Scores<NT, kTiles>& s) {
  const auto set = [&](int order, int offsets = 0) {
    return SetOf<D, NT>(shared, order, offsets, at);
  };
  switch (rung) {
    case DeviceRung::kF16:
      return FloatKeyScores<D, NT, kTiles, false>(strip, first_tile, at, set(kOrderF16),
                                                  set(kOrderF16), s);
    case DeviceRung::kBF16:
      return FloatKeyScores<D, NT, kTiles, true>(strip, first_tile, at, set(kOrderBF16High),
                                                 set(kOrderBF16Low), s);
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ8_0r:
    case DeviceRung::kQ4_0:
    case DeviceRung::kQ4_0r:
      return BlockScores<D, NT, kTiles, kPq, kOnly>(rung, strip, page_tokens, first_tile, at,
                                                    shared, s);
    case DeviceRung::kT4:
    case DeviceRung::kT3:
    case DeviceRung::kT2:
      return TurnedKeyScores<D, NT, kTiles, kPq, kOnly>(rung, strip, page_tokens, first_tile, at,
                                                        shared, s);
    case DeviceRung::kPq:
      if constexpr (kPq) {
        return PqKeyScores<D, NT>(pq, strip, first_tile, at, set(kOrderPq, kOffsetsPq),
                                  &shared.pq_step[2 * at.i], s);
      }
      [[fallthrough]];
    default:
      return FillScores<NT, kTiles>(NAN, s);
  }
}

// Values of floats; those of rows that do not count may be NaN.
template <int D, int NT, int kTiles, bool kBrain>
__device__ __forceinline__ void SumFloats(const std::byte* strip, int page_tokens, int first_tile,
                                          const LanePlace& at, uint64_t live,
                                          const Scores<NT, kTiles>& p, Sums<D, NT>& o) {
  if (live == ~uint64_t{0}) {
    FloatValueSums<D, NT, kTiles, kBrain, true>(strip, page_tokens, first_tile, at, live, p, o);
  } else {
    FloatValueSums<D, NT, kTiles, kBrain, false>(strip, page_tokens, first_tile, at, live, p, o);
  }
}

template <int D, int NT, int kTiles, bool kPq, int kOnly>
__device__ __forceinline__ void SumValues(DeviceRung rung, const std::byte* strip, int page_tokens,
                                          int first_tile, const LanePlace& at, const PqReader& pq,
                                          uint64_t live, const Scores<NT, kTiles>& p,
                                          Sums<D, NT>& o) {
  switch (rung) {
    case DeviceRung::kF16:
      return SumFloats<D, NT, kTiles, false>(strip, page_tokens, first_tile, at, live, p, o);
    case DeviceRung::kBF16:
      return SumFloats<D, NT, kTiles, true>(strip, page_tokens, first_tile, at, live, p, o);
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ8_0r:
      if constexpr (MayMeet<kOnly>(DeviceRung::kQ8_0)) {
        BlockValueSums<D, NT, kTiles, 2>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                         p, o);
      }
      return;
    case DeviceRung::kQ4_0:
    case DeviceRung::kQ4_0r:
      if constexpr (MayMeet<kOnly>(DeviceRung::kQ4_0)) {
        BlockValueSums<D, NT, kTiles, 1>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                         p, o);
      }
      return;
    case DeviceRung::kT4:
      if constexpr (MayMeet<kOnly>(DeviceRung::kT4)) {
        Turned4ValueSums<D, NT, kTiles>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                        p, o);
      }
      return;
    case DeviceRung::kT3:
      if constexpr (kTiles == 4 && MayMeet<kOnly>(DeviceRung::kT3)) {
        CellValueSums<D, NT, kTiles, 3>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                        p, o);
      }
      return;
    case DeviceRung::kT2:
      if constexpr (kTiles == 4 && MayMeet<kOnly>(DeviceRung::kT2)) {
        CellValueSums<D, NT, kTiles, 2>(StripInShared<D, kPq>(strip), page_tokens, first_tile, at,
                                        p, o);
      }
      return;
    case DeviceRung::kPq:
      if constexpr (kPq) PqValueSums<D, NT>(pq, strip, first_tile, at, p, o);
      return;
    default:
      return;
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_RUNG_DISPATCH_CUH_
