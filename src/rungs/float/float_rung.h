// f32, f16 and bf16: values as they are. The only rungs that open pages may use, since single rows
// can be written in place. NaN and infinity are stored as they are.

#ifndef VARVE_RUNGS_FLOAT_FLOAT_RUNG_H_
#define VARVE_RUNGS_FLOAT_FLOAT_RUNG_H_

#include "rungs/rung.h"

namespace varve {

class FloatRung final : public Rung {
 public:
  FloatRung(std::string_view name, FloatType type) : name_(name), type_(type) {}

  std::string_view name() const override { return name_; }
  Status CheckDim(int dim) const override;
  size_t StripBytes(const StripShape& shape) const override;

  uint64_t Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                  std::byte* strip) const override;
  void Decode(Part part, const StripShape& shape, const std::byte* strip, int first, int count,
              float* rows) const override;
  bool can_append() const override { return true; }
  void WriteRows(Part part, const StripShape& shape, std::byte* strip, int first, int count,
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
  std::string_view name_;
  FloatType type_;
};

}  // namespace varve

#endif  // VARVE_RUNGS_FLOAT_FLOAT_RUNG_H_
