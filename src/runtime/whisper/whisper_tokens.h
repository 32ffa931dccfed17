// The ordinary tokens of OpenAI's two Whisper vocabularies, which are part of the program
// (models/README.md says what they are): a .pt or a model.bin does not bring its own.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_TOKENS_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_TOKENS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve {

// Bytes by id: 50256 of the English models, 50257 of the others. kDataLoss: the program is damaged.
Result<std::vector<std::string>> WhisperTokens(bool multilingual);

// The same from a zstd frame of tokens, each a byte with its size, then its bytes.
Result<std::vector<std::string>> UnpackWhisperTokens(std::span<const std::byte> frame);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_TOKENS_H_
