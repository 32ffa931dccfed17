// One decode step of a Llama-shaped model with random weights: all of its products, the rows of the
// new token written to open pages, and attention over pages of any rung. For measuring; what comes
// out means nothing.

#ifndef VARVE_CUDA_STEP_DECODE_STEP_H_
#define VARVE_CUDA_STEP_DECODE_STEP_H_

#include <cuda_fp16.h>

#include <memory>
#include <vector>

#include "cuda/device_attention.h"
#include "cuda/layers/products.h"
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
  const float* norm() const { return norm_.data(); }
  static size_t Bytes(const ModelShape& shape);

 private:
  ModelShape shape_;
  size_t layer_count_;  // values of a layer
  size_t layers_;
  testing::DeviceBuffer<__half> values_;
  testing::DeviceBuffer<float> norm_;
};

// The cache of all layers: sealed pages of one rung and an open page of f16 per sequence.
class StepCache {
 public:
  // pq_bits: of a code of two channels, for DeviceRung::kPq.
  StepCache(const ModelShape& shape, int batch, int context, DeviceRung rung, int pq_bits);
  static size_t Bytes(const ModelShape& shape, int batch, int context, DeviceRung rung,
                      int pq_bits);

  // Dense rows of f32.
  void Append(int layer, const float* keys, const float* values, cudaStream_t stream);
  void Attend(int layer, const float* queries, __half* output, cudaStream_t stream);

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
  std::unique_ptr<testing::DeviceBuffer<uint8_t>> centroids_, rows_, key_rows_, value_rows_;
  std::unique_ptr<testing::DeviceBuffer<float>> scales_;
  std::vector<std::byte*> open_pages_;                                   // [layers][batch]
  std::vector<std::unique_ptr<testing::DeviceBuffer<std::byte>>> jobs_;  // of append, by layer
};

// Buffers of a step; the stream's work. The kernels between the products are those of the runtime's
// models (cuda/layers).
class DecodeStep {
 public:
  DecodeStep(const ModelShape& shape, const StepWeights& weights, int batch, int position);
  // cache: null leaves attention and the new rows out.
  void Run(StepCache* cache, cudaStream_t stream);

 private:
  void Norm(__half* out, cudaStream_t stream);
  void Multiply(const __half* x, const __half* weights, int inputs, int outputs, bool add,
                float* out, cudaStream_t stream);
  void Rotate(cudaStream_t stream);

  ModelShape shape_;
  const StepWeights& weights_;
  int batch_;
  Products products_;
  testing::DeviceBuffer<int32_t> tokens_;  // [batch]
  testing::DeviceBuffer<float> cos_sin_;   // [batch, 2, kHeadDim / 2]
  testing::DeviceBuffer<float> x_, qkv_, queries_, keys_, values_, gate_up_, logits_;
  testing::DeviceBuffer<__half> normed_, attended_, gated_;
};

}  // namespace varve::cuda::step

#endif  // VARVE_CUDA_STEP_DECODE_STEP_H_
