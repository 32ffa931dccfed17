// Transcripts as people and programs read them: plain text, SubRip (srt), WebVTT (vtt), JSON.
//
// TranscriptWriter gives the text of each segment as it comes; JSON comes as a whole at the end. A
// character that begins in one segment and ends in the next is shown in the next. Bytes that are no
// UTF-8 become U+FFFD.

#ifndef VARVE_RUNTIME_WHISPER_TRANSCRIPT_FORMAT_H_
#define VARVE_RUNTIME_WHISPER_TRANSCRIPT_FORMAT_H_

#include <string>
#include <string_view>

#include "runtime/whisper/transcript.h"
#include "varve/status.h"

namespace varve {

enum class TranscriptFormat {
  kText,  // a line per segment
  kSrt,
  kVtt,
  kJson,  // {"language", "duration", "text", "segments": [{"id", "start", "end", "text", ...}]}
};

// "txt", "srt", "vtt" or "json"; kInvalidArgument names them.
Result<TranscriptFormat> ParseTranscriptFormat(std::string_view name);

// What Begin, Add and End return, in this order and one after another, is the file. For one thread.
class TranscriptWriter {
 public:
  explicit TranscriptWriter(TranscriptFormat format) : format_(format) {}

  std::string Begin() const;
  std::string Add(const TranscriptSegment& segment);
  // `transcript` is the whole: JSON is written from it alone.
  std::string End(const Transcript& transcript);

 private:
  std::string Cue(std::string_view text);

  TranscriptFormat format_;
  int cues_ = 0;
  std::string pending_;  // a character that has begun
  double start_s_ = 0;   // of the last segment, for what is still pending at the end
  double end_s_ = 0;
};

// A whole transcript at once.
std::string FormatTranscript(const Transcript& transcript, TranscriptFormat format);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_TRANSCRIPT_FORMAT_H_
