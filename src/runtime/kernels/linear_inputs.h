// The inputs of one Run of LinearLayers as integers, each once however many tasks share it: rounded
// for few tokens, packed for many. Private to linear.cc. Owns what it hands out until the next
// Start; one call at a time.

#ifndef VARVE_RUNTIME_KERNELS_LINEAR_INPUTS_H_
#define VARVE_RUNTIME_KERNELS_LINEAR_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hwy/aligned_allocator.h>

#include "runtime/kernels/linear.h"
#include "runtime/kernels/weights.h"

namespace varve {

inline ptrdiff_t InputStride(const LinearTask& task) {
  return task.input_stride != 0 ? task.input_stride : task.weights->cols;
}

class IntegerInputs {
 public:
  // Forgets the inputs of the last Run.
  void Start(size_t num_tasks, int num_tokens);

  // [num_tokens <= kMaxFewTokens]; null if memory ran out.
  const RoundedInput* Round(const WeightKernels& kernels, const LinearTask& task);
  // Any number of tokens, in parallel; null if memory ran out.
  const PackedInputs* Pack(const WeightKernels& kernels, const LinearTask& task,
                           Executor& executor);

  size_t bytes() const;

 private:
  // What one input depends on.
  struct Key {
    const float* values = nullptr;
    int64_t cols = 0;
    ptrdiff_t stride = 0;
    int block = 0;
    bool operator==(const Key&) const = default;
  };
  struct Input {
    Key key;
    RoundedInput rounded[LinearLayers::kMaxFewTokens];
    PackedInputs packed;
    hwy::AlignedFreeUniquePtr<std::byte[]> memory;
    size_t bytes = 0;

    // Room for the codes, scales and sums of this many tokens; false if there is none.
    bool Reserve(int64_t num_tokens);
    int16_t* codes() const { return reinterpret_cast<int16_t*>(memory.get()); }
    float* scales(int64_t num_tokens) const {
      return reinterpret_cast<float*>(codes() + key.cols * num_tokens);
    }
    float* sums(int64_t num_tokens) const {
      return scales(num_tokens) + key.cols / key.block * num_tokens;
    }
    int32_t* half_sums(int64_t num_tokens) const {
      return reinterpret_cast<int32_t*>(sums(num_tokens) + key.cols / kRoundedRun * num_tokens);
    }
  };

  static Key KeyOf(const LinearTask& task);
  Input* Find(const Key& key);

  std::vector<Input> inputs_;
  size_t num_used_ = 0;
  int num_tokens_ = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_LINEAR_INPUTS_H_
