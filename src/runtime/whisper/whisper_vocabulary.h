// The tokens of a Whisper model: bytes of ordinary ones, ids of special ones, languages.
//
// Immutable; any number of threads may use it.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_VOCABULARY_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_VOCABULARY_H_

#include <cstdint>
#include <memory>
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
  // `tokens` as WhisperTensors has them; empty: the list that belongs to the config. Tokens beyond
  // the ordinary ones are ignored; fewer, and a config with fewer ids than Whisper's, are refused.
  static Result<WhisperVocabulary> Create(const WhisperConfig& config,
                                          std::vector<std::string> tokens);

  int32_t end_of_text() const { return end_of_text_; }          // <|endoftext|>
  int32_t start() const { return end_of_text_ + 1; }            // <|startoftranscript|>
  int32_t translate() const { return translate_; }              // <|translate|>
  int32_t transcribe() const { return translate_ + 1; }         // <|transcribe|>
  int32_t start_of_lm() const { return translate_ + 2; }        // <|startoflm|>
  int32_t start_of_previous() const { return translate_ + 3; }  // <|startofprev|>
  int32_t no_speech() const { return translate_ + 4; }          // <|nospeech|>
  int32_t no_timestamps() const { return translate_ + 5; }      // <|notimestamps|>
  int32_t first_timestamp() const {
    return translate_ + 6;
  }  // <|0.00|>; one per 0.02 s, 1501 of them
  bool IsTimestamp(int32_t id) const { return id >= first_timestamp(); }
  bool IsText(int32_t id) const { return id < end_of_text(); }

  std::span<const WhisperLanguage> languages() const;  // empty for an English model
  int32_t LanguageToken(int index) const { return start() + 1 + index; }
  // By code or name, in any case; kInvalidArgument names what there is. An English model has none
  // to choose from.
  Result<int> FindLanguage(std::string_view text) const;

  // Bytes of text tokens; special ones and timestamps give none.
  std::string Decode(std::span<const int32_t> ids) const;
  // Byte-pair merges by rank over GPT-2's pieces, as tiktoken does it. Never a special token.
  std::vector<int32_t> Encode(std::string_view text) const;
  // Symbols that are not spoken, such as brackets and notes of music: OpenAI's list.
  std::span<const int32_t> non_speech() const { return non_speech_; }
  // The token of a single space, which may not begin a text.
  int32_t space() const { return space_; }

 private:
  struct Table;

  WhisperVocabulary() = default;
  void EncodeWord(std::string_view word, std::vector<int32_t>& ids) const;
  void FindNonSpeech();

  int32_t end_of_text_ = 0;
  int32_t translate_ = 0;
  int32_t space_ = 0;
  int num_languages_ = 0;
  std::shared_ptr<const Table> table_;  // of copies the same
  std::vector<int32_t> non_speech_;     // ascending
};

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_VOCABULARY_H_
