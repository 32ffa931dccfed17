#include "runtime/whisper/whisper_config.h"

#include <iterator>

#include <fmt/format.h>

namespace varve {
namespace {

constexpr WhisperConfigField kFields[] = {
    {"n_vocab", &WhisperConfig::vocab},
    {"n_audio_ctx", &WhisperConfig::audio_ctx},
    {"n_audio_state", &WhisperConfig::audio_state},
    {"n_audio_head", &WhisperConfig::audio_heads},
    {"n_audio_layer", &WhisperConfig::audio_layers},
    {"n_text_ctx", &WhisperConfig::text_ctx},
    {"n_text_state", &WhisperConfig::text_state},
    {"n_text_head", &WhisperConfig::text_heads},
    {"n_text_layer", &WhisperConfig::text_layers},
    {"n_mels", &WhisperConfig::mels},
};
// Above everything that has been trained (large: width 1280, 20 heads, 32 layers), and low enough
// that no product of sizes overflows. The same order.
constexpr int kMost[] = {51866, 1500, 4096, 64, 64, 4096, 4096, 64, 64, 128};
static_assert(std::size(kMost) == std::size(kFields));
// What a cache's rows may be.
constexpr int kHeadDimMultiple = 16;
constexpr int kMaxHeadDim = 512;

Status CheckHeads(const char* field, int state, int heads, const std::string& name) {
  if (state % heads != 0) {
    return InvalidArgument(
        fmt::format("{}: {} {} does not divide the width {}", name, field, heads, state));
  }
  const int dim = state / heads;
  if (dim % kHeadDimMultiple == 0 && dim <= kMaxHeadDim) return Status();
  return InvalidArgument(
      fmt::format("{}: {} {} of width {} are {} values each, not a multiple of {} up to {}", name,
                  field, heads, state, dim, kHeadDimMultiple, kMaxHeadDim));
}

}  // namespace

std::span<const WhisperConfigField> WhisperConfigFields() { return kFields; }

Status CheckWhisperConfig(const WhisperConfig& config, const std::string& name) {
  for (size_t i = 0; i < std::size(kFields); ++i) {
    const int value = config.*kFields[i].value;
    if (value >= 1 && value <= kMost[i]) continue;
    return InvalidArgument(
        fmt::format("{}: {} {} is not in 1 … {}", name, kFields[i].name, value, kMost[i]));
  }
  if (config.mels != 80 && config.mels != 128) {
    return InvalidArgument(fmt::format("{}: n_mels {} is neither 80 nor 128", name, config.mels));
  }
  if (config.text_state != config.audio_state) {
    return InvalidArgument(fmt::format("{}: n_text_state {} is not n_audio_state {}", name,
                                       config.text_state, config.audio_state));
  }
  VARVE_RETURN_IF_ERROR(CheckHeads("n_audio_head", config.audio_state, config.audio_heads, name));
  return CheckHeads("n_text_head", config.text_state, config.text_heads, name);
}

std::string WhisperModelName(const WhisperConfig& config) {
  struct Size {
    const char* name;
    int layers, width;
  };
  constexpr Size kSizes[] = {{"tiny", 4, 384},
                             {"base", 6, 512},
                             {"small", 12, 768},
                             {"medium", 24, 1024},
                             {"large", 32, 1280}};
  for (const Size& size : kSizes) {
    if (config.audio_layers != size.layers || config.audio_state != size.width) continue;
    std::string name = size.name;
    if (!config.multilingual()) return name + ".en";
    if (config.mels == 128) name += "-v3";
    if (config.text_layers == 4 && size.layers == 32) return name + "-turbo";
    return config.text_layers == size.layers ? name : "";
  }
  return "";
}

}  // namespace varve
