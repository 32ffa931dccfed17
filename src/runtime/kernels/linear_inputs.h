// The inputs of one Run of LinearLayers as its products want them, each once however many tasks
// share it: rounded to integers for few tokens; for many packed, as integers or in bf16. Private to
// linear.cc. Owns what it hands out until the next Start; one call at a time.

#ifndef VARVE_RUNTIME_KERNELS_LINEAR_INPUTS_H_
#define VARVE_RUNTIME_KERNELS_LINEAR_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hwy/aligned_allocator.h>

#include "runtime/kernels/amx_tiles.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/weights.h"

namespace varve {

inline ptrdiff_t InputStride(const LinearTask& task) {
  return task.input_stride != 0 ? task.input_stride : task.weights->cols;
}

class LinearInputs {
 public:
  // Forgets the inputs of the last Run.
  void Start(size_t num_tasks, int num_tokens);

  // [num_tokens <= kMaxFewTokens]; null if memory ran out.
  const RoundedInput* Round(const WeightKernels& kernels, const LinearTask& task);
  // Any number of tokens, in parallel; null if memory ran out.
  const PackedInputs* Pack(const WeightKernels& kernels, const LinearTask& task,
                           Executor& executor);
  // [ceil(num_tokens / 16), ceil(cols / 32), 16 pairs, 16 tokens, 2] bf16 (amx_tiles.h), for
  // weights of any type; null if memory ran out.
  const uint16_t* PackBf16(const AmxKernels& kernels, const LinearTask& task, Executor& executor);

  size_t bytes() const;

 private:
  // What one input depends on.
  struct Key {
    const float* values = nullptr;
    int64_t cols = 0;
    ptrdiff_t stride = 0;
    int block = 0;  // 0: bf16
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
    bool ReserveBytes(size_t wanted);
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
