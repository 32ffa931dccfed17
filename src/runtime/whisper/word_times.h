// Times of words, from where the decoder looks while it speaks them.
//
// Some heads of cross attention follow the speech. The text is fed once more; the weights of those
// heads, normalized and smoothed, are a map of tokens over frames, and the cheapest monotone path
// through it (dynamic time warping) says when each token is spoken, to 0.02 s. A word is a token
// that begins with a space and those behind it that do not, so that punctuation belongs to the word
// before. For models whose heads are not known, all heads of the upper half of the layers serve.

#ifndef VARVE_RUNTIME_WHISPER_WORD_TIMES_H_
#define VARVE_RUNTIME_WHISPER_WORD_TIMES_H_

#include <span>
#include <utility>
#include <vector>

#include "runtime/whisper/speech_runner.h"
#include "runtime/whisper/transcript.h"
#include "runtime/whisper/window_decoder.h"

namespace varve {

// Layer and head of cross attention.
using AlignmentHead = std::pair<int, int>;
std::vector<AlignmentHead> AlignmentHeads(const WhisperConfig& config);

// The cheapest path through cost [rows, cols] from the first to the last cell, by steps right, down
// or both: per row the column at which the path enters it.
std::vector<int> CheapestPath(std::span<const float> cost, int rows, int cols);

// Fills the words of the segments of a window, whose tokens they hold; times count from the
// window's begin. `num_frames` mel frames of the window are sound.
Status AddWordTimes(SpeechRunner& runner, SequenceId window, const WindowPrompt& prompt,
                    const WindowText& text, int num_frames,
                    std::vector<TranscriptSegment>* segments);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WORD_TIMES_H_
