// Transcribe: the text of a sound of any length, window by window.
//
// A window is 30 seconds. The next one begins where the last whole segment of this one ended, and
// the text so far is its prompt. A window whose text repeats itself or is unlikely is decoded again
// at a higher temperature; one that holds no speech gives no text. All of it follows OpenAI's
// transcribe. Deterministic: the same sound and options give the same text, with any number of
// threads.

#ifndef VARVE_RUNTIME_WHISPER_TRANSCRIBER_H_
#define VARVE_RUNTIME_WHISPER_TRANSCRIBER_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/audio/log_mel.h"
#include "runtime/whisper/speech_runner.h"
#include "runtime/whisper/transcript.h"
#include "runtime/whisper/window_decoder.h"

namespace varve {

struct TranscribeOptions {
  std::string language;    // code or name; empty: the model says it, from the first window
  bool translate = false;  // to English
  WindowSearch search;     // its temperature is set by those below
  std::vector<double> temperatures = {0, 0.2, 0.4, 0.6, 0.8, 1.0};  // tried in turn
  // A window is decoded at the next temperature if it packs better than the first of these, or is
  // less likely than the second; unless the third says that it holds no speech.
  double max_compression_ratio = 2.4;
  double min_avg_logprob = -1.0;
  double max_no_speech_prob = 0.6;
  bool previous_text = true;  // is the prompt of the next window
  std::string prompt;         // before the first window
  bool timestamps = true;     // false: a segment per window
  bool words = false;         // times of words
};

struct TranscribeCallbacks {
  // A segment of the text is final.
  std::function<void(const TranscriptSegment&)> on_segment;
  // Seconds that are done, of the sound's. False ends the work with what there is.
  std::function<bool(double seconds)> on_progress;
};

Result<Transcript> Transcribe(SpeechRunner& runner, const LogMel& mel,
                              const TranscribeOptions& options,
                              const TranscribeCallbacks& callbacks = {});

// The segments of a window's tokens, times counted from the window's begin. `size` and *advance
// are mel frames: what the window holds of the sound, and where the next one begins.
std::vector<TranscriptSegment> CutSegments(const WhisperVocabulary& vocabulary,
                                           const std::vector<int32_t>& tokens, int size,
                                           int* advance);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_TRANSCRIBER_H_
