#include "varve/codebook.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "rungs/pq/codebook_testing.h"

namespace varve {
namespace codebook_test {

void ExpectRefused(const std::function<void(Codebook&)>& change, const std::string& message) {
  Codebook codebook = SmallCodebook();
  change(codebook);
  const Status status = CheckCodebook(codebook);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
}

TEST(Codebook, GroupsFollowTheGrain) {
  const Codebook codebook = SmallCodebook();
  EXPECT_EQ(codebook.NumGroups(CodebookGrain::kModel), 1);
  EXPECT_EQ(codebook.NumGroups(CodebookGrain::kLayer), 2);
  EXPECT_EQ(codebook.NumGroups(CodebookGrain::kHead), 4);
  EXPECT_EQ(codebook.GroupOf(CodebookGrain::kModel, 1, 1), 0);
  EXPECT_EQ(codebook.GroupOf(CodebookGrain::kLayer, 1, 0), 1);
  EXPECT_EQ(codebook.GroupOf(CodebookGrain::kHead, 1, 0), 2);
  EXPECT_EQ(codebook.GroupOf(CodebookGrain::kHead, 1, 1), 3);
  EXPECT_STREQ(CodebookGrainName(CodebookGrain::kLayer), "layer");
}

TEST(Codebook, FindsByPartAndSize) {
  const Codebook codebook = SmallCodebook();
  EXPECT_EQ(codebook.Find(Part::kKey, 8, 4), &codebook.tables[0]);
  EXPECT_EQ(codebook.Find(Part::kValue, 16, 6), &codebook.tables[2]);
  EXPECT_EQ(codebook.Find(Part::kValue, 8, 4), nullptr);
  EXPECT_EQ(codebook.Find(Part::kKey, 8, 5), nullptr);
}

TEST(Codebook, EveryFieldHasItsLimits) {
  EXPECT_TRUE(CheckCodebook(SmallCodebook()).ok()) << CheckCodebook(SmallCodebook()).message();
  ExpectRefused([](Codebook& c) { c.num_layers = 0; }, "num_layers 0 is not in 1 … 1024");
  ExpectRefused([](Codebook& c) { c.num_kv_heads = 1025; }, "num_kv_heads 1025 is not in 1 … 1024");
  ExpectRefused([](Codebook& c) { c.model_name.resize(257); },
                "model_name bytes 257 is not in 0 … 256");
  ExpectRefused([](Codebook& c) { c.trained_on.resize(1025); },
                "trained_on bytes 1025 is not in 0 … 1024");
  ExpectRefused([](Codebook& c) { c.tables.clear(); }, "tables 0 is not in 1 … 64");
  ExpectRefused([](Codebook& c) { c.tables.resize(65); }, "tables 65 is not in 1 … 64");
}

TEST(Codebook, EveryFieldOfATableHasItsLimits) {
  ExpectRefused([](Codebook& c) { c.tables[1].part = static_cast<Part>(2); },
                "table 1: part 2 is neither 0 (K) nor 1 (V)");
  ExpectRefused([](Codebook& c) { c.tables[1].grain = static_cast<CodebookGrain>(3); },
                "table 1: grain 3 is not in 0 … 2");
  ExpectRefused([](Codebook& c) { c.tables[0].dim = 528; }, "table 0: dim 528 is not in 16 … 512");
  ExpectRefused([](Codebook& c) { c.tables[0].dim = 24; },
                "table 0: dim 24 is not a multiple of 16");
  ExpectRefused([](Codebook& c) { c.tables[0].num_subspaces = 0; },
                "table 0: num_subspaces 0 is not in 1 … 16");
  ExpectRefused([](Codebook& c) { c.tables[0].num_subspaces = 3; },
                "table 0: num_subspaces 3 does not divide dim 16");
  ExpectRefused([](Codebook& c) { c.tables[0].bits = 3; }, "table 0: bits 3 is not in 4 … 12");
  ExpectRefused([](Codebook& c) { c.tables[0].bits = 13; }, "table 0: bits 13 is not in 4 … 12");
  ExpectRefused([](Codebook& c) { c.tables[0].scales.pop_back(); },
                "table 0: scales has 31 values, not 32");
  ExpectRefused([](Codebook& c) { c.tables[0].centroids.push_back(1); },
                "table 0: centroids has 1025 values, not 1024");
  ExpectRefused([](Codebook& c) { c.tables[1].rotation.resize(1024); },
                "table 1: rotation has 1024 values, not 2048");
  ExpectRefused([](Codebook& c) { c.tables[2].centroids[7] = 0; },
                "table 2: centroid byte 7 is 0, not in 1 … 255");
  ExpectRefused([](Codebook& c) { c.tables.push_back(c.tables[0]); },
                "table 3: the same part and size as table 0");
  ExpectRefused(
      [](Codebook& c) {
        c.tables.push_back(RandomCodebookTable(Part::kKey, 32, 8, 5, CodebookGrain::kModel, 1, 9));
      },
      "table 3: dim 32 is not the 16 of table 0");
}

TEST(Codebook, ScalesArePositiveAndFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), infinity, -infinity, 0.0f, -0.0f, -1e-3f, 1e-38f, 17.0f}) {
    Codebook codebook = SmallCodebook();
    codebook.tables[0].scales[5] = bad;
    const Status status = CheckCodebook(codebook);
    EXPECT_TRUE(status.message().starts_with("table 0: scale 5 is ")) << status.message();
  }
}

// A rotation in the plane of two neighbours, again and again: dense, and no entry is exact in f16.
void AddGivensRotations(CodebookTable* table) {
  const size_t dim = static_cast<size_t>(table->dim);
  std::vector<double> matrix(dim * dim);
  for (size_t i = 0; i < dim; ++i) matrix[i * dim + i] = 1;
  for (size_t step = 0; step < 20 * dim; ++step) {
    const double angle = 0.1 + static_cast<double>(step);
    double* a = &matrix[step % dim * dim];
    double* b = &matrix[(step + 1 + step / dim % (dim - 1)) % dim * dim];
    for (size_t j = 0; j < dim; ++j) {
      const double x = a[j], y = b[j];
      a[j] = std::cos(angle) * x - std::sin(angle) * y;
      b[j] = std::sin(angle) * x + std::cos(angle) * y;
    }
  }
  table->rotation.clear();
  for (const double value : matrix) table->rotation.push_back(F32ToF16(static_cast<float>(value)));
}

TEST(Codebook, RotationsAreOrthonormal) {
  for (const int dim : {16, 128, 512}) {
    Codebook codebook;
    codebook.num_layers = codebook.num_kv_heads = 1;
    codebook.tables = {RandomCodebookTable(Part::kKey, dim, 4, 4, CodebookGrain::kModel, 1, 1)};
    std::vector<uint16_t>& rotation = codebook.tables[0].rotation;
    AddGivensRotations(&codebook.tables[0]);
    EXPECT_TRUE(CheckCodebook(codebook).ok()) << CheckCodebook(codebook).message();
    const std::vector<uint16_t> good = rotation;
    const auto refused = [&] { return CheckCodebook(codebook).message(); };
    for (uint16_t& bits : rotation) bits = F32ToF16(1.03f * F16ToF32(bits));
    EXPECT_NE(refused().find("table 0: rotation of group 0: not orthonormal"), std::string::npos);
    rotation = good;
    std::copy_n(good.begin(), dim, rotation.begin() + dim);  // two equal rows
    EXPECT_NE(refused().find("not orthonormal"), std::string::npos);
    rotation.assign(rotation.size(), 0);
    EXPECT_NE(refused().find("not orthonormal"), std::string::npos);
    rotation = good;
    rotation[3] = 0x7E00;  // NaN
    EXPECT_EQ(refused(), "table 0: rotation of group 0: value 3 is nan, not finite");
    rotation[3] = 0xFC00;
    EXPECT_EQ(refused(), "table 0: rotation of group 0: value 3 is -inf, not finite");
  }
}

}  // namespace codebook_test
}  // namespace varve
