#include "fold/fold_network.h"

#include <algorithm>
#include <cstring>

namespace varve {
namespace {

// The numbers of a matrix in f32.
void Decode(const Kernels& kernels, CompressorDtype dtype, const std::vector<std::byte>& stored,
            std::vector<float>* out) {
  if (dtype == CompressorDtype::kF32) {
    std::memcpy(out->data(), stored.data(), out->size() * sizeof(float));
    return;
  }
  const auto widen = dtype == CompressorDtype::kF16 ? kernels.widen_f16 : kernels.widen_bf16;
  widen(reinterpret_cast<const uint16_t*>(stored.data()), out->size(), out->data());
}

}  // namespace

FoldNetwork::FoldNetwork(const CompressorMlp& mlp, CompressorDtype dtype, const Kernels& kernels)
    : kernels_(&kernels) {
  for (const CompressorLinear& from : mlp.slots) {
    if (from.rows == 0) break;  // networks may have fewer
    Layer& layer = layers_.emplace_back();
    layer.rows = from.rows;
    layer.cols = from.cols;
    layer.weights.resize(static_cast<size_t>(from.rows) * static_cast<size_t>(from.cols));
    Decode(kernels, dtype, from.weights, &layer.weights);
    layer.bias = from.bias;
  }
}

void FoldNetwork::Run(const float* inputs, int num_rows, float* outputs,
                      std::vector<float>* scratch) const {
  size_t between = 0;  // values between the layers
  for (size_t i = 0; i + 1 < layers_.size(); ++i)
    between += static_cast<size_t>(num_rows) * static_cast<size_t>(layers_[i].rows);
  scratch->resize(std::max(scratch->size(), between));
  float* next = scratch->data();
  const float* in = inputs;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    float* out = i + 1 < layers_.size() ? next : outputs;
    next += static_cast<ptrdiff_t>(num_rows) * layer.rows;
    kernels_->multiply_dense(
        {layer.weights.data(), layer.rows, layer.cols, in, layer.cols, num_rows, out, layer.rows});
    const bool last = i + 1 == layers_.size();
    for (int row = 0; row < num_rows; ++row) {
      float* values = out + static_cast<ptrdiff_t>(row) * layer.rows;
      for (size_t c = 0; c < layer.bias.size(); ++c) values[c] += layer.bias[c];
      // A NaN stays one: std::max(0, NaN) would hide it.
      for (int c = 0; c < layer.rows && !last; ++c) values[c] = values[c] < 0 ? 0 : values[c];
    }
    in = out;
  }
}

}  // namespace varve
