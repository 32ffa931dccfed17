// One table of pq kernels per Highway target, from one source: queries, the nearest centroid, and
// the table; scores and values are in simd_pq_keys-inl.h and simd_pq_values-inl.h.

#define HWY_WANT_AVX3_DL 1  // AVX-512 with VNNI and VBMI: Ice Lake, Zen 4 and later

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/pq_tables.h"
#include "kernels/simd_table_list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_pq.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !HWY_HAVE_SCALABLE

#include "kernels/simd_pq_values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace varve {
namespace HWY_NAMESPACE {

void PrepareQuery(const PqShape& shape, const PqCentroids& centroids, const float* query,
                  bool with_table, std::byte* out) {
  ScalarPqKernels().prepare_query(shape, centroids, query, false, out);
  if (!with_table) return;
  MarkPqTable(out);
  const DF df;
  const DI di;
  const hn::Rebind<uint8_t, DI> d8;
  const size_t lanes = hn::Lanes(df);
  const size_t num_codes = static_cast<size_t>(shape.num_codes());
  const int sub_dim = shape.sub_dim();
  alignas(64) float nibble_table[16 * kMaxDim];
  float* table = shape.bits == 4 ? nibble_table
                                 : reinterpret_cast<float*>(out + PqQueryTableOffset(shape.dim));
  const VI middle = hn::Set(di, 128);
  for (int m = 0; m < shape.subspaces; ++m) {
    float* row = table + static_cast<size_t>(m) * num_codes;
    for (size_t c = 0; c < num_codes; c += lanes) {
      VF sum = hn::Zero(df);
      for (int j = 0; j < sub_dim; ++j) {
        const int channel = m * sub_dim + j;
        const uint8_t* bytes = centroids.bytes + static_cast<size_t>(channel) * num_codes + c;
        const VI value = hn::Sub(hn::PromoteTo(di, hn::LoadU(d8, bytes)), middle);
        const VF factor = hn::Set(df, query[channel] * centroids.scales[m]);
        sum = hn::Add(sum, hn::Mul(factor, hn::ConvertTo(df, value)));
      }
      hn::StoreU(sum, df, row + c);
    }
  }
  if (shape.bits == 4) RoundPqTable(shape, table, out);
}

// kPoints points against all centroids, given as f32 [sub_dim][num_codes].
template <int kPoints>
HWY_INLINE void NearestPoints(const float* centroids, int sub_dim, int num_codes,
                              const float* points, uint16_t* codes) {
  const DF df;
  const DI di;
  const int lanes = static_cast<int>(hn::Lanes(df));
  VF best[kPoints];
  VI best_code[kPoints];
  for (int p = 0; p < kPoints; ++p) {
    best[p] = hn::Set(df, std::numeric_limits<float>::infinity());
    best_code[p] = hn::Zero(di);
  }
  VI code = hn::Iota(di, 0);
  const VI step = hn::Set(di, lanes);
  for (int c = 0; c < num_codes; c += lanes, code = hn::Add(code, step)) {
    VF distance[kPoints];
    for (int p = 0; p < kPoints; ++p) distance[p] = hn::Zero(df);
    for (int j = 0; j < sub_dim; ++j) {
      const VF centroid = hn::LoadU(df, centroids + static_cast<size_t>(j) * num_codes + c);
      for (int p = 0; p < kPoints; ++p) {
        const VF difference = hn::Sub(hn::Set(df, points[p * sub_dim + j]), centroid);
        distance[p] = hn::Add(distance[p], hn::Mul(difference, difference));
      }
    }
    for (int p = 0; p < kPoints; ++p) {
      const auto nearer = hn::Lt(distance[p], best[p]);
      best[p] = hn::IfThenElse(nearer, distance[p], best[p]);
      best_code[p] = hn::IfThenElse(hn::RebindMask(di, nearer), code, best_code[p]);
    }
  }
  for (int p = 0; p < kPoints; ++p) {
    const VF least = hn::MinOfLanes(df, best[p]);
    const auto is_least = hn::RebindMask(di, hn::Eq(best[p], least));
    const VI candidates =
        hn::IfThenElse(is_least, best_code[p], hn::Set(di, std::numeric_limits<int32_t>::max()));
    codes[p] = static_cast<uint16_t>(hn::GetLane(hn::MinOfLanes(di, candidates)));
  }
}

void Nearest(const uint8_t* bytes, int sub_dim, int num_codes, const float* points, int num_points,
             uint16_t* codes) {
  // As f32, once for all points; few enough for the stack but for wide codes.
  constexpr size_t kStackFloats = 2048;
  const size_t floats = static_cast<size_t>(sub_dim) * num_codes;
  alignas(64) float on_stack[kStackFloats];
  std::vector<float> on_heap(floats > kStackFloats ? floats : 0);
  float* centroids = on_heap.empty() ? on_stack : on_heap.data();
  const DF df;
  const DI di;
  const hn::Rebind<uint8_t, DI> d8;
  for (size_t i = 0; i < floats; i += hn::Lanes(df)) {
    const VI value = hn::Sub(hn::PromoteTo(di, hn::LoadU(d8, bytes + i)), hn::Set(di, 128));
    hn::StoreU(hn::ConvertTo(df, value), df, centroids + i);
  }
  int p = 0;
  for (; p + 4 <= num_points; p += 4) {
    NearestPoints<4>(centroids, sub_dim, num_codes, points + static_cast<size_t>(p) * sub_dim,
                     codes + p);
  }
  for (; p < num_points; ++p) {
    NearestPoints<1>(centroids, sub_dim, num_codes, points + static_cast<size_t>(p) * sub_dim,
                     codes + p);
  }
}

const PqKernels& PqTable(const char* name) {
  static const PqKernels table = {
      .name = name,
      .pair_dot = kByteDot,
      .prepare_query = PrepareQuery,
      .scores_bytes = {ScoresBytes<4>, ScoresBytes<5>, ScoresBytes<6>, ScoresBytes<7>,
                       ScoresBytes<8>},
      .scores_nibbles = ScoresNibbles,
      .scores_tables = ScoresTables,
      .add_values_bytes = {AddValuesBytes<4>, AddValuesBytes<5>, AddValuesBytes<6>,
                           AddValuesBytes<7>, AddValuesBytes<8>},
      .add_values_centroids = AddValuesCentroids,
      .nearest = Nearest,
  };
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace varve
HWY_AFTER_NAMESPACE();

#endif  // a target with vectors of fixed size

#if HWY_ONCE
namespace varve {

std::vector<const PqKernels*> SimdPqKernels() { VARVE_SIMD_TABLES(PqKernels, PqTable); }

}  // namespace varve
#endif  // HWY_ONCE
