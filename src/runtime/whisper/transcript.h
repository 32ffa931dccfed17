// What a speech model heard: segments with times, tokens and the measures that decided about them.
//
// Plain data; whoever holds it owns it. How it is written as text, subtitles or JSON is in
// transcript_format.h.

#ifndef VARVE_RUNTIME_WHISPER_TRANSCRIPT_H_
#define VARVE_RUNTIME_WHISPER_TRANSCRIPT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace varve {

struct TranscriptWord {
  double start_s = 0;
  double end_s = 0;
  std::string text;  // with the space before it, as the tokens have it
  double probability = 0;
};

struct TranscriptSegment {
  double start_s = 0;
  double end_s = 0;
  // Bytes of the text tokens. Tokens are bytes, so a character may begin in one segment and end in
  // the next: the texts of all segments together are UTF-8, one alone need not be.
  std::string text;
  std::vector<int32_t> tokens;
  double temperature = 0;
  double avg_logprob = 0;        // mean over the tokens, natural logarithm
  double compression_ratio = 0;  // CompressionRatio of the window's text
  double no_speech_prob = 0;
  std::vector<TranscriptWord> words;  // empty where nobody asked for them
};

struct Transcript {
  std::string language;  // code, "en"
  double duration_s = 0;
  std::vector<TranscriptSegment> segments;  // in the order of time
};

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_TRANSCRIPT_H_
