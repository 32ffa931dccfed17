// What pq rungs promise about content: names, sizes, the nearest centroid, the best gain, errors
// bounded on both sides, and rows that are no numbers. Attention on the stored codes is in
// pq_rung_attention_test.cc.

#include "rungs/pq/pq_rung.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_testing.h"
#include "rungs/pq/pq_testing.h"

namespace varve {
namespace pq_rung_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// M from 1 to dim, every width of codes, every page size, sub-vectors of odd lengths.
struct Size {
  int dim;
  PqSize size;
  int page_tokens;
};
const Size kSizes[] = {
    {16, {1, 4}, 16},    {16, {16, 4}, 32},   {48, {16, 5}, 64},  {64, {32, 6}, 128},
    {80, {16, 7}, 64},   {64, {32, 8}, 64},   {96, {32, 9}, 16},  {64, {16, 10}, 32},
    {32, {1, 11}, 64},   {48, {16, 12}, 16},  {112, {7, 8}, 128}, {512, {256, 4}, 16},
    {16, {16, 12}, 128}, {128, {128, 4}, 64}, {96, {3, 6}, 32},
};

std::string Describe(const Size& size) {
  return "dim " + std::to_string(size.dim) + " " + PqName(size.size) + " page " +
         std::to_string(size.page_tokens);
}

CacheShape ShapeFor(int dim) {
  CacheShape shape;
  shape.num_layers = 2;
  shape.num_kv_heads = 2;
  shape.key_dim = dim;
  shape.value_dim = dim;
  return shape;
}

PqRung MakeRung(const Size& size, CodebookGrain grain, bool rotated) {
  auto codebook = SharePqCodebook(ShapeFor(size.dim), {{Part::kKey, size.size, grain, rotated},
                                                       {Part::kValue, size.size, grain, rotated}});
  EXPECT_EQ(CheckCodebook(*codebook).ToString(), "ok") << Describe(size);
  return MakePqRung(size.size, codebook);
}

std::vector<std::byte> EncodeStrip(const PqRung& rung, Part part, const StripShape& shape,
                                   const std::vector<float>& rows, uint64_t replaced = 0) {
  std::vector<std::byte> strip(rung.StripBytes(part, shape), std::byte{0xA5});
  const int num_rows = static_cast<int>(rows.size()) / shape.dim;
  EXPECT_EQ(rung.Encode(part, shape, rows.data(), num_rows, strip.data()), replaced);
  EXPECT_EQ(rung.CheckStrip(part, shape, strip.data()).ToString(), "ok");
  return strip;
}

std::vector<float> DecodeStrip(const PqRung& rung, Part part, const StripShape& shape,
                               const std::vector<std::byte>& strip) {
  std::vector<float> rows(static_cast<size_t>(shape.page_tokens) * shape.dim, 7.0f);
  rung.Decode(part, shape, strip.data(), 0, shape.page_tokens, rows.data());
  return rows;
}

// One row of a strip as the format and the codebook say, in double precision.
struct CodedRow {
  std::vector<double> unit;       // [dim] the row by its norm, turned
  std::vector<double> centroids;  // [dim] of its codes
  double norm = 0;
  double gain = 0;  // stored
};

struct Coding {
  const CodebookTable* table;
  size_t group;
  StripShape shape;

  double Centroid(int d, int code) const {
    const size_t at = group * table->dim + static_cast<size_t>(d);
    return static_cast<double>(table->scales[at / table->sub_dim()]) *
           (table->centroids[at * table->num_codes() + code] - 128);
  }
  double Rotation(int i, int j) const {
    const size_t dim = static_cast<size_t>(table->dim);
    return F16ToF32(table->rotation[(group * dim + i) * dim + j]);
  }

  CodedRow Row(const float* row, const std::vector<std::byte>& strip, int token) const {
    const PqShape pq = {shape.dim, table->num_subspaces, table->bits, shape.page_tokens};
    const size_t dim = static_cast<size_t>(shape.dim);
    CodedRow coded;
    for (size_t d = 0; d < dim; ++d) coded.norm += static_cast<double>(row[d]) * row[d];
    coded.norm = std::sqrt(coded.norm);
    std::vector<double> unit(row, row + dim);
    for (double& x : unit) x /= coded.norm;
    coded.unit = unit;
    for (size_t i = 0; !table->rotation.empty() && i < dim; ++i) {
      coded.unit[i] = 0;
      for (size_t j = 0; j < dim; ++j)
        coded.unit[i] += Rotation(static_cast<int>(i), static_cast<int>(j)) * unit[j];
    }
    uint16_t codes[kMaxPageTokens];
    for (int m = 0; m < pq.subspaces; ++m) {
      ReadPqCodes(pq, strip.data(), m, codes);
      for (int j = 0; j < pq.sub_dim(); ++j)
        coded.centroids.push_back(Centroid(m * pq.sub_dim() + j, codes[token]));
    }
    coded.gain = ReadPqGain(strip.data(), token);
    return coded;
  }

  // How far the nearest centroid of a sub-space lies from the row.
  double Least(const CodedRow& coded, int m) const {
    double least = kInf;
    for (int code = 0; code < table->num_codes(); ++code) {
      double sum = 0;
      for (int d = m * table->sub_dim(); d < (m + 1) * table->sub_dim(); ++d) {
        const double x = coded.unit[static_cast<size_t>(d)] - Centroid(d, code);
        sum += x * x;
      }
      least = std::min(least, sum);
    }
    return std::sqrt(least);
  }
};

class PqContent : public testing::TestWithParam<bool> {};  // rotated

TEST_P(PqContent, EveryCodeIsTheNearestCentroidAndTheGainIsTheBest) {
  for (const Size& size : kSizes) {
    if (GetParam() && size.dim > 128) continue;  // nothing new, and slow
    SCOPED_TRACE(Describe(size));
    const PqRung rung = MakeRung(size, CodebookGrain::kHead, GetParam());
    const StripShape shape = {1, 1, size.dim, size.page_tokens};
    for (const Part part : {Part::kKey, Part::kValue}) {
      const int num_rows = 5;
      std::vector<float> rows = TestRandom(11).Gaussians(static_cast<size_t>(num_rows) * size.dim);
      for (int t = 0; t < num_rows; ++t) {  // norms of all sizes
        for (int d = 0; d < size.dim; ++d)
          rows[static_cast<size_t>(t) * size.dim + d] *= std::exp2(static_cast<float>(4 * t - 8));
      }
      const std::vector<std::byte> strip = EncodeStrip(rung, part, shape, rows);
      const Coding coding = {rung.codebook()->Find(part, size.size.subspaces, size.size.bits), 3,
                             shape};
      for (int t = 0; t < num_rows; ++t) {
        const CodedRow coded = coding.Row(rows.data() + t * size.dim, strip, t);
        double dot = 0, energy = 0;
        const int sub_dim = size.dim / size.size.subspaces;
        for (int m = 0; m < size.size.subspaces; ++m) {
          double sum = 0;
          for (size_t d = static_cast<size_t>(m) * sub_dim;
               d < (static_cast<size_t>(m) + 1) * sub_dim; ++d) {
            const double x = coded.unit[d] - coded.centroids[d];
            sum += x * x;
            dot += coded.unit[d] * coded.centroids[d];
            energy += coded.centroids[d] * coded.centroids[d];
          }
          // Ties, and what f32 cannot tell apart.
          EXPECT_LE(std::sqrt(sum), coding.Least(coded, m) * (1 + 1e-5) + 1e-6)
              << "row " << t << " sub-space " << m;
        }
        const double best = std::max(0.0, coded.norm * dot / energy);
        EXPECT_NEAR(coded.gain, best, best * 0x1p-11 * 1.01 + 0x1p-24) << "row " << t;
      }
    }
  }
}

// The rate-distortion bound of Gaussian rows from below: what is better than 2^(-2 bits / channel)
// has not been through the codes (the gain of a short row helps a little). From above what random
// centroids give, which is worse the fewer channels a code has, and the steps of the bytes.
TEST_P(PqContent, TheErrorLiesBetweenWhatBitsAllowAndWhatRandomCentroidsGive) {
  for (const Size& size : kSizes) {
    if (GetParam() && size.dim > 128) continue;
    const PqRung rung = MakeRung(size, CodebookGrain::kModel, GetParam());
    const StripShape shape = {0, 1, size.dim, size.page_tokens};
    const std::vector<float> rows =
        TestRandom(12).Gaussians(static_cast<size_t>(size.page_tokens) * size.dim);
    for (const Part part : {Part::kKey, Part::kValue}) {
      const std::vector<float> decoded =
          DecodeStrip(rung, part, shape, EncodeStrip(rung, part, shape, rows));
      double error = 0, energy = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        const double x = static_cast<double>(decoded[i]) - rows[i];
        error += x * x;
        energy += static_cast<double>(rows[i]) * rows[i];
      }
      const int sub_dim = size.dim / size.size.subspaces;
      const double bound = std::exp2(-2.0 * size.size.bits / sub_dim);
      const double step = 1.5 * kPqReach * PqSpread(size.dim, sub_dim) / 127;
      const double most = (sub_dim == 1 ? 30 : sub_dim == 2 ? 8 : 4) * bound;
      EXPECT_GE(error / energy, 0.8 * bound) << Describe(size);
      EXPECT_LE(error / energy, std::min(0.99, most + step * step * size.dim / 6))
          << Describe(size);
    }
  }
}

TEST_P(PqContent, MissingRowsReadAsZeroAndPartsOfAStripAsThemselves) {
  for (const Size& size : kSizes) {
    if (GetParam() && size.dim > 128) continue;
    SCOPED_TRACE(Describe(size));
    const PqRung rung = MakeRung(size, CodebookGrain::kLayer, GetParam());
    const StripShape shape = {1, 0, size.dim, size.page_tokens};
    for (const int num_rows : {0, 1, 7, size.page_tokens - 1}) {
      const std::vector<float> rows =
          TestRandom(13).Gaussians(static_cast<size_t>(num_rows) * size.dim);
      const std::vector<std::byte> strip = EncodeStrip(rung, Part::kValue, shape, rows);
      const std::vector<float> all = DecodeStrip(rung, Part::kValue, shape, strip);
      for (size_t i = rows.size(); i < all.size(); ++i) ASSERT_EQ(all[i], 0.0f);
      std::vector<float> part(3 * static_cast<size_t>(size.dim));
      const int first = std::max(0, num_rows - 2);
      const int count = std::min(3, size.page_tokens - first);
      rung.Decode(Part::kValue, shape, strip.data(), first, count, part.data());
      EXPECT_EQ(std::memcmp(part.data(), all.data() + first * size.dim,
                            static_cast<size_t>(count) * size.dim * sizeof(float)),
                0);
    }
  }
}

TEST_P(PqContent, RowsThatAreNoNumbersAreCountedAndBecomeFinite) {
  const Size size = {64, {32, 8}, 16};
  const PqRung rung = MakeRung(size, CodebookGrain::kModel, GetParam());
  const StripShape shape = {0, 0, 64, 16};
  std::vector<float> rows = TestRandom(14).Gaussians(12 * 64);
  const auto row = [&](int r) { return rows.begin() + r * 64; };
  std::fill_n(row(0), 64, 0.0f);
  std::fill_n(row(1), 64, -0.0f);
  std::fill_n(row(2), 64, kNan);                                  // 64 replaced
  row(3)[5] = kNan;                                               // 1
  row(4)[6] = kInf, row(4)[7] = -kInf;                            // 2
  row(5)[0] = row(5)[1] = std::numeric_limits<float>::max();      // 2
  std::fill_n(row(6), 64, std::numeric_limits<float>::lowest());  // 64
  std::fill_n(row(7), 64, 65504.0f);                              // none
  std::fill_n(row(8), 64, std::numeric_limits<float>::denorm_min());
  std::fill_n(row(9), 64, 1e-39f);
  std::fill_n(row(10), 64, std::numeric_limits<float>::min());
  // Rows 4 to 7 are longer than f16 can say: each counts once more.
  const uint64_t replaced = 64 + 1 + 2 + 2 + 64 + 4;
  for (const Part part : {Part::kKey, Part::kValue}) {
    const std::vector<std::byte> strip = EncodeStrip(rung, part, shape, rows, replaced);
    const std::vector<float> decoded = DecodeStrip(rung, part, shape, strip);
    for (size_t i = 0; i < decoded.size(); ++i)
      ASSERT_TRUE(std::isfinite(decoded[i])) << "row " << i / 64;
    for (const int r : {0, 1, 2, 8, 9, 10})
      for (size_t d = 0; d < 64; ++d) EXPECT_EQ(decoded[static_cast<size_t>(r) * 64 + d], 0.0f);
    // The rest of a row goes on; the direction of a huge one is kept.
    const auto cosine = [&](int r, const std::vector<float>& wanted) {
      double dot = 0, a = 0, b = 0;
      for (size_t d = 0; d < 64; ++d) {
        const double x = decoded[static_cast<size_t>(r) * 64 + d];
        dot += x * wanted[d], a += x * x, b += static_cast<double>(wanted[d]) * wanted[d];
      }
      return dot / std::sqrt(a * b);
    };
    std::vector<float> wanted(row(3), row(3) + 64);
    wanted[5] = 0.0f;
    EXPECT_GT(cosine(3, wanted), 0.97);
    EXPECT_GT(cosine(11, std::vector<float>(row(11), row(11) + 64)), 0.97);
    EXPECT_GT(cosine(6, std::vector<float>(64, -1.0f)), 0.9);
    EXPECT_GT(cosine(7, std::vector<float>(64, 1.0f)), 0.9);
  }
}

TEST_P(PqContent, ARowThatIsLongerThanF16CanSayIsCutOffAndCounted) {
  const Size size = {64, {32, 8}, 16};
  const PqRung rung = MakeRung(size, CodebookGrain::kModel, GetParam());
  const StripShape shape = {0, 0, 64, 16};
  std::vector<float> rows = TestRandom(19).Gaussians(16 * 64);
  EncodeStrip(rung, Part::kKey, shape, rows, 0);
  // All values fit: what does not is the norm, 8 times as large.
  for (size_t d = 0; d < 64; ++d) rows[64 * 3 + d] = d % 2 == 0 ? 16000.0f : -16000.0f;
  const std::vector<std::byte> strip = EncodeStrip(rung, Part::kKey, shape, rows, 1);
  uint16_t gain;
  std::memcpy(&gain, strip.data() + 2 * 3, 2);
  EXPECT_EQ(F16ToF32(gain), 65504.0f);
  for (size_t d = 0; d < 64; ++d) rows[64 * 3 + d] /= 4;
  EncodeStrip(rung, Part::kKey, shape, rows, 0);
}

TEST_P(PqContent, EveryTableOfKernelsWritesTheSameBytesWithoutARotation) {
  for (const Size& size : kSizes) {
    const StripShape shape = {0, 0, size.dim, size.page_tokens};
    const std::vector<float> rows = TestRandom(15).Gaussians(size_t{9} * size.dim);
    std::vector<std::byte> first;
    for (const Kernels* kernels : AllTables()) {
      const ScopedKernels scope(*kernels);
      const PqRung rung = MakeRung(size, CodebookGrain::kModel, false);
      const std::vector<std::byte> strip = EncodeStrip(rung, Part::kKey, shape, rows);
      if (first.empty()) first = strip;
      EXPECT_EQ(strip, first) << kernels->name << " " << Describe(size);
    }
  }
}

std::string TurnedName(const testing::TestParamInfo<bool>& info) {
  return info.param ? "turned" : "plain";
}

INSTANTIATE_TEST_SUITE_P(Rotated, PqContent, testing::Bool(), TurnedName);

TEST(PqRung, CodesRowsByTheGroupOfTheirLayerAndHead) {
  const Size size = {32, {16, 6}, 16};
  const std::vector<float> rows = TestRandom(16).Gaussians(16 * 32);
  for (const bool rotated : {false, true}) {
    for (const CodebookGrain grain :
         {CodebookGrain::kModel, CodebookGrain::kLayer, CodebookGrain::kHead}) {
      const PqRung rung = MakeRung(size, grain, rotated);
      const CodebookTable* table = rung.codebook()->Find(Part::kKey, 16, 6);
      for (int place = 0; place < 4; ++place) {
        const StripShape shape = {place / 2, place % 2, 32, 16};
        const std::vector<std::byte> strip = EncodeStrip(rung, Part::kKey, shape, rows);
        // A codebook of one group, that of the place.
        const size_t groups = static_cast<size_t>(rung.codebook()->NumGroups(grain));
        const size_t group = grain == CodebookGrain::kModel   ? 0
                             : grain == CodebookGrain::kLayer ? static_cast<size_t>(place) / 2
                                                              : static_cast<size_t>(place);
        auto alone = std::make_shared<Codebook>(*rung.codebook());
        const auto cut = [&](auto& values) {
          const size_t count = values.size() / groups;
          values = {values.begin() + static_cast<ptrdiff_t>(group * count),
                    values.begin() + static_cast<ptrdiff_t>((group + 1) * count)};
        };
        alone->tables = {*table};
        alone->tables[0].grain = CodebookGrain::kModel;
        cut(alone->tables[0].scales);
        cut(alone->tables[0].centroids);
        cut(alone->tables[0].rotation);
        ASSERT_EQ(CheckCodebook(*alone).ToString(), "ok");
        const PqRung single = MakePqRung(size.size, alone);
        EXPECT_EQ(strip, EncodeStrip(single, Part::kKey, {0, 0, 32, 16}, rows)) << place;
        EXPECT_EQ(DecodeStrip(rung, Part::kKey, shape, strip),
                  DecodeStrip(single, Part::kKey, {0, 0, 32, 16}, strip));
      }
    }
  }
}

}  // namespace pq_rung_test
}  // namespace varve
