// t4, t3 and t2: turned codes. A row is turned by the randomised Hadamard transform (rotation.h),
// after which its values are close to Gaussian whatever they were, and coded by the fixed quantizer
// for that distribution with one f16 scale. No calibration, no codebook.
//
// Keys are centred first: the mean of a strip's rows is kept in f16 and the rows are coded less the
// rounded mean. Keys of real models have channels with large offsets that hardly change within a
// page; they would take the whole range. A score is query . mean, once per strip and in f32, plus
// the score of the coded row.
//
// Contract. 4, 3 or 2 bits a value and 16 bits a row; K has dim x 16 bits a strip besides. Mean
// squared error of Gaussian rows: 0.0095, 0.0346, 0.1175 of their variance about the mean. head_dim
// must be a multiple of 32. NaN is stored as 0 and a value beyond +-65504 as that limit; a row
// whose scale would overflow f16 gets the largest. Encode counts both.
//
// Attention: K by integer dot products with the turned query in 8 bits and one scale; V by integer
// sums over tokens with the weights as q4_0 has them (docs/decisions/0002-weights-as-integers.md),
// in the space of the rotated rungs.

#ifndef VARVE_RUNGS_TURNED_TURNED_RUNG_H_
#define VARVE_RUNGS_TURNED_TURNED_RUNG_H_

#include <memory>

#include "rungs/rung.h"
#include "rungs/turned/turned_strip.h"

namespace varve {

class TurnedRung final : public Rung {
 public:
  TurnedRung(const RungDescriptor& descriptor, const Kernels& kernels, int bits)
      : Rung(descriptor, kernels), turned_kernels_(TurnedKernelsOf(kernels)), bits_(bits) {}

  int bits() const { return bits_; }

  uint64_t Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                  std::byte* strip) const override;
  void Decode(Part part, const StripShape& shape, const std::byte* strip, int first, int count,
              float* rows) const override;

  KeySpace key_space() const override { return KeySpace::kTurned; }
  size_t PreparedRowBytes(const StripShape& shape, int total_rows) const override;
  void PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                    std::byte* prepared) const override;
  void Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
              int num_rows, int num_tokens, float* scores, size_t scores_stride,
              ReadAhead* ahead) const override;

  ValueSpace value_space() const override { return ValueSpace::kRotated; }
  size_t AccumulatorFloats(const StripShape& shape) const override { return shape.dim; }
  void AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                     size_t weights_stride, const float* weight_sum, int num_rows,
                     float* accumulators, ReadAhead* ahead) const override;
  void FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                    float* output) const override;
  bool values_always_finite() const override { return true; }

 private:
  const TurnedKernels& turned_kernels_;
  int bits_;
};

// For the table.
template <int kBits>
size_t TurnedRungStripBytes(const RungDescriptor&, Part part, const StripShape& shape) {
  return TurnedStripBytes(kBits, part == Part::kKey, shape.dim, shape.page_tokens);
}
template <int kBits>
Status CheckTurnedRungStrip(const RungDescriptor& descriptor, Part part, const StripShape& shape,
                            const std::byte* strip) {
  return CheckTurnedStrip(descriptor.name, part, shape, strip);
}
template <int kBits>
double TurnedExpectedError(const RungDescriptor&, const StripShape&) {
  return TurnedLevels<kBits>::kError;
}
template <int kBits>
std::unique_ptr<const Rung> MakeTurnedRung(const RungDescriptor& descriptor,
                                           const RungBinding& binding) {
  return std::make_unique<const TurnedRung>(descriptor, *binding.kernels, kBits);
}

}  // namespace varve

#endif  // VARVE_RUNGS_TURNED_TURNED_RUNG_H_
