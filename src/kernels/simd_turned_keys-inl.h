// Queries for turned keys and their scores, for every target. See turned_kernels.h for the layouts
// and scalar_turned.cc for the arithmetic, which is the same.

#if defined(VARVE_KERNELS_SIMD_TURNED_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_KERNELS_SIMD_TURNED_KEYS_INL_H_
#undef VARVE_KERNELS_SIMD_TURNED_KEYS_INL_H_
#else
#define VARVE_KERNELS_SIMD_TURNED_KEYS_INL_H_
#endif

#include <cstring>
#include <limits>

#include "kernels/simd_rows-inl.h"
#include "kernels/simd_turned_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

// kRows consecutive queries, for one strip. The codes are copied side by side, so that all are at
// fixed distances from one address.
template <int kRows>
struct TurnedRows {
  alignas(64) std::byte codes[kRows][kMaxDim];
  float step[kRows];
  float offset[kRows];
  alignas(16) float mean[kReducedRows];  // query . mean
};

template <int kRows>
HWY_INLINE void ReadRows(const KeyScoresArgs& args, int row, TurnedRows<kRows>& rows) {
  const DF df;
  const DI di;
  const size_t dim = static_cast<size_t>(args.dim);
  VF sum[kRows];
  const float* exact[kRows];
  for (int r = 0; r < kRows; ++r) {
    const std::byte* query = args.query + (row + r) * TurnedQueryBytes(args.dim);
    std::memcpy(&rows.step[r], query, 4);
    int32_t offset;
    std::memcpy(&offset, query + 4, 4);
    rows.offset[r] = static_cast<float>(offset);
    rows.step[r] *= kTurnedUnit;
    exact[r] = reinterpret_cast<const float*>(query + kTurnedQueryHeaderBytes);
    sum[r] = hn::Zero(df);
    for (size_t d = 0; d < dim; d += 4 * hn::Lanes(di)) {
      hn::Store(LoadI32(query + TurnedQueryCodes(args.dim) + d), di,
                reinterpret_cast<int32_t*>(rows.codes[r] + d));
    }
  }
  for (size_t d = 0; d < dim; d += hn::Lanes(df)) {
    const VF mean = LoadValues<FloatType::kF16>(args.strip, d);
    for (int r = 0; r < kRows; ++r) sum[r] = hn::MulAdd(mean, hn::LoadU(df, exact[r] + d), sum[r]);
  }
  StoreRowSums(sum, rows.mean);
}

template <int kBits, int kRows, int kTiles>
HWY_INLINE void ScoreTurnedTiles(const KeyScoresArgs& args, const TurnedRows<kRows>& rows, int row,
                                 int tile, LinePrefetcher& prefetcher) {
  const DF df;
  const DI di;
  const size_t blocks = static_cast<size_t>(args.dim) / kTurnedBlock;
  const std::byte* cells = args.strip + TurnedCodesOffset(true, args.dim, args.page_tokens) +
                           tile * blocks * TurnedCellBytes(kBits);
  const VI table = TurnedCell<kBits>::ByteTable();
  for (size_t lane = 0; lane < kTileTokens; lane += hn::Lanes(df)) {
    VI sum[kRows][kTiles];
    Unrolled<kRows * kTiles>([&]<int kAt>()
                                 HWY_ATTR { sum[kAt / kTiles][kAt % kTiles] = hn::Zero(di); });
    for (size_t b = 0; b < blocks; ++b) {
      // Three quarters of the lines read here; the passes over scores and values do the rest.
      prefetcher.Lines<(kBits * kTiles * 3 + 3) / 4>();
      const std::byte* codes = rows.codes[0] + b * kTurnedBlock;
      // Tiles innermost: dot products that follow each other do not wait for each other, and a
      // dword of the query is loaded once for all of them: with one load per dot product loads are
      // the limit.
      Unrolled<kTurnedPlanes>([&]<int kPlane>() HWY_ATTR {
        VI levels[kTiles];
        Unrolled<kTiles>([&]<int kTile>() HWY_ATTR {
          const TurnedCell<kBits> cell(cells + (kTile * blocks + b) * TurnedCellBytes(kBits), lane);
          levels[kTile] = cell.template Levels<kPlane>(table);
        });
        Unrolled<kRows>([&]<int kRow>() HWY_ATTR {
          const VI query = BroadcastI32(codes + kRow * kMaxDim + 4 * kPlane);
          Unrolled<kTiles>([&]<int kTile>() HWY_ATTR {
            sum[kRow][kTile] = DotSmall(sum[kRow][kTile], levels[kTile], query);
          });
        });
      });
    }
    Unrolled<kTiles>([&]<int t>() HWY_ATTR {
      const size_t token = static_cast<size_t>(tile + t) * kTileTokens + lane;
      const VF scale = LoadValues<FloatType::kF16>(args.strip, args.dim + token);
      Unrolled<kRows>([&]<int r>() HWY_ATTR {
        // 2 * sum + offset: exact in f32.
        const VF total = hn::MulAdd(hn::ConvertTo(df, sum[r][t]), hn::Set(df, 2.0f),
                                    hn::Set(df, rows.offset[r]));
        const VF score =
            hn::MulAdd(total, hn::Mul(scale, hn::Set(df, rows.step[r])), hn::Set(df, rows.mean[r]));
        hn::StoreU(score, df, args.scores + (row + r) * args.scores_stride + token);
      });
    });
  }
}

template <int kBits>
void TurnedKeyScores(const KeyScoresArgs& args) {
  // Enough chains of dot products to hide their latency, and no more than registers hold.
  constexpr int kTiles = kByteDot ? 4 : 1;
  const int tiles = (args.num_tokens + kTileTokens - 1) / kTileTokens;
  LinePrefetcher prefetcher(args.ahead);
  ForRowTiles<kTurnedRows>(args.num_rows, [&]<int kRows>(int row) HWY_ATTR {
    TurnedRows<kRows> rows;
    ReadRows<kRows>(args, row, rows);
    LinePrefetcher local = prefetcher;  // in registers
    int tile = 0;
    for (; tile + kTiles <= tiles; tile += kTiles)
      ScoreTurnedTiles<kBits, kRows, kTiles>(args, rows, row, tile, local);
    for (; tile < tiles; ++tile) ScoreTurnedTiles<kBits, kRows, 1>(args, rows, row, tile, local);
    prefetcher = local;
  });
  prefetcher.Save();
}

void PrepareTurnedQuery(const float* query, const float* turned, int dim, std::byte* out) {
  const DF df;
  const DI di;
  const size_t lanes = hn::Lanes(df);
  const size_t count = static_cast<size_t>(dim);
  VF max = hn::Zero(df);
  // x - x is 0 but for infinity and NaN.
  VF odd = hn::Zero(df);
  for (size_t d = 0; d < count; d += lanes) {
    const VF x = hn::LoadU(df, turned + d);
    max = hn::Max(max, hn::Abs(x));
    odd = hn::Or(odd, hn::Sub(x, x));
  }
  const bool finite = hn::AllTrue(df, hn::Eq(odd, hn::Zero(df)));
  const float largest = hn::GetLane(hn::MaxOfLanes(df, max));
  const float step = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
  float inverse = step > 0.0f ? 127.0f / largest : 0.0f;
  if (!(inverse < std::numeric_limits<float>::infinity())) inverse = 0.0f;
  auto* codes = reinterpret_cast<uint8_t*>(out + TurnedQueryCodes(dim));
  VI sum = hn::Zero(di);
  for (size_t d = 0; d < count; d += lanes) {
    const VF x = inverse > 0.0f ? hn::LoadU(df, turned + d) : hn::Zero(df);
    const VI code = hn::NearestInt(hn::Mul(x, hn::Set(df, inverse)));
    StoreLowBytes(code, codes + d);
    sum = hn::Add(sum, code);
  }
  const int32_t offset = -kTurnedOffset * hn::GetLane(hn::SumOfLanes(di, sum));
  std::memset(out, 0, kTurnedQueryHeaderBytes);
  std::memcpy(out, &step, 4);
  std::memcpy(out + 4, &offset, 4);
  std::memcpy(out + kTurnedQueryHeaderBytes, query, count * sizeof(float));
  const size_t end = TurnedQueryCodes(dim) + count;
  std::memset(out + end, 0, TurnedQueryBytes(dim) - end);
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
