// Rung: codec and attention of one way to store a part (K or V) of a page.
//
// The cache knows pages and tables; a rung knows bytes. What can be known without kernels (name,
// sizes, checks, the lane for packing) is in its descriptor, a row of the table in rung_table.h.
// A Rung is made from one: for a set of kernels, and for a codebook where it needs one. PlanRungs
// makes those of a cache and owns them.
//
// A *strip* is the part of a page that belongs to one KV head: page_tokens rows of `dim` values.
// Rungs are immutable and thread-safe: strips may be encoded, decoded and attended concurrently.
//
// Spaces. K and V rungs never multiply into K x V kernels:
//   PrepareQuery once per Attend and key space, Scores per page; AddValues per page into one
//   accumulator per value space, FinishValues once per head brings the spaces together.
// Rungs with the same key_space() share a prepared query, rungs with the same value_space() an
// accumulator. kOwn is each rung's own.

#ifndef VARVE_RUNGS_RUNG_H_
#define VARVE_RUNGS_RUNG_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kernels.h"
#include "rungs/rung_table.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

enum class KeySpace : uint8_t { kPlain, kBlock, kBlockRotated, kTurned, kOwn };
enum class ValueSpace : uint8_t { kPlain, kRotated, kOwn };
inline constexpr int kNumSharedKeySpaces = 4;
inline constexpr int kMaxOwnSpaces = 4;  // of one layer
inline constexpr int kNumSharedValueSpaces = 2;

// One page's part in a weighted sum. Weights outside [first, first + count) are zero.
struct ValuePage {
  const std::byte* strip;
  int first;
  int count;
  const float* weights;  // [num_rows, page_tokens]
};

class Rung {
 public:
  Rung(const RungDescriptor& descriptor, const Kernels& kernels)
      : descriptor_(&descriptor), kernels_(&kernels) {}
  virtual ~Rung() = default;

  const RungDescriptor& descriptor() const { return *descriptor_; }
  std::string_view name() const { return descriptor_->name; }
  Status CheckDim(int dim) const { return descriptor_->CheckDim(dim); }
  size_t StripBytes(Part part, const StripShape& shape) const {
    return descriptor_->StripBytes(part, shape);
  }
  Status CheckStrip(Part part, const StripShape& shape, const std::byte* strip) const {
    return descriptor_->CheckStrip(part, shape, strip);
  }
  bool can_append() const { return descriptor_->can_append; }

  // Of the codebook that it was made with; 0 without one.
  virtual uint64_t codebook_hash() const { return 0; }
  // Of the codebook's tables for a part, copies that kernels want included.
  virtual uint64_t TableBytes(Part) const { return 0; }

  // --- content ---

  // Encodes rows [num_rows, dim] f32 as a whole strip. Missing rows read as zero, or as the mean of
  // the others where the rung keeps one. Returns how many values were not finite (or out of the
  // format's range) and had to be replaced.
  virtual uint64_t Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                          std::byte* strip) const = 0;
  // Decodes rows [first, first + count) to f32 [count, dim].
  virtual void Decode(Part part, const StripShape& shape, const std::byte* strip, int first,
                      int count, float* rows) const = 0;
  // Writes rows [first, first + count) from f32, row_stride floats apart. Requires can_append().
  // Returns how many values had to be replaced, as Encode does.
  virtual uint64_t WriteRows(Part, const StripShape&, std::byte*, int /*first*/, int /*count*/,
                             const float*, ptrdiff_t /*row_stride*/) const {
    return 0;
  }

  // --- keys ---

  virtual KeySpace key_space() const = 0;
  // Rows are prepared independently and lie one after the other, this far apart. How they are
  // prepared may depend on how many there are in all.
  virtual size_t PreparedRowBytes(const StripShape& shape, int total_rows) const = 0;
  // queries [num_rows, dim] f32, softmax scale multiplied in; all rows at once.
  virtual void PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                            std::byte* prepared) const = 0;
  // scores [num_rows] rows of f32, scores_stride apart = query . key for tokens [0, num_tokens);
  // columns up to page_tokens may be written with anything. `prepared` may begin at any row.
  // `ahead` may be null.
  virtual void Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
                      int num_rows, int num_tokens, float* scores, size_t scores_stride,
                      ReadAhead* ahead) const = 0;

  // --- values ---

  virtual ValueSpace value_space() const = 0;
  virtual size_t AccumulatorFloats(const StripShape& shape) const = 0;
  // How many pages one call of AddValuePages takes.
  virtual int most_value_pages() const { return 1; }
  // accumulators [num_rows, AccumulatorFloats] += weights x values of all pages, rows of weights
  // weights_stride apart; weight_sum [num_rows] is the sum that the weights are a part of, at
  // least that of the pages.
  virtual void AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                             size_t weights_stride, const float* weight_sum, int num_rows,
                             float* accumulators, ReadAhead* ahead) const = 0;
  // output [num_rows, dim] += accumulators brought back to plain values.
  virtual void FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                            float* output) const = 0;
  // False when a stored value may be NaN or Inf: then a row with weight 0 must be left out of
  // AddValues rather than multiplied by zero.
  virtual bool values_always_finite() const = 0;

 protected:
  const Kernels& kernels() const { return *kernels_; }

 private:
  const RungDescriptor* descriptor_;
  const Kernels* kernels_;
};

}  // namespace varve

#endif  // VARVE_RUNGS_RUNG_H_
