#include "runtime/whisper/whisper_config.h"

#include <fmt/format.h>

namespace varve {
namespace {

// Above everything that has been trained (large: width 1280, 20 heads, 32 layers), and low enough
// that no product of sizes overflows.
constexpr int kMaxState = 4096;
constexpr int kMaxHeads = 64;
constexpr int kMaxLayers = 64;
constexpr int kMaxAudioCtx = 1500;  // 30 seconds
constexpr int kMaxTextCtx = 4096;
constexpr int kMaxVocab = 51866;  // a language more has no code
// What a cache's rows may be.
constexpr int kHeadDimMultiple = 16;
constexpr int kMaxHeadDim = 512;

struct Limit {
  const char* field;
  int value;
  int most;
};

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

Status CheckWhisperConfig(const WhisperConfig& config, const std::string& name) {
  const Limit limits[] = {
      {"n_vocab", config.vocab, kMaxVocab},
      {"n_audio_ctx", config.audio_ctx, kMaxAudioCtx},
      {"n_audio_state", config.audio_state, kMaxState},
      {"n_audio_head", config.audio_heads, kMaxHeads},
      {"n_audio_layer", config.audio_layers, kMaxLayers},
      {"n_text_ctx", config.text_ctx, kMaxTextCtx},
      {"n_text_state", config.text_state, kMaxState},
      {"n_text_head", config.text_heads, kMaxHeads},
      {"n_text_layer", config.text_layers, kMaxLayers},
  };
  for (const Limit& limit : limits) {
    if (limit.value >= 1 && limit.value <= limit.most) continue;
    return InvalidArgument(
        fmt::format("{}: {} {} is not in 1 … {}", name, limit.field, limit.value, limit.most));
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

}  // namespace varve
