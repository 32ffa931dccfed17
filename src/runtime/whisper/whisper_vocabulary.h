// The tokens of a Whisper model: bytes of ordinary ones, ids of special ones, languages.
//
// Immutable; any number of threads may use it.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_VOCABULARY_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_VOCABULARY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/whisper/whisper_config.h"
#include "varve/status.h"

namespace varve {

struct WhisperLanguage {
  std::string_view code;  // "de"
  std::string_view name;  // "german"
};

class WhisperVocabulary {
 public:
  // `tokens` as WhisperTensors has them; empty: the list that belongs to the config.
  static Result<WhisperVocabulary> Create(const WhisperConfig& config,
                                          std::vector<std::string> tokens);

  int32_t end_of_text() const;  // <|endoftext|>
  int32_t start() const;        // <|startoftranscript|>
  int32_t translate() const;
  int32_t transcribe() const;
  int32_t start_of_previous() const;  // <|startofprev|>
  int32_t start_of_lm() const;
  int32_t no_speech() const;
  int32_t no_timestamps() const;
  int32_t first_timestamp() const;  // <|0.00|>; one per 0.02 s, 1501 of them
  bool IsTimestamp(int32_t id) const { return id >= first_timestamp(); }
  bool IsText(int32_t id) const { return id < end_of_text(); }

  std::span<const WhisperLanguage> languages() const;  // empty for an English model
  int32_t LanguageToken(int index) const;
  // By code or name, in any case; kInvalidArgument names what there is.
  Result<int> FindLanguage(std::string_view text) const;

  // Bytes of text tokens; special ones and timestamps give none.
  std::string Decode(std::span<const int32_t> ids) const;
  // Byte-pair merges by rank over GPT-2's pieces, as tiktoken does it. Never a special token.
  std::vector<int32_t> Encode(std::string_view text) const;
  // Symbols that are not spoken, such as brackets and notes of music: OpenAI's list.
  std::span<const int32_t> non_speech() const;
  // The token of a single space, which may not begin a text.
  int32_t space() const;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_VOCABULARY_H_
