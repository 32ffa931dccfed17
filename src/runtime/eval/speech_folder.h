// A folder with recordings and what is said in them, for word error rates.
//
// transcripts.tsv: a line per recording, columns between tabs, the id in the first and the text in
// the last. The recording of an id is ID.wav, .flac, .ogg, .oga, .opus or .mp3 beside it; the id
// may have its extension already. The first line is a header unless its id has a recording.
//
// Without that file, segments.tsv: recordings that hold many utterances each. Its header names the
// columns; the first is the recording, and there are start_sample_16k, num_samples_16k (at 16 kHz)
// and either text or digit (AudioMNIST).

#ifndef VARVE_RUNTIME_EVAL_SPEECH_FOLDER_H_
#define VARVE_RUNTIME_EVAL_SPEECH_FOLDER_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve {

struct Utterance {
  std::string id;
  std::string path;    // of the recording
  std::string text;    // as written
  size_t begin = 0;    // in samples at 16 kHz
  size_t samples = 0;  // 0: to the end of the recording
};

struct SpeechFolder {
  std::vector<Utterance> utterances;  // in the order of the lines
  size_t rows_without_audio = 0;      // left out
};

// kNotFound without either list; kInvalidArgument names the line that makes no sense. The list has
// to fit into kMaxSpeechListBytes; recordings are not opened.
inline constexpr size_t kMaxSpeechListBytes = size_t{64} << 20;
Result<SpeechFolder> ReadSpeechFolder(const std::string& folder);

// Gives the samples of utterances, 16 kHz mono. Keeps the last recording, so that utterances of one
// recording, asked for in turn, decode it once. For one thread.
class UtteranceReader {
 public:
  // The samples stay until the next call. kDataLoss if the recording is shorter than the list says.
  Result<std::span<const float>> Read(const Utterance& utterance);

 private:
  std::string path_;
  std::vector<float> samples_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_SPEECH_FOLDER_H_
