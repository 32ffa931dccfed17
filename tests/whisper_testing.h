// Whisper models of random weights, made in memory: what tests of readers, writers, encoder and
// decoder share. The same bytes for the same config, seed and type on every machine; a tensor's
// values depend on its name, not on its neighbours.

#ifndef VARVE_TESTS_WHISPER_TESTING_H_
#define VARVE_TESTS_WHISPER_TESTING_H_

#include <cstdint>

#include "runtime/kernels/weights.h"
#include "runtime/whisper/whisper_config.h"
#include "runtime/whisper/whisper_tensors.h"

namespace varve {

// One that can decode: 2 + 2 layers of width 64, 2 heads of 32, all positions, 80 mels.
// 51864: English.
WhisperConfig TinyWhisperConfig(int vocab = 51864);

// For tests of files alone, as small as every type of weights allows: 1 + 1 layers of width 32, 2
// heads of 16, 40 tokens, which no vocabulary has.
WhisperConfig SmallestWhisperConfig();

// Factors in `type`, the rest in f32. Norms are about 1, biases about 0, and matrices keep the size
// of what they multiply.
WhisperTensors RandomWhisper(const WhisperConfig& config, uint64_t seed,
                             WeightType type = WeightType::kF32);

}  // namespace varve

#endif  // VARVE_TESTS_WHISPER_TESTING_H_
