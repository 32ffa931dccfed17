#include "runtime/whisper/transcriber.h"

#include <algorithm>
#include <utility>

#include "kernels/content_hash.h"
#include "runtime/audio/audio_file.h"
#include "runtime/whisper/word_times.h"

namespace varve {
namespace {

constexpr double kFrameSeconds = static_cast<double>(kMelFrameSamples) / kSpeechRate;
constexpr int kTimestampFrames = 2;
// Text that took a higher temperature than this is no good prompt.
constexpr double kMaxPromptTemperature = 0.5;

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

// One transcription under way.
class Transcriber {
 public:
  Transcriber(SpeechRunner& runner, const LogMel& mel, const TranscribeOptions& options,
              const TranscribeCallbacks& callbacks)
      : runner_(runner),
        vocabulary_(runner.model().vocabulary()),
        mel_(mel),
        options_(options),
        callbacks_(callbacks),
        window_frames_(2 * runner.model().config().audio_ctx) {}

  Result<Transcript> Run() {
    transcript_.duration_s = mel_.frames * kFrameSeconds;
    transcript_.language = "en";
    if (!options_.prompt.empty()) tokens_ = vocabulary_.Encode(" " + options_.prompt);
    VARVE_RETURN_IF_ERROR(ChooseLanguage());
    int seek = 0;
    while (seek < mel_.frames) {
      const int size = std::min(window_frames_, mel_.frames - seek);
      VARVE_ASSIGN_OR_RETURN(const int advance, RunWindow(seek, size));
      seek += advance;
      const double done = std::min(seek, mel_.frames) * kFrameSeconds;
      if (callbacks_.on_progress && !callbacks_.on_progress(done)) break;
    }
    return std::move(transcript_);
  }

 private:
  Result<SequenceId> Encode(int seek) {
    return runner_.Encode(mel_.values.data() + seek, mel_.stride());
  }

  Status ChooseLanguage() {
    if (!runner_.model().config().multilingual()) {
      if (!options_.language.empty() && options_.language != "en" &&
          options_.language != "english") {
        return InvalidArgument("language \"" + options_.language +
                               "\": the model knows English alone");
      }
      if (options_.translate) {
        return InvalidArgument("task translate: the model knows English alone");
      }
      return Status();
    }
    if (!options_.language.empty()) {
      VARVE_ASSIGN_OR_RETURN(language_, vocabulary_.FindLanguage(options_.language));
    } else if (mel_.frames == 0) {
      VARVE_ASSIGN_OR_RETURN(language_, vocabulary_.FindLanguage("en"));
    } else {
      VARVE_ASSIGN_OR_RETURN(const SequenceId window, Encode(0));
      WindowDecoder decoder(runner_, window);
      VARVE_ASSIGN_OR_RETURN(language_, decoder.DetectLanguage(nullptr));
    }
    transcript_.language = vocabulary_.languages()[language_].code;
    return Status();
  }

  // Whether another temperature may do better.
  bool Fails(const WindowText& text) const {
    const bool unlikely = text.avg_logprob < options_.min_avg_logprob;
    if (unlikely && text.no_speech_prob > options_.max_no_speech_prob) return false;
    return unlikely || text.compression_ratio > options_.max_compression_ratio;
  }

  Result<WindowText> DecodeWindow(SequenceId window, int seek) {
    WindowDecoder decoder(runner_, window);
    WindowPrompt prompt{
        .language = language_,
        .translate = options_.translate,
        .timestamps = options_.timestamps,
        .previous = {tokens_.begin() + static_cast<ptrdiff_t>(prompt_begin_), tokens_.end()}};
    VARVE_RETURN_IF_ERROR(decoder.Start(prompt));
    WindowText text;
    for (const double temperature : options_.temperatures) {
      WindowSearch search = options_.search;
      search.temperature = temperature;
      const struct {
        uint64_t seed;
        int64_t seek;
        double temperature;
      } place = {search.seed, seek, temperature};
      search.seed = HashBytes(&place, sizeof(place));
      VARVE_ASSIGN_OR_RETURN(text, decoder.Decode(search));
      if (!Fails(text)) break;
    }
    return text;
  }

  // How many frames the window has brought us on.
  Result<int> RunWindow(int seek, int size) {
    VARVE_ASSIGN_OR_RETURN(const SequenceId window, Encode(seek));
    VARVE_ASSIGN_OR_RETURN(const WindowText text, DecodeWindow(window, seek));
    if (text.no_speech_prob > options_.max_no_speech_prob &&
        text.avg_logprob <= options_.min_avg_logprob) {
      return size;
    }
    int advance = size;
    std::vector<TranscriptSegment> segments = CutSegments(vocabulary_, text.tokens, size, &advance);
    if (options_.words) {
      const WindowPrompt start{.language = language_, .translate = options_.translate};
      VARVE_RETURN_IF_ERROR(AddWordTimes(runner_, window, start, text, size, &segments));
    }
    for (TranscriptSegment& segment : segments) {
      segment.temperature = text.temperature;
      segment.avg_logprob = text.avg_logprob;
      segment.compression_ratio = text.compression_ratio;
      segment.no_speech_prob = text.no_speech_prob;
      Place(seek * kFrameSeconds, &segment);
      // An empty segment, or one without length, says nothing.
      if (segment.start_s == segment.end_s || IsBlank(segment.text)) continue;
      tokens_.insert(tokens_.end(), segment.tokens.begin(), segment.tokens.end());
      if (callbacks_.on_segment) callbacks_.on_segment(segment);
      transcript_.segments.push_back(std::move(segment));
    }
    if (!options_.previous_text || text.temperature > kMaxPromptTemperature) {
      prompt_begin_ = tokens_.size();
    }
    return advance;
  }

  static void Place(double offset_s, TranscriptSegment* segment) {
    segment->start_s += offset_s;
    segment->end_s += offset_s;
    for (TranscriptWord& word : segment->words) {
      word.start_s += offset_s;
      word.end_s += offset_s;
    }
  }

  SpeechRunner& runner_;
  const WhisperVocabulary& vocabulary_;
  const LogMel& mel_;
  const TranscribeOptions& options_;
  const TranscribeCallbacks& callbacks_;
  const int window_frames_;
  int language_ = -1;
  Transcript transcript_;
  std::vector<int32_t> tokens_;  // prompt and text so far, timestamps included
  size_t prompt_begin_ = 0;      // from here on they are the next window's prompt
};

}  // namespace

std::vector<TranscriptSegment> CutSegments(const WhisperVocabulary& vocabulary,
                                           const std::vector<int32_t>& tokens, int size,
                                           int* advance) {
  const auto is_stamp = [&](size_t i) { return vocabulary.IsTimestamp(tokens[i]); };
  const auto stamp = [&](size_t i) {
    return std::max(0, tokens[i] - vocabulary.first_timestamp());
  };
  std::vector<TranscriptSegment> segments;
  const auto add = [&](size_t begin, size_t end, double start_s, double end_s) {
    TranscriptSegment segment;
    segment.tokens.assign(tokens.begin() + static_cast<ptrdiff_t>(begin),
                          tokens.begin() + static_cast<ptrdiff_t>(end));
    segment.text = vocabulary.Decode(segment.tokens);
    segment.start_s = start_s;
    segment.end_s = end_s;
    segments.push_back(std::move(segment));
  };
  const size_t count = tokens.size();
  // A lone timestamp at the end: nothing is spoken behind it.
  const bool closed = count >= 2 && !is_stamp(count - 2) && is_stamp(count - 1);
  std::vector<size_t> ends;  // behind the first timestamp of each pair
  for (size_t i = 1; i < count; ++i) {
    if (is_stamp(i - 1) && is_stamp(i)) ends.push_back(i);
  }
  *advance = size;
  if (ends.empty()) {
    double duration_s = size * kFrameSeconds;
    for (size_t i = count; i-- > 0;) {
      if (!is_stamp(i)) continue;
      if (stamp(i) > 0) duration_s = stamp(i) * kTimestampSeconds;
      break;
    }
    add(0, count, 0, duration_s);
    return segments;
  }
  if (closed) ends.push_back(count);
  size_t begin = 0;
  for (const size_t end : ends) {
    add(begin, end, stamp(begin) * kTimestampSeconds, stamp(end - 1) * kTimestampSeconds);
    begin = end;
  }
  // The segment that is not whole is heard again, from its begin.
  if (!closed && stamp(begin - 1) > 0) {
    *advance = std::min(size, stamp(begin - 1) * kTimestampFrames);
  }
  return segments;
}

Result<Transcript> Transcribe(SpeechRunner& runner, const LogMel& mel,
                              const TranscribeOptions& options,
                              const TranscribeCallbacks& callbacks) {
  return Transcriber(runner, mel, options, callbacks).Run();
}

}  // namespace varve
