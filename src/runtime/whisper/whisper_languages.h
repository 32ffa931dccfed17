// The languages of multilingual Whisper models, in the order of their tokens.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_LANGUAGES_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_LANGUAGES_H_

#include <span>
#include <string_view>

#include "runtime/whisper/whisper_vocabulary.h"

namespace varve {

inline constexpr int kNumWhisperLanguages = 100;  // the last, Cantonese, came with large-v3

std::span<const WhisperLanguage> WhisperLanguages();

// The index of a code, a name or another name ("mandarin"), in lower case; -1 if there is none.
int FindWhisperLanguage(std::string_view text);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_LANGUAGES_H_
