// What a speech model wrote, whatever its bytes are: the normaliser gives clean words, and every
// format of a transcript is whole UTF-8, also where a character lies in two segments.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "runtime/eval/english_normalizer.h"
#include "runtime/eval/word_error.h"
#include "runtime/whisper/compression_ratio.h"
#include "runtime/whisper/transcript_format.h"

namespace {

using varve::TranscriptFormat;

// Longer texts take the aligner too long.
constexpr size_t kMaxTextBytes = 2000;

void Require(bool condition) {
  if (!condition) std::abort();
}

void Normalize(std::string_view text) {
  const std::string words = varve::NormalizeEnglish(text);
  Require(varve::IsValidUtf8(words));
  Require(words.find("  ") == std::string::npos);
  Require(!words.starts_with(' ') && !words.ends_with(' '));
  Require(varve::AlignWords(words, words).errors() == 0);
  const varve::EditCounts counts = varve::AlignCharacters(words, text);
  Require(counts.rate() >= 0 && counts.reference_length() <= static_cast<int64_t>(words.size()));
}

void Format(std::string_view text, size_t cut) {
  varve::Transcript transcript;
  transcript.segments.resize(2);
  transcript.segments[0].text = text.substr(0, cut);
  transcript.segments[1].text = text.substr(cut);
  for (const TranscriptFormat format : {TranscriptFormat::kText, TranscriptFormat::kSrt,
                                        TranscriptFormat::kVtt, TranscriptFormat::kJson}) {
    const std::string file = varve::FormatTranscript(transcript, format);
    Require(varve::IsValidUtf8(file));
    if (format == TranscriptFormat::kJson) Require(nlohmann::json::accept(file));
  }
  Require(varve::CompressionRatio(text) >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), std::min(size, kMaxTextBytes));
  Normalize(text);
  Format(text, text.size() / 2);
  return 0;
}
