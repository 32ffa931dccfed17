// WindowDecoder: the text of one window of speech, greedy, by samples or by beam search.
//
// Start feeds the prompt (text before, language, task) once; every Decode begins from it. Beams and
// samples are forks of the prompt's sequence, so they share its pages, and those of each other as
// far as their texts agree. Everything is given back when the object goes. Decoding follows
// OpenAI's: the same rules, ends and ranks. Not thread-safe; the runner is not owned.

#ifndef VARVE_RUNTIME_WHISPER_WINDOW_DECODER_H_
#define VARVE_RUNTIME_WHISPER_WINDOW_DECODER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "runtime/whisper/decoding_rules.h"
#include "runtime/whisper/speech_runner.h"

namespace varve {

struct WindowPrompt {
  int language = -1;  // index; -1 for a model that knows English alone
  bool translate = false;
  bool timestamps = true;
  std::vector<int32_t> previous = {};  // text before the window; the last text_ctx / 2 - 1 are used
};

struct WindowSearch {
  double temperature = 0;
  int beams = 5;    // at temperature 0; 1 is greedy
  int best_of = 5;  // samples at a higher temperature
  double patience = 1;
  std::optional<double> length_penalty = {};  // without: ranks by the mean log probability
  double max_initial_timestamp_s = 1.0;
  int max_tokens = 0;  // 0: text_ctx / 2
  uint64_t seed = 0;
};

struct WindowText {
  std::vector<int32_t> tokens;  // without the end
  std::vector<float> logprobs;  // [tokens]
  std::string text;             // bytes of the text tokens, stripped
  double avg_logprob = 0;       // over the tokens and the end
  double no_speech_prob = 0;
  double compression_ratio = 0;
  double temperature = 0;
};

class WindowDecoder {
 public:
  WindowDecoder(SpeechRunner& runner, SequenceId window);
  ~WindowDecoder();
  WindowDecoder(const WindowDecoder&) = delete;
  WindowDecoder& operator=(const WindowDecoder&) = delete;

  // The likeliest language by the model's first token; its probability goes to *probability unless
  // that is null. Needs a multilingual model.
  Result<int> DetectLanguage(double* probability);

  Status Start(const WindowPrompt& prompt);
  // After Start.
  Result<WindowText> Decode(const WindowSearch& search);

 private:
  // A text under way or done.
  struct Hypothesis {
    SequenceId sequence = {};
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    double sum = 0;
    bool ended = false;
  };
  struct Candidate {
    double score = 0;
    size_t source = 0;  // of the hypotheses
    int32_t token = 0;
    float logprob = 0;
  };
  // Logits of the hypotheses' next tokens, after the rules.
  struct Row {
    std::span<float> logits;
    double log_sum = 0;
    std::vector<float> scratch;
  };

  Result<std::vector<Hypothesis>> Sample(const WindowSearch& search, const DecodingRules& rules);
  Result<std::vector<Hypothesis>> SearchBeams(const WindowSearch& search,
                                              const DecodingRules& rules);
  // rows_ of the hypotheses that have not ended; the first call takes the prompt's logits, later
  // ones feed the last tokens.
  Status NextRows(std::span<Hypothesis* const> live, const DecodingRules& rules);
  void AddCandidates(const Row& row, const Hypothesis& from, size_t source, int count,
                     std::vector<Candidate>* candidates) const;
  // The hypotheses that follow from the candidates, with their sequences.
  Result<std::vector<Hypothesis>> Advance(std::vector<Hypothesis> from,
                                          std::span<const Candidate> chosen);
  int32_t Draw(const Row& row, double temperature, SplitMix64* random) const;
  Result<SequenceId> Fork();
  Status Free(SequenceId sequence);
  int MaxTokens(const WindowSearch& search) const;
  WindowText Finish(const WindowSearch& search, const std::vector<Hypothesis>& hypotheses) const;

  SpeechRunner& runner_;
  const WhisperVocabulary& vocabulary_;
  SequenceId window_;
  std::vector<SequenceId> open_;  // every sequence of ours that lives
  SequenceId prompt_;             // the first of them
  bool timestamps_ = true;
  int prompt_tokens_ = 0;
  double no_speech_prob_ = 0;
  std::vector<float> prompt_logits_;  // [vocab] behind the prompt
  std::vector<float> logits_;         // [hypotheses, vocab]
  std::vector<Row> rows_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WINDOW_DECODER_H_
