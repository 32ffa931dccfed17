// Pages with valid content for benchmarks: a few that differ, to be copied as often as needed.

#ifndef VARVE_CUDA_TESTING_BENCH_PAGES_H_
#define VARVE_CUDA_TESTING_BENCH_PAGES_H_

#include <cstddef>
#include <vector>

#include "base/random.h"
#include "cuda/device_pages.h"
#include "cuda/testing/pq_book.h"

namespace varve::cuda::testing {

inline constexpr int kPeriod = 4;  // pages with content of their own

// A sum of uniform numbers, of mean 0 and variance 1.
float NearlyGaussian(SplitMix64& random);

// kPeriod pages as bytes, and their rows as they decode.
struct PageContent {
  std::vector<std::byte> bytes;
  std::vector<std::vector<float>> keys, values;  // [kv_heads][kPeriod * page_tokens, dim]
};

// K and V of all pages in that rung; `book` is that of pq.
PageContent MakeContent(DeviceRung id, const PageShape& shape, const PqBook& book);

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_BENCH_PAGES_H_
