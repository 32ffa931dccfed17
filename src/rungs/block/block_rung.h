// q8_0 and q4_0, plain and rotated: blocks of 32 values with an f16 scale.
//
// Contract. Scales and codes are ggml's, bit for bit (scalar reference, roundf): q8_0 has scale =
// max|x| / 127 and 8.5 bits a value, q4_0 scale = -(value of largest magnitude) / 8 and 4.5 bits.
// Absolute error of a value: at most half a scale step plus the rounding of the scale to f16 (q4_0:
// a whole step for the value opposite in sign to the largest). head_dim must be a multiple of 32.
// NaN is stored as 0 and a value that would overflow the f16 scale as the largest that does not
// (the rotated rungs: a value beyond +-65504 as that limit, before it is rotated); Encode counts
// both.
//
// Attention: K by integer dot products with the query in 15 bits (q8_0) or 8 bits (q4_0) per block
// of 32; V by integer sums over tokens with the weights in 15 bits. Weights in 8 bits halve the
// work of V, but tokens below 1/510 of the page's largest weight vanish, and beside an attention
// sink that is most of the page's mass: q4_0 uses them, dithered, only in rows where no token of
// the page has more than 1/8 of the split's mass. See docs/decisions/0002-weights-as-integers.md.

#ifndef VARVE_RUNGS_BLOCK_BLOCK_RUNG_H_
#define VARVE_RUNGS_BLOCK_BLOCK_RUNG_H_

#include <memory>

#include "rungs/block/block_strip.h"
#include "rungs/rung.h"

namespace varve {

class BlockRung final : public Rung {
 public:
  BlockRung(const RungDescriptor& descriptor, const Kernels& kernels, BlockType type, bool rotated)
      : Rung(descriptor, kernels), type_(type), rotated_(rotated) {}

  BlockType type() const { return type_; }
  bool rotated() const { return rotated_; }

  uint64_t Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                  std::byte* strip) const override;
  void Decode(Part part, const StripShape& shape, const std::byte* strip, int first, int count,
              float* rows) const override;

  KeySpace key_space() const override {
    return rotated_ ? KeySpace::kBlockRotated : KeySpace::kBlock;
  }
  size_t PreparedRowBytes(const StripShape& shape, int total_rows) const override;
  void PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                    std::byte* prepared) const override;
  void Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
              int num_rows, int num_tokens, float* scores, size_t scores_stride,
              ReadAhead* ahead) const override;

  ValueSpace value_space() const override {
    return rotated_ ? ValueSpace::kRotated : ValueSpace::kPlain;
  }
  size_t AccumulatorFloats(const StripShape& shape) const override { return shape.dim; }
  void AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                     size_t weights_stride, const float* weight_sum, int num_rows,
                     float* accumulators, ReadAhead* ahead) const override;
  void FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                    float* output) const override;
  bool values_always_finite() const override { return true; }

 private:
  BlockType type_;
  bool rotated_;
};

// For the table.
template <BlockType kType>
size_t BlockRungStripBytes(const RungDescriptor&, Part, const StripShape& shape) {
  return BlockStripBytes(kType, shape);
}
// Finite scales; in q8_0 none that is negative.
template <BlockType kType>
Status CheckBlockStrip(const RungDescriptor& descriptor, Part, const StripShape& shape,
                       const std::byte* strip) {
  return CheckBlockScales(descriptor.name, kType, shape, strip);
}
template <BlockType kType, bool kRotated>
std::unique_ptr<const Rung> MakeBlockRung(const RungDescriptor& descriptor,
                                          const RungBinding& binding) {
  return std::make_unique<const BlockRung>(descriptor, *binding.kernels, kType, kRotated);
}

}  // namespace varve

#endif  // VARVE_RUNGS_BLOCK_BLOCK_RUNG_H_
