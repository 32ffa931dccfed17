// WhisperWeights: the tensors of a Whisper model, bound by name to what the forward passes use.
//
// Matrices are views of the model's tensors, which must outlive this. Norms, biases and positions
// are copied to f32. The two convolutions are f32 copies with their taps outermost, [out, 3, in]:
// the three neighbouring frames that a tap row meets then lie behind one another in memory, so that
// a convolution is a plain product whose input rows overlap, and no columns are copied. Immutable
// after it was made.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_WEIGHTS_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_WEIGHTS_H_

#include <vector>

#include "runtime/kernels/weights.h"
#include "runtime/whisper/whisper_tensors.h"
#include "varve/status.h"

namespace varve {

struct WhisperNorm {
  std::vector<float> weight;  // [state]
  std::vector<float> bias;    // [state]
};

// Keys have no bias.
struct WhisperAttention {
  WhisperNorm norm;               // before it
  WeightMatrix query;             // [state, state]
  WeightMatrix key;               // [state, state]
  WeightMatrix value;             // [state, state]
  WeightMatrix out;               // [state, state]
  std::vector<float> query_bias;  // [state]
  std::vector<float> value_bias;  // [state]
  std::vector<float> out_bias;    // [state]
};

struct WhisperBlock {
  WhisperAttention attention;
  WhisperAttention cross;  // of decoder blocks only
  WhisperNorm mlp_norm;
  WeightMatrix mlp_in;              // [4 state, state]
  WeightMatrix mlp_out;             // [state, 4 state]
  std::vector<float> mlp_in_bias;   // [4 state]
  std::vector<float> mlp_out_bias;  // [state]
};

// A convolution over three frames.
struct WhisperConvolution {
  std::vector<float> taps;  // [out, 3, in]
  std::vector<float> bias;  // [out]

  // [out, 3 * in]: a view of the taps.
  WeightMatrix matrix() const;
};

struct WhisperWeights {
  WhisperConvolution conv1;            // mels to audio_state
  WhisperConvolution conv2;            // audio_state to audio_state, every second frame
  std::vector<float> audio_positions;  // [audio_ctx, audio_state]
  std::vector<WhisperBlock> encoder;   // [audio_layers]
  WhisperNorm encoder_norm;            // behind the last block
  WeightMatrix token_embedding;        // [vocab, text_state]; also the output's matrix
  std::vector<float> text_positions;   // [text_ctx, text_state]
  std::vector<WhisperBlock> decoder;   // [text_layers]
  WhisperNorm decoder_norm;
};

// kInvalidArgument names a tensor that is missing or of another shape.
Result<WhisperWeights> BindWhisperWeights(const WhisperTensors& model);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_WEIGHTS_H_
