// The sizes of a Whisper model, as every kind of its files states them, and what follows from them.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_CONFIG_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_CONFIG_H_

#include <span>
#include <string>

#include "varve/status.h"

namespace varve {

struct WhisperConfig {
  int vocab = 0;        // 51864 English, 51865 multilingual, 51866 large-v3
  int audio_ctx = 0;    // positions of the encoder: 1500 for 30 seconds
  int audio_state = 0;  // width of the encoder
  int audio_heads = 0;
  int audio_layers = 0;
  int text_ctx = 0;    // positions of the decoder: 448
  int text_state = 0;  // width of the decoder, the same as audio_state
  int text_heads = 0;
  int text_layers = 0;
  int mels = 0;  // 80 or 128

  bool multilingual() const { return vocab >= 51865; }
  // 99, or 100 of large-v3; 0 of an English model.
  int num_languages() const { return multilingual() ? vocab - 51766 : 0; }
  int audio_head_dim() const { return audio_state / audio_heads; }
  int text_head_dim() const { return text_state / text_heads; }

  bool operator==(const WhisperConfig&) const = default;
};

// A size by the name that OpenAI's checkpoints give it.
struct WhisperConfigField {
  const char* name;  // "n_vocab"
  int WhisperConfig::*value;
};
// All of them, in the order of ggml's files.
std::span<const WhisperConfigField> WhisperConfigFields();

// Refuses sizes that cannot be a model's, naming field, value and limit. `name` is of the file.
Status CheckWhisperConfig(const WhisperConfig& config, const std::string& name);

// What OpenAI calls a model of these sizes ("tiny.en", "large-v3-turbo"); "" if it has none. The
// first two large models cannot be told apart: "large".
std::string WhisperModelName(const WhisperConfig& config);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_CONFIG_H_
