// Attention of some query rows of one KV head over one split (16 pages) of a table, and how the
// results of splits are merged. The arithmetic of attention is here; attention.h says who runs it.
//
// A split is worked off in three passes: scores of all its pages, softmax over the whole row, then
// the weighted values page by page. So the maximum is final before the first value is added,
// nothing is ever rescaled, and block rungs know each page's share when they round its weights.
//
// Pure functions of their arguments: safe to run concurrently on different buffers.

#ifndef VARVE_ATTENTION_SPLIT_ATTENTION_H_
#define VARVE_ATTENTION_SPLIT_ATTENTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/stage_clock.h"
#include "pages/page_table.h"
#include "pages/strip_reader.h"
#include "varve/cache.h"

namespace varve {

inline constexpr int kSplitPages = 16;

// One rung for every key space and value space that pages of a layer may be in; null if unused.
inline constexpr int kMaxKeySpaces = kNumSharedKeySpaces + kMaxOwnSpaces;
inline constexpr int kMaxValueSpaces = kNumSharedValueSpaces + kMaxOwnSpaces;
struct LayerSpaces {
  std::array<const Rung*, kMaxKeySpaces> key = {};  // shared ones by KeySpace, then codebooks
  std::array<const Rung*, kMaxValueSpaces> value = {};

  // Where the queries for a rung's keys are, and the sums of its values. Requires that it was
  // added.
  int KeyIndex(const Rung& rung) const {
    return Index(key, kNumSharedKeySpaces, static_cast<int>(rung.key_space()), rung);
  }
  int ValueIndex(const Rung& rung) const {
    return Index(value, kNumSharedValueSpaces, static_cast<int>(rung.value_space()), rung);
  }
  void Add(const Rung* key_rung, const Rung* value_rung);

 private:
  template <size_t kSize>
  static int Index(const std::array<const Rung*, kSize>& rungs, int shared, int space,
                   const Rung& rung) {
    if (space < shared) return space;
    int index = shared;
    while (rungs[static_cast<size_t>(index)] != &rung) ++index;
    return index;
  }
};

// Some consecutive queries of one request in one layer. Row = query * group_size + head in group.
struct QueryRows {
  const CacheShape* shape = nullptr;
  const LayerSpaces* spaces = nullptr;
  const AttendOptions* options = nullptr;
  std::span<const TableEntry> pages;  // the table as these queries see it
  const Kernels* kernels = nullptr;
  int layer = 0;
  int64_t first_position = 0;  // of the first query; the others follow
  int num_queries = 0;

  int rows() const { return num_queries * shape->group_size; }
  int64_t last_position() const { return first_position + num_queries - 1; }
};

// Running softmax of some rows: max and sum of the weights, accumulators in every value space.
struct Partial {
  float* max = nullptr;         // [rows]
  float* sum = nullptr;         // [rows]
  uint32_t* touched = nullptr;  // bit per value space that has an accumulator
  std::array<float*, kMaxValueSpaces> accumulators = {};  // [rows, AccumulatorFloats]

  static size_t Bytes(const QueryRows& rows);
  static Partial At(const QueryRows& rows, std::byte* base);
  // Nothing seen yet.
  void Reset(int num_rows);
};

// The prepared queries of the rows, per key space.
using PreparedQueries = std::array<const std::byte*, kMaxKeySpaces>;

// Scores of a split for `rows` rows: [rows, 16 * page_tokens] f32.
size_t SplitScratchBytes(const QueryRows& rows);

// Announces the strips that AttendSplit will read for this head and split, in its order.
void AddReads(const QueryRows& rows, int head, int split, ReadAhead& ahead);

// Attends to pages [16 * split, 16 * split + 16). page_sums [rows, pages of the split]
// unless null gets every page's sum of weights, relative to partial.max. `ahead` holds what this
// thread reads from here on, `strips_read` how many of its ranges have been used up. `reader` is
// this thread's: if it ends with an error, the result means nothing. `times` may be null.
void AttendSplit(const QueryRows& rows, int head, int split, const PreparedQueries& prepared,
                 std::byte* scratch, float* page_sums, StripReader& reader, ReadAhead& ahead,
                 size_t& strips_read, StageTimes* times, Partial& partial);

// Adds parts, at most kMergedPartials, to `total`. Splits are merged in ascending order, always; it
// makes no difference how many at a time.
inline constexpr size_t kMergedPartials = 32;
void MergePartials(const QueryRows& rows, Partial& total, std::span<const Partial> parts);

// The output of one row: values brought back to plain space and divided by the sum; zeros if the
// row saw nothing. Returns the log-sum-exp. output [value_dim].
float FinishRow(const QueryRows& rows, int head, const Partial& total, int row, float* output);

}  // namespace varve

#endif  // VARVE_ATTENTION_SPLIT_ATTENTION_H_
