#include "runtime/whisper/whisper_weights.h"

#include <initializer_list>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace varve {
namespace {

std::vector<float> Decoded(const WhisperTensor& tensor) {
  const int64_t count = tensor.values();
  std::vector<float> values(static_cast<size_t>(count));
  ActiveWeightKernels().decode[static_cast<int>(tensor.type)](tensor.data, count, values.data());
  return values;
}

// Takes tensors by name; the first one that does not fit is the error, and all later calls give
// nothing.
class Binder {
 public:
  explicit Binder(const WhisperTensors& model) : model_(model) {}

  WeightMatrix Matrix(const std::string& name, int64_t rows, int64_t cols) {
    const WhisperTensor* tensor = Find(name, {rows, cols});
    return tensor != nullptr ? tensor->matrix() : WeightMatrix();
  }
  std::vector<float> Vector(const std::string& name, int64_t size) {
    const WhisperTensor* tensor = Find(name, {size});
    return tensor != nullptr ? Decoded(*tensor) : std::vector<float>();
  }
  std::vector<float> Table(const std::string& name, int64_t rows, int64_t cols) {
    const WhisperTensor* tensor = Find(name, {rows, cols});
    return tensor != nullptr ? Decoded(*tensor) : std::vector<float>();
  }
  WhisperNorm Norm(const std::string& name, int64_t size) {
    return {Vector(name + ".weight", size), Vector(name + ".bias", size)};
  }
  WhisperAttention Attention(const std::string& norm, const std::string& name, int64_t state) {
    WhisperAttention bound;
    bound.norm = Norm(norm, state);
    bound.query = Matrix(name + ".query.weight", state, state);
    bound.key = Matrix(name + ".key.weight", state, state);
    bound.value = Matrix(name + ".value.weight", state, state);
    bound.out = Matrix(name + ".out.weight", state, state);
    bound.query_bias = Vector(name + ".query.bias", state);
    bound.value_bias = Vector(name + ".value.bias", state);
    bound.out_bias = Vector(name + ".out.bias", state);
    return bound;
  }
  WhisperBlock Block(const std::string& name, int64_t state, bool cross) {
    WhisperBlock bound;
    bound.attention = Attention(name + ".attn_ln", name + ".attn", state);
    if (cross) bound.cross = Attention(name + ".cross_attn_ln", name + ".cross_attn", state);
    bound.mlp_norm = Norm(name + ".mlp_ln", state);
    bound.mlp_in = Matrix(name + ".mlp.0.weight", 4 * state, state);
    bound.mlp_out = Matrix(name + ".mlp.2.weight", state, 4 * state);
    bound.mlp_in_bias = Vector(name + ".mlp.0.bias", 4 * state);
    bound.mlp_out_bias = Vector(name + ".mlp.2.bias", state);
    return bound;
  }
  WhisperConvolution Convolution(const std::string& name, int64_t out, int64_t in) {
    WhisperConvolution bound;
    const WhisperTensor* tensor = Find(name + ".weight", {out, in, 3});
    bound.bias = Vector(name + ".bias", out);
    if (tensor == nullptr) return bound;
    const std::vector<float> stored = Decoded(*tensor);
    bound.taps.resize(stored.size());
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t tap = 0; tap < 3; ++tap) {
          bound.taps[(o * 3 + tap) * in + i] = stored[(o * in + i) * 3 + tap];
        }
      }
    }
    return bound;
  }

  const Status& status() const { return status_; }

 private:
  const WhisperTensor* Find(const std::string& name, std::initializer_list<int64_t> dims) {
    if (!status_.ok()) return nullptr;
    const auto found = model_.tensors.find(name);
    if (found == model_.tensors.end()) {
      status_ = InvalidArgument(fmt::format("whisper: tensor {} is missing", name));
      return nullptr;
    }
    if (found->second.dims != std::vector<int64_t>(dims)) {
      status_ =
          InvalidArgument(fmt::format("whisper: tensor {} is [{}], the model needs [{}]", name,
                                      fmt::join(found->second.dims, ", "), fmt::join(dims, ", ")));
      return nullptr;
    }
    return &found->second;
  }

  const WhisperTensors& model_;
  Status status_;
};

}  // namespace

WeightMatrix WhisperConvolution::matrix() const {
  const auto rows = static_cast<int64_t>(bias.size());
  return {.type = WeightType::kF32,
          .rows = rows,
          .cols = static_cast<int64_t>(taps.size()) / rows,
          .data = reinterpret_cast<const std::byte*>(taps.data())};
}

Result<WhisperWeights> BindWhisperWeights(const WhisperTensors& model) {
  const WhisperConfig& config = model.config;
  Binder binder(model);
  WhisperWeights weights;
  weights.conv1 = binder.Convolution("encoder.conv1", config.audio_state, config.mels);
  weights.conv2 = binder.Convolution("encoder.conv2", config.audio_state, config.audio_state);
  weights.audio_positions =
      binder.Table("encoder.positional_embedding", config.audio_ctx, config.audio_state);
  for (int i = 0; i < config.audio_layers; ++i) {
    weights.encoder.push_back(
        binder.Block("encoder.blocks." + std::to_string(i), config.audio_state, false));
  }
  weights.encoder_norm = binder.Norm("encoder.ln_post", config.audio_state);
  weights.token_embedding =
      binder.Matrix("decoder.token_embedding.weight", config.vocab, config.text_state);
  weights.text_positions =
      binder.Table("decoder.positional_embedding", config.text_ctx, config.text_state);
  for (int i = 0; i < config.text_layers; ++i) {
    weights.decoder.push_back(
        binder.Block("decoder.blocks." + std::to_string(i), config.text_state, true));
  }
  weights.decoder_norm = binder.Norm("decoder.ln", config.text_state);
  VARVE_RETURN_IF_ERROR(binder.status());
  return weights;
}

}  // namespace varve
