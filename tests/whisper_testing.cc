#include "tests/whisper_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/random.h"
#include "runtime/kernels/weights_random.h"

namespace varve {
namespace {

// FNV-1a: the same on every machine, unlike std::hash.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace

WhisperConfig TinyWhisperConfig(int vocab) {
  WhisperConfig config;
  config.vocab = vocab;
  config.audio_ctx = 1500;
  config.audio_state = config.text_state = 64;
  config.audio_heads = config.text_heads = 2;
  config.audio_layers = config.text_layers = 2;
  config.text_ctx = 448;
  config.mels = 80;
  return config;
}

WhisperConfig SmallestWhisperConfig() {
  WhisperConfig config;
  config.vocab = 40;
  config.audio_ctx = 6;
  config.audio_state = config.text_state = 32;
  config.audio_heads = config.text_heads = 2;
  config.audio_layers = config.text_layers = 1;
  config.text_ctx = 8;
  config.mels = 80;
  return config;
}

WhisperTensors RandomWhisper(const WhisperConfig& config, uint64_t seed, WeightType type) {
  WhisperTensors model;
  model.config = config;
  for (const WhisperTensorShape& shape : WhisperTensorShapes(config)) {
    // A convolution's rows, three values long, are no blocks.
    const bool in_blocks = shape.is_factor && shape.dims.back() % InfoOf(type).block_values == 0;
    const WeightType floats = IsInteger(type) ? WeightType::kF16 : type;
    const WeightType stored = !shape.is_factor ? WeightType::kF32 : (in_blocks ? type : floats);
    std::byte* data = model.Add(shape.name, stored, shape.dims);
    const WhisperTensor& tensor = model.tensors.at(shape.name);
    const bool is_embedding =
        shape.name.ends_with("embedding") || shape.name.starts_with("decoder.token");
    const auto num_inputs = tensor.values() / tensor.dims[0];
    const auto inputs = static_cast<float>(num_inputs);
    const float deviation =
        shape.is_factor && !is_embedding ? std::clamp(1 / std::sqrt(inputs), 0.001f, 1.0f) : 0.1f;
    FillRandomWeights(stored, tensor.values(), deviation,
                      SplitMix64(seed ^ HashName(shape.name)).Next(), data);
    if (!shape.name.ends_with("ln.weight") && !shape.name.ends_with("ln_post.weight")) continue;
    for (int64_t i = 0; i < tensor.values(); ++i) {
      float value = 0;
      std::memcpy(&value, data + i * sizeof(value), sizeof(value));
      value += 1;
      std::memcpy(data + i * sizeof(value), &value, sizeof(value));
    }
  }
  return model;
}

}  // namespace varve
