// PqRung: rows as indices of trained centroids (product quantization). docs/format/pages.md has the
// strip, include/varve/codebook.h what is learned.
//
// Encoding divides a row by its norm, rotates it if the codebook does, and takes the nearest
// centroid in every sub-space. The gain that is stored is then the factor that brings the centroids
// closest to the row, not the norm itself. That costs nothing and corrects the length of the
// centroids, which are shorter than the rows that they stand for.
//
// Precision: codes of 4 bits for two channels are 2 bits per value, of 8 bits 4; 16 bits more per
// row for the gain. Rejected: a gain per sub-space (bits), rows without a gain (measured: 1.5 times
// the error), centroids in f16 (twice the codebook, no better).
//
// What can be said without a codebook is in pq_descriptor.h. Immutable; thread-safe.

#ifndef VARVE_RUNGS_PQ_PQ_RUNG_H_
#define VARVE_RUNGS_PQ_PQ_RUNG_H_

#include <memory>
#include <vector>

#include "kernels/pq_kernels.h"
#include "rungs/float/float_rung.h"
#include "rungs/pq/pq_descriptor.h"
#include "rungs/pq/pq_name.h"
#include "rungs/rung.h"
#include "varve/codebook.h"

namespace varve {

class PqRung final : public Rung {
 public:
  // Uses the codebook's tables of that size, K or V or both; those of the part that is stored must
  // be there. The codebook has passed CheckCodebook.
  PqRung(const PqDescriptor& descriptor, const RungBinding& binding);

  const PqSize& size() const { return size_; }
  const Codebook* codebook() const { return codebook_.get(); }
  uint64_t codebook_hash() const override { return codebook_hash_; }
  uint64_t TableBytes(Part part) const override;

  uint64_t Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                  std::byte* strip) const override;
  void Decode(Part part, const StripShape& shape, const std::byte* strip, int first, int count,
              float* rows) const override;

  KeySpace key_space() const override { return KeySpace::kOwn; }
  size_t PreparedRowBytes(const StripShape& shape, int total_rows) const override;
  void PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                    std::byte* prepared) const override;
  void Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
              int num_rows, int num_tokens, float* scores, size_t scores_stride,
              ReadAhead* ahead) const override;

  // Sums of values that were not rotated need not be kept apart from others.
  ValueSpace value_space() const override {
    return value_turns_.empty() ? ValueSpace::kPlain : ValueSpace::kOwn;
  }
  size_t AccumulatorFloats(const StripShape& shape) const override { return shape.dim; }
  int most_value_pages() const override { return kMaxValuePages; }
  void AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                     size_t weights_stride, const float* weight_sum, int num_rows,
                     float* accumulators, ReadAhead* ahead) const override;
  void FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                    float* output) const override;
  bool values_always_finite() const override { return true; }

 private:
  PqShape ShapeOf(const StripShape& shape) const {
    return {shape.dim, size_.subspaces, size_.bits, shape.page_tokens};
  }
  const CodebookTable& TableOf(Part part) const { return part == Part::kKey ? *keys_ : *values_; }
  PqCentroids CentroidsOf(Part part, const StripShape& shape) const;
  size_t GroupOf(Part part, const StripShape& shape) const;
  bool IsRotated(Part part) const;
  // y [num_rows, dim] = the rotation of the group times every row.
  void Rotate(Part part, const StripShape& shape, const float* rows, int num_rows, float* y) const;
  // rows [num_rows, dim] += and back.
  void AddUnrotated(Part part, const StripShape& shape, const float* y, int num_rows,
                    float* rows) const;
  // Decode without turning back: [count, dim].
  void DecodeCentroids(Part part, const StripShape& shape, const std::byte* strip, int first,
                       int count, float* rows) const;

  PqSize size_;
  const PqKernels& pq_kernels_;
  FloatRung f32_;  // for strips that are decoded first
  std::shared_ptr<const Codebook> codebook_;
  uint64_t codebook_hash_ = 0;  // of megabytes: computed once
  const CodebookTable* keys_ = nullptr;
  const CodebookTable* values_ = nullptr;
  // Rotations as the kernels of f16 strips want them, [groups, dim, dim]: a matrix times a vector
  // is scores on a K strip whose tokens are the rows, and its transpose a sum over a V strip.
  std::vector<uint16_t> key_turns_;
  std::vector<uint16_t> value_turns_;
  std::vector<uint16_t> value_returns_;
};

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_PQ_RUNG_H_
