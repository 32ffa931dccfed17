// Rotary position embedding: cosines and sines of a step's positions, and the rotation of rows.
//
// Prepare once per step, Apply once per layer and row: every layer and head uses the same angles.
// Angles are computed in double precision, so that positions in the tens of thousands lose nothing,
// and kept in f32. Apply is const and may run on several threads at once.

#ifndef VARVE_RUNTIME_LLAMA_ROPE_H_
#define VARVE_RUNTIME_LLAMA_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/llama/llama_config.h"

namespace varve {

// Radians per position of each pair, [config.dims / 2], scaling included.
std::vector<double> RopeFrequencies(const RopeConfig& config);

class RopeTable {
 public:
  explicit RopeTable(const RopeConfig& config);

  // Allocates only when there are more positions than ever before.
  void Prepare(std::span<const int64_t> positions);

  // Rotates the first config.dims values of each head of one row [num_heads, head_dim] in place,
  // to the position with this index in Prepare.
  void Apply(size_t index, float* row, int num_heads, int head_dim) const;

  // What Apply reads, for whoever rotates elsewhere.
  RopeOrder order() const { return order_; }
  int pairs() const { return static_cast<int>(frequencies_.size()); }
  const float* cos_sin() const { return cos_sin_.data(); }  // [positions, 2, pairs]

 private:
  RopeOrder order_;
  float attention_factor_;
  std::vector<double> frequencies_;  // [pairs]
  std::vector<float> cos_sin_;       // [positions, 2, pairs]
};

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_ROPE_H_
