// One decode step of a Llama-shaped model with random weights: all of its products, the rows of the
// new token written to open pages, and attention over pages of any rung. For measuring; what comes
// out means nothing.

#ifndef VARVE_CUDA_STEP_DECODE_STEP_H_
#define VARVE_CUDA_STEP_DECODE_STEP_H_

#include <memory>
#include <vector>

#include "cuda/device_attention.h"
#include "cuda/step/products.h"
#include "cuda/testing/device_buffer.h"
#include "cuda/testing/pq_book.h"

namespace varve::cuda::step {

struct ModelShape {
  const char* name;
  int layers;
  int hidden;
  int heads;
  int kv_heads;
  int ffn;
  int vocabulary;
};

inline constexpr int kHeadDim = 128;
inline constexpr int kPageTokens = 64;

// Weights in device memory, of all layers.
class StepWeights {
 public:
  explicit StepWeights(const ModelShape& shape);
  struct Layer {
    const __half *qkv, *out, *gate_up, *down;
  };
  Layer layer(int index) const;
  const __half* logits() const { return values_.data() + layer_count_ * layers_; }
  const __half* norm() const { return norm_.data(); }
  static size_t Bytes(const ModelShape& shape);

 private:
  ModelShape shape_;
  size_t layer_count_;  // values of a layer
  size_t layers_;
  testing::DeviceBuffer<__half> values_;
  testing::DeviceBuffer<__half> norm_;
};

// The cache of all layers: sealed pages of one rung and an open page of f16 per sequence.
class StepCache {
 public:
  // pq_bits: of a code of two channels, for DeviceRung::kPq.
  StepCache(const ModelShape& shape, int batch, int context, DeviceRung rung, int pq_bits);
  static size_t Bytes(const ModelShape& shape, int batch, int context, DeviceRung rung,
                      int pq_bits);

  void Append(int layer, const __half* keys, const __half* values, int64_t row_stride,
              cudaStream_t stream);
  void Attend(int layer, const __half* queries, __half* output, cudaStream_t stream);

 private:
  void FillPages(int layers);

  int batch_, pages_each_;
  DeviceAttention call_;
  DeviceLimits limits_;
  testing::PqBook book_;
  size_t sealed_bytes_, open_bytes_;
  std::unique_ptr<testing::DeviceBuffer<std::byte>> pool_, open_, workspace_;
  std::unique_ptr<testing::DeviceBuffer<DevicePage>> pages_;  // [layers][batch][pages_each]
  std::unique_ptr<testing::DeviceBuffer<int32_t>> page_begin_;
  std::unique_ptr<testing::DeviceBuffer<uint8_t>> centroids_;
  std::unique_ptr<testing::DeviceBuffer<float>> scales_;
  std::vector<std::byte*> open_pages_;                                   // [layers][batch]
  std::vector<std::unique_ptr<testing::DeviceBuffer<std::byte>>> jobs_;  // of append, by layer
};

// Buffers of a step; the stream's work.
class DecodeStep {
 public:
  DecodeStep(const ModelShape& shape, const StepWeights& weights, int batch);
  // cache: null leaves attention and the new rows out.
  void Run(StepCache* cache, int position, cudaStream_t stream);

 private:
  ModelShape shape_;
  const StepWeights& weights_;
  int batch_;
  Products products_;
  testing::DeviceBuffer<__half> x_, normed_, qkv_, queries_, attended_, gate_up_, gated_, logits_;
};

}  // namespace varve::cuda::step

#endif  // VARVE_CUDA_STEP_DECODE_STEP_H_
