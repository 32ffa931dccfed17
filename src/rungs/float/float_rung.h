// f32, f16 and bf16: values as they are. The only rungs that open pages may use, since single rows
// can be written in place. NaN and infinity are stored as they are. A finite value beyond the range
// of f16 or bf16 becomes the largest of its sign and is counted: as an infinity it would make every
// output that sees it NaN. Refusing the step was considered: the model would stop at the first
// outlier, in rows that a sealed rung would have cut off anyway.

#ifndef VARVE_RUNGS_FLOAT_FLOAT_RUNG_H_
#define VARVE_RUNGS_FLOAT_FLOAT_RUNG_H_

#include <memory>

#include "rungs/rung.h"

namespace varve {

class FloatRung final : public Rung {
 public:
  FloatRung(const RungDescriptor& descriptor, const Kernels& kernels, FloatType type)
      : Rung(descriptor, kernels), type_(type) {}

  uint64_t Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                  std::byte* strip) const override;
  void Decode(Part part, const StripShape& shape, const std::byte* strip, int first, int count,
              float* rows) const override;
  uint64_t WriteRows(Part part, const StripShape& shape, std::byte* strip, int first, int count,
                     const float* rows, ptrdiff_t row_stride) const override;

  KeySpace key_space() const override { return KeySpace::kPlain; }
  size_t PreparedRowBytes(const StripShape& shape, int total_rows) const override;
  void PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                    std::byte* prepared) const override;
  void Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
              int num_rows, int num_tokens, float* scores, size_t scores_stride,
              ReadAhead* ahead) const override;

  ValueSpace value_space() const override { return ValueSpace::kPlain; }
  size_t AccumulatorFloats(const StripShape& shape) const override { return shape.dim; }
  void AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                     size_t weights_stride, const float* weight_sum, int num_rows,
                     float* accumulators, ReadAhead* ahead) const override;
  void FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                    float* output) const override;
  bool values_always_finite() const override { return false; }

 private:
  FloatType type_;
};

// For the table.
template <FloatType kType>
size_t FloatStripBytes(const RungDescriptor&, Part, const StripShape& shape) {
  return static_cast<size_t>(shape.page_tokens) * shape.dim * FloatBytes(kType);
}
template <FloatType kType>
std::unique_ptr<const Rung> MakeFloatRung(const RungDescriptor& descriptor,
                                          const RungBinding& binding) {
  return std::make_unique<const FloatRung>(descriptor, *binding.kernels, kType);
}

}  // namespace varve

#endif  // VARVE_RUNGS_FLOAT_FLOAT_RUNG_H_
