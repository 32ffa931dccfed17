// FoldRun: a small cache with a compressor, rows that follow from their position, and the rows that
// folding must make of them.

#ifndef VARVE_TESTS_CACHE_FOLD_CACHE_TESTING_H_
#define VARVE_TESTS_CACHE_FOLD_CACHE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fold/fold_pieces.h"
#include "fold/fold_testing.h"
#include "tests/cache_testing.h"

namespace varve {

inline constexpr int kFoldLayers = 3;
inline constexpr int kFoldHeads = 2;
inline constexpr int kFoldDim = 32;

inline CacheShape FoldShape() { return {kFoldLayers, kFoldHeads, 2, kFoldDim, kFoldDim, 16}; }

inline std::shared_ptr<const Compressor> MakeCompressor(CompressorSpec spec = {}) {
  spec.num_layers = kFoldLayers;
  spec.head_dim = kFoldDim;
  return std::make_shared<const Compressor>(RandomCompressor(spec));
}

struct FoldRun {
  explicit FoldRun(const std::string& plan, std::shared_ptr<const Compressor> with,
                   CacheOptions options = {})
      : compressor(with) {
    options.compressor = std::move(with);
    cache = MakeCache(FoldShape(), plan, std::move(options));
    id = *cache->CreateSequence();
  }

  // Row `token` of a layer, head and part: the same for every run.
  static std::vector<float> Row(int layer, int head, Part part, int64_t token) {
    RowRandom random(static_cast<uint64_t>(((token * 64 + layer) * 64 + head) * 2 +
                                           (part == Part::kKey ? 0 : 1)));
    return random.Gaussians(kFoldDim);
  }

  Status Feed(int64_t tokens) {
    while (tokens > 0) {
      const int count = static_cast<int>(std::min<int64_t>(tokens, *cache->MaxStepTokens(id)));
      const StepEntry entry{id, count};
      VARVE_RETURN_IF_ERROR(cache->BeginStep({&entry, 1}));
      const int64_t first = fed;
      for (int layer = 0; layer < kFoldLayers; ++layer) {
        std::vector<float> rows[2];
        for (int64_t token = first; token < first + count; ++token) {
          for (int head = 0; head < kFoldHeads; ++head) {
            for (const int part : {0, 1}) {
              const std::vector<float> row =
                  Row(layer, head, part == 0 ? Part::kKey : Part::kValue, token);
              rows[part].insert(rows[part].end(), row.begin(), row.end());
            }
          }
        }
        VARVE_RETURN_IF_ERROR(
            cache->Append(layer, id, {rows[0].data(), count}, {rows[1].data(), count}));
        std::vector<float> queries(static_cast<size_t>(count) * kFoldHeads * 2 * kFoldDim, 0.25f);
        std::vector<float> outputs(queries.size());
        const AttendRequest request{.sequence = id,
                                    .num_queries = count,
                                    .queries = queries.data(),
                                    .output = outputs.data()};
        VARVE_RETURN_IF_ERROR(cache->Attend(layer, {&request, 1}, {}));
      }
      VARVE_RETURN_IF_ERROR(cache->EndStep());
      fed += count;
      tokens -= count;
    }
    return Status();
  }

  std::vector<float> Read(int layer, int head, Part part) const {
    const int64_t end = *cache->NextPosition(id);
    std::vector<float> rows(static_cast<size_t>(end + 1) * kFoldDim);
    const int64_t count = *cache->ReadRows(id, layer, head, part, 0, end, rows.data());
    rows.resize(static_cast<size_t>(count) * kFoldDim);
    return rows;
  }

  // The rows of a piece, as the network's definition gives them.
  std::vector<double> Expected(const FoldPiece& piece, int layer, int head, Part part) const {
    std::vector<float> in;
    for (int64_t token = piece.first_position; token < piece.end_position(); ++token) {
      const std::vector<float> row = Row(layer, head, part, token);
      in.insert(in.end(), row.begin(), row.end());
    }
    if (piece.tokens_per_row == 1) return {in.begin(), in.end()};
    const CompressorPart which =
        piece.image ? (part == Part::kKey ? CompressorPart::kImageKey : CompressorPart::kImageValue)
                    : (part == Part::kKey ? CompressorPart::kTextKey : CompressorPart::kTextValue);
    return FoldReference(compressor->Mlp(layer, which), compressor->dtype, in.data(),
                         static_cast<int>(piece.num_rows));
  }

  void ExpectRows(const std::vector<FoldPiece>& pieces, double tolerance) const {
    for (int layer = 0; layer < kFoldLayers; ++layer) {
      for (int head = 0; head < kFoldHeads; ++head) {
        for (const Part part : {Part::kKey, Part::kValue}) {
          std::vector<double> expected;
          for (const FoldPiece& piece : pieces) {
            const std::vector<double> rows = Expected(piece, layer, head, part);
            expected.insert(expected.end(), rows.begin(), rows.end());
          }
          const std::vector<float> rows = Read(layer, head, part);
          ASSERT_EQ(rows.size(), expected.size());
          double largest = 0;
          for (size_t i = 0; i < rows.size(); ++i)
            largest = std::max(largest, std::abs(rows[i] - expected[i]));
          EXPECT_LE(largest, tolerance) << "layer " << layer << " head " << head;
        }
      }
    }
  }

  std::unique_ptr<Cache> cache;
  std::shared_ptr<const Compressor> compressor;
  SequenceId id;
  int64_t fed = 0;
};

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_FOLD_CACHE_TESTING_H_
