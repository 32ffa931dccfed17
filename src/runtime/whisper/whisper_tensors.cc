#include "runtime/whisper/whisper_tensors.h"

#include <utility>

#include <fmt/format.h>

namespace varve {
namespace {

class ShapeList {
 public:
  explicit ShapeList(const WhisperConfig& config) : config_(config) {}

  std::vector<WhisperTensorShape> Build() {
    const int64_t width = config_.audio_state;
    Vector("encoder.positional_embedding", {config_.audio_ctx, width});
    Factor("encoder.conv1.weight", {width, config_.mels, 3});
    Vector("encoder.conv1.bias", {width});
    Factor("encoder.conv2.weight", {width, width, 3});
    Vector("encoder.conv2.bias", {width});
    for (int i = 0; i < config_.audio_layers; ++i) {
      Block(fmt::format("encoder.blocks.{}.", i), width, /*has_cross=*/false);
    }
    Norm("encoder.ln_post", width);
    Vector("decoder.positional_embedding", {config_.text_ctx, config_.text_state});
    Factor("decoder.token_embedding.weight", {config_.vocab, config_.text_state});
    for (int i = 0; i < config_.text_layers; ++i) {
      Block(fmt::format("decoder.blocks.{}.", i), config_.text_state, /*has_cross=*/true);
    }
    Norm("decoder.ln", config_.text_state);
    return std::move(shapes_);
  }

 private:
  void Block(const std::string& prefix, int64_t width, bool has_cross) {
    Attention(prefix + "attn", width);
    if (has_cross) Attention(prefix + "cross_attn", width);
    Linear(prefix + "mlp.0", 4 * width, width);
    Linear(prefix + "mlp.2", width, 4 * width);
    Norm(prefix + "mlp_ln", width);
  }
  void Attention(const std::string& prefix, int64_t width) {
    Linear(prefix + ".query", width, width);
    Factor(prefix + ".key.weight", {width, width});  // the one without a bias
    Linear(prefix + ".value", width, width);
    Linear(prefix + ".out", width, width);
    Norm(prefix + "_ln", width);
  }
  void Linear(const std::string& prefix, int64_t rows, int64_t cols) {
    Factor(prefix + ".weight", {rows, cols});
    Vector(prefix + ".bias", {rows});
  }
  void Norm(const std::string& prefix, int64_t width) {
    Vector(prefix + ".weight", {width});
    Vector(prefix + ".bias", {width});
  }
  void Factor(std::string name, std::vector<int64_t> dims) {
    shapes_.push_back({std::move(name), std::move(dims), true});
  }
  void Vector(std::string name, std::vector<int64_t> dims) {
    shapes_.push_back({std::move(name), std::move(dims), false});
  }

  const WhisperConfig& config_;
  std::vector<WhisperTensorShape> shapes_;
};

}  // namespace

int64_t WhisperTensor::values() const {
  int64_t count = 1;
  for (const int64_t size : dims) count *= size;
  return count;
}

WeightMatrix WhisperTensor::matrix() const {
  const int64_t rows = dims.empty() ? 1 : dims[0];
  return {type, rows, values() / rows, data};
}

std::byte* WhisperTensors::Add(const std::string& name, WeightType type,
                               std::vector<int64_t> dims) {
  WhisperTensor tensor = {type, std::move(dims), nullptr};
  auto memory = hwy::AllocateAligned<std::byte>(tensor.bytes());
  if (memory == nullptr) return nullptr;
  std::byte* data = memory.get();
  tensor.data = data;
  storage.push_back(std::move(memory));
  tensors.insert_or_assign(name, std::move(tensor));
  return data;
}

std::vector<WhisperTensorShape> WhisperTensorShapes(const WhisperConfig& config) {
  return ShapeList(config).Build();
}

}  // namespace varve
