// Compiled once per Highway target; see src/kernels/simd_kernels.cc. No fused operation and an
// order of sums that does not depend on the width of a vector, so that all targets agree.

#include "cli/codebook/nearest_centroids.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cli/codebook/nearest_centroids.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace varve::cli {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;

// kPoints at once share the loads of centroids.
template <int kPoints>
void FindSome(const float* channels, const float* half_norms, int count, int dim,
              const float* points, int64_t* labels) {
  const DF df;
  const DI di;
  const int lanes = static_cast<int>(hn::Lanes(df));
  hn::Vec<DF> best[kPoints];
  hn::Vec<DI> where[kPoints];
  for (int p = 0; p < kPoints; ++p) {
    best[p] = hn::Set(df, std::numeric_limits<float>::infinity());
    where[p] = hn::Zero(di);
  }
  auto index = hn::Iota(di, 0);
  for (int j = 0; j < count; j += lanes) {
    hn::Vec<DF> sums[kPoints];
    for (int p = 0; p < kPoints; ++p) sums[p] = hn::LoadU(df, half_norms + j);
    for (int d = 0; d < dim; ++d) {
      const auto channel = hn::LoadU(df, channels + static_cast<size_t>(d) * count + j);
      for (int p = 0; p < kPoints; ++p) {
        sums[p] = hn::Sub(sums[p], hn::Mul(channel, hn::Set(df, points[p * dim + d])));
      }
    }
    for (int p = 0; p < kPoints; ++p) {
      const auto less = hn::Lt(sums[p], best[p]);
      best[p] = hn::IfThenElse(less, sums[p], best[p]);
      where[p] = hn::IfThenElse(hn::RebindMask(di, less), index, where[p]);
    }
    index = hn::Add(index, hn::Set(di, lanes));
  }
  for (int p = 0; p < kPoints; ++p) {
    HWY_ALIGN float values[16];
    HWY_ALIGN int32_t indices[16];
    hn::Store(best[p], df, values);
    hn::Store(where[p], di, indices);
    int least = 0;
    for (int lane = 1; lane < lanes; ++lane) {
      const bool earlier = values[lane] == values[least] && indices[lane] < indices[least];
      if (values[lane] < values[least] || earlier) least = lane;
    }
    labels[p] = indices[least];
  }
}

void FindAll(const float* channels, const float* half_norms, int count, int dim,
             const float* points, size_t num_points, int64_t* labels) {
  constexpr size_t kAtOnce = 4;
  size_t i = 0;
  for (; i + kAtOnce <= num_points; i += kAtOnce) {
    FindSome<kAtOnce>(channels, half_norms, count, dim, points + i * dim, labels + i);
  }
  for (; i < num_points; ++i) {
    FindSome<1>(channels, half_norms, count, dim, points + i * dim, labels + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace varve::cli
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace varve::cli {

HWY_EXPORT(FindAll);

NearestCentroids::NearestCentroids(const float* centroids, int count, int dim)
    : count_(count),
      dim_(dim),
      channels_(static_cast<size_t>(count) * dim),
      half_norms_(static_cast<size_t>(count)) {
  for (int j = 0; j < count; ++j) {
    float sum = 0;
    for (int d = 0; d < dim; ++d) {
      const float value = centroids[static_cast<size_t>(j) * dim + d];
      channels_[static_cast<size_t>(d) * count + j] = value;
      sum += value * value;
    }
    half_norms_[j] = 0.5f * sum;
  }
}

void NearestCentroids::Find(const float* points, size_t num_points, int64_t* labels) const {
  HWY_DYNAMIC_DISPATCH(FindAll)
  (channels_.data(), half_norms_.data(), count_, dim_, points, num_points, labels);
}

}  // namespace varve::cli
#endif  // HWY_ONCE
