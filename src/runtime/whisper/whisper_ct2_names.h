// Where CTranslate2's Whisper files have the tensors that OpenAI's names tell.
//
// linear_0 of self attention is Q, K and V one below the other, linear_1 of cross attention K and
// V. Pure functions.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_CT2_NAMES_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_CT2_NAMES_H_

#include <string>
#include <string_view>

namespace varve {

// Rows [part, part + 1) / parts of a variable.
struct Ct2Source {
  std::string variable;
  int part = 0;
  int parts = 1;
};

// "encoder.blocks.3.attn.query.weight" -> "encoder/layer_3/self_attention/linear_0/weight", 0 of 3.
// `tensor` must be a name of WhisperTensorShapes.
Ct2Source Ct2SourceOf(std::string_view tensor);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_CT2_NAMES_H_
