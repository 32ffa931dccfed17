// What the tests of rungs share: names, shapes, and a strip with the rows that it holds. Not part
// of the library.

#ifndef VARVE_RUNGS_RUNG_TESTING_H_
#define VARVE_RUNGS_RUNG_TESTING_H_

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel_testing.h"
#include "rungs/rung.h"

namespace varve {

// Those of the table that need no codebook.
inline std::vector<std::string> AllRungNames() {
  std::vector<std::string> names;
  for (const std::string_view name : RungNames()) {
    const RungDescriptor* rung = FindRung(name);
    if (rung != nullptr && !rung->needs_codebook()) names.emplace_back(name);
  }
  return names;
}

// With the kernels that are active now; lives for the whole process.
inline const Rung& TestRung(std::string_view name) {
  static std::map<std::pair<const Kernels*, std::string>, std::unique_ptr<const Rung>> made;
  std::unique_ptr<const Rung>& rung = made[{&ActiveKernels(), std::string(name)}];
  if (rung == nullptr) rung = FindRung(name)->Make({&ActiveKernels(), nullptr});
  return *rung;
}

inline bool IsTurned(const Rung& rung) { return rung.name().starts_with('t'); }
inline bool IsRotated(const Rung& rung) { return rung.name().ends_with('r') || IsTurned(rung); }
inline bool IsBlock(const Rung& rung) { return rung.name().starts_with('q'); }
// Codes and scales rather than floats.
inline bool IsCoded(const Rung& rung) { return IsBlock(rung) || IsTurned(rung); }
inline bool IsQ4(const Rung& rung) { return rung.name().starts_with("q4"); }

// The dims of the issue that the rung stores.
inline std::vector<int> DimsOf(const Rung& rung) {
  std::vector<int> dims;
  for (const int dim : {16, 32, 64, 80, 96, 128, 256, 512}) {
    if (rung.CheckDim(dim).ok()) dims.push_back(dim);
  }
  return dims;
}

// An encoded strip and what Decode reads from it, zeros past num_rows included.
struct StoredRows {
  StripShape shape;
  std::vector<std::byte> strip;
  std::vector<float> decoded;  // [page_tokens, dim]

  float value(int token, int d) const {
    return decoded[static_cast<size_t>(token) * shape.dim + d];
  }
};

inline StoredRows Store(const Rung& rung, Part part, int dim, int page_tokens,
                        const std::vector<float>& rows) {
  StoredRows stored{{0, 0, dim, page_tokens}, {}, {}};
  stored.strip.resize(rung.StripBytes(part, stored.shape), std::byte{0xA5});
  stored.decoded.resize(static_cast<size_t>(page_tokens) * dim);
  const int num_rows = static_cast<int>(rows.size()) / dim;
  EXPECT_EQ(rung.Encode(part, stored.shape, rows.data(), num_rows, stored.strip.data()), 0u);
  rung.Decode(part, stored.shape, stored.strip.data(), 0, page_tokens, stored.decoded.data());
  return stored;
}

// Weighted values of one page.
inline void AddPage(const Rung& rung, const StripShape& shape, const std::byte* strip, int first,
                    int count, const float* weights, size_t weights_stride, const float* weight_sum,
                    int num_rows, float* accumulators) {
  const ValuePage page = {strip, first, count, weights};
  rung.AddValuePages(shape, {&page, 1}, weights_stride, weight_sum, num_rows, accumulators,
                     nullptr);
}

inline double Norm(const float* values, size_t count) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return std::sqrt(sum);
}

// A suite that runs once per rung.
class EveryRung : public testing::TestWithParam<std::string> {
 protected:
  const Rung& rung() const { return TestRung(GetParam()); }
};

inline std::string RungName(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace varve

#endif  // VARVE_RUNGS_RUNG_TESTING_H_
