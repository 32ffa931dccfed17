#include "runtime/whisper/window_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/whisper/compression_ratio.h"

namespace varve {
namespace {

std::string Stripped(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Uniform in [0, 1).
double Uniform(SplitMix64* random) { return static_cast<double>(random->Next() >> 11) * 0x1.0p-53; }

Status NoFiniteLogit() {
  return DataLoss("whisper: no token has a finite logit; the weights are damaged");
}

}  // namespace

WindowDecoder::WindowDecoder(SpeechRunner& runner, SequenceId window)
    : runner_(runner), vocabulary_(runner.model().vocabulary()), window_(window) {}

WindowDecoder::~WindowDecoder() {
  for (const SequenceId sequence : open_) (void)runner_.self().Free(sequence);
}

Result<SequenceId> WindowDecoder::Fork() {
  VARVE_ASSIGN_OR_RETURN(const SequenceId fork, runner_.self().Fork(prompt_));
  open_.push_back(fork);
  return fork;
}

Status WindowDecoder::Free(SequenceId sequence) {
  open_.erase(std::find(open_.begin(), open_.end(), sequence));
  return runner_.self().Free(sequence);
}

Result<int> WindowDecoder::DetectLanguage(double* probability) {
  const auto count = static_cast<int>(vocabulary_.languages().size());
  if (count == 0) {
    return FailedPrecondition("whisper: the model knows English alone; there is nothing to detect");
  }
  VARVE_ASSIGN_OR_RETURN(const SequenceId sequence, runner_.self().CreateSequence());
  open_.push_back(sequence);
  logits_.resize(runner_.model().config().vocab);
  const StepEntry entry{sequence, 1};
  const int32_t token = vocabulary_.start();
  const int wanted = 0;
  VARVE_RETURN_IF_ERROR(
      runner_.Decode(window_, {&entry, 1}, {&token, 1}, {&wanted, 1}, logits_.data()));
  VARVE_RETURN_IF_ERROR(Free(sequence));
  int best = 0;
  double sum = 0;
  const auto logit = [&](int i) { return logits_[vocabulary_.LanguageToken(i)]; };
  for (int i = 1; i < count; ++i) {
    if (logit(i) > logit(best)) best = i;
  }
  for (int i = 0; i < count; ++i) sum += std::exp(double{logit(i)} - logit(best));
  if (!std::isfinite(sum)) return NoFiniteLogit();
  if (probability != nullptr) *probability = 1 / sum;
  return best;
}

Status WindowDecoder::Start(const WindowPrompt& prompt) {
  const WhisperConfig& config = runner_.model().config();
  std::vector<int32_t> tokens;
  if (!prompt.previous.empty()) {
    const auto most = static_cast<size_t>(config.text_ctx / 2 - 1);
    tokens.push_back(vocabulary_.start_of_previous());
    const size_t used = std::min(prompt.previous.size(), most);
    tokens.insert(tokens.end(), prompt.previous.end() - static_cast<ptrdiff_t>(used),
                  prompt.previous.end());
  }
  const auto start = static_cast<int>(tokens.size());
  tokens.push_back(vocabulary_.start());
  if (prompt.language >= 0) {
    tokens.push_back(vocabulary_.LanguageToken(prompt.language));
    tokens.push_back(prompt.translate ? vocabulary_.translate() : vocabulary_.transcribe());
  }
  if (!prompt.timestamps) tokens.push_back(vocabulary_.no_timestamps());
  timestamps_ = prompt.timestamps;
  prompt_tokens_ = static_cast<int>(tokens.size());
  VARVE_ASSIGN_OR_RETURN(prompt_, runner_.self().CreateSequence());
  open_.push_back(prompt_);
  const auto vocab = static_cast<size_t>(config.vocab);
  logits_.resize(2 * vocab);
  const StepEntry entry{prompt_, prompt_tokens_};
  const int wanted[] = {start, prompt_tokens_ - 1};
  VARVE_RETURN_IF_ERROR(runner_.Decode(window_, {&entry, 1}, tokens, wanted, logits_.data()));
  std::vector<float> scratch;
  const double log_sum = LogSumExp({logits_.data(), vocab}, &scratch);
  if (!std::isfinite(log_sum)) return NoFiniteLogit();
  no_speech_prob_ = std::exp(logits_[vocabulary_.no_speech()] - log_sum);
  prompt_logits_.assign(logits_.begin() + static_cast<ptrdiff_t>(vocab), logits_.end());
  return Status();
}

int WindowDecoder::MaxTokens(const WindowSearch& search) const {
  const WhisperConfig& config = runner_.model().config();
  const int wanted = search.max_tokens > 0 ? search.max_tokens : config.text_ctx / 2;
  // The last token is never fed, so the text may be one longer than the positions left.
  return std::min(wanted, config.text_ctx - prompt_tokens_ + 1);
}

Status WindowDecoder::NextRows(std::span<Hypothesis* const> live, const DecodingRules& rules) {
  const auto vocab = static_cast<size_t>(runner_.model().config().vocab);
  logits_.resize(std::max(logits_.size(), live.size() * vocab));
  rows_.resize(std::max(rows_.size(), live.size()));
  if (live.front()->tokens.empty()) {
    for (size_t i = 0; i < live.size(); ++i) {
      std::copy(prompt_logits_.begin(), prompt_logits_.end(),
                logits_.begin() + static_cast<ptrdiff_t>(i * vocab));
    }
  } else {
    std::vector<StepEntry> entries;
    std::vector<int32_t> tokens;
    std::vector<int> wanted;
    for (const Hypothesis* hypothesis : live) {
      wanted.push_back(static_cast<int>(entries.size()));
      entries.push_back({hypothesis->sequence, 1});
      tokens.push_back(hypothesis->tokens.back());
    }
    VARVE_RETURN_IF_ERROR(runner_.Decode(window_, entries, tokens, wanted, logits_.data()));
  }
  runner_.executor().ParallelFor(live.size(), [&](size_t i, int) {
    rows_[i].logits = {logits_.data() + i * vocab, vocab};
    rows_[i].log_sum = rules.Apply(live[i]->tokens, rows_[i].logits, &rows_[i].scratch);
  });
  for (size_t i = 0; i < live.size(); ++i) {
    if (!std::isfinite(rows_[i].log_sum)) return NoFiniteLogit();
  }
  return Status();
}

int32_t WindowDecoder::Draw(const Row& row, double temperature, SplitMix64* random) const {
  const auto best = std::max_element(row.logits.begin(), row.logits.end());
  if (temperature == 0) return static_cast<int32_t>(best - row.logits.begin());
  std::vector<double> weights(row.logits.size());
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp((double{row.logits[i]} - *best) / temperature);
    sum += weights[i];
  }
  double left = Uniform(random) * sum;
  int32_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    last = static_cast<int32_t>(i);
    left -= weights[i];
    if (left < 0) break;
  }
  return last;
}

Result<std::vector<WindowDecoder::Hypothesis>> WindowDecoder::Sample(const WindowSearch& search,
                                                                     const DecodingRules& rules) {
  const int count = search.temperature == 0 ? 1 : std::max(1, search.best_of);
  std::vector<Hypothesis> hypotheses(static_cast<size_t>(count));
  std::vector<SplitMix64> random;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    VARVE_ASSIGN_OR_RETURN(hypotheses[i].sequence, Fork());
    random.emplace_back(SplitMix64(search.seed).Next() + i);
  }
  const int max_tokens = MaxTokens(search);
  for (int step = 0; step < max_tokens; ++step) {
    std::vector<Hypothesis*> live;
    std::vector<SplitMix64*> sources;
    for (size_t i = 0; i < hypotheses.size(); ++i) {
      if (hypotheses[i].ended) continue;
      live.push_back(&hypotheses[i]);
      sources.push_back(&random[i]);
    }
    if (live.empty()) break;
    VARVE_RETURN_IF_ERROR(NextRows(live, rules));
    for (size_t i = 0; i < live.size(); ++i) {
      const int32_t token = Draw(rows_[i], search.temperature, sources[i]);
      const double logprob = rows_[i].logits[token] - rows_[i].log_sum;
      live[i]->sum += logprob;
      live[i]->ended = token == vocabulary_.end_of_text();
      if (live[i]->ended) continue;
      live[i]->tokens.push_back(token);
      live[i]->logprobs.push_back(static_cast<float>(logprob));
    }
  }
  for (const Hypothesis& hypothesis : hypotheses) VARVE_RETURN_IF_ERROR(Free(hypothesis.sequence));
  return hypotheses;
}

// The `count` likeliest tokens of a row; of equals the lowest id comes first.
void WindowDecoder::AddCandidates(const Row& row, const Hypothesis& from, size_t source, int count,
                                  std::vector<Candidate>* candidates) const {
  std::vector<std::pair<float, int32_t>> best;  // descending
  float threshold = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; id < row.logits.size(); ++id) {
    const float logit = row.logits[id];
    if (!(logit > threshold)) continue;
    const auto at = std::upper_bound(best.begin(), best.end(), logit,
                                     [](float a, const auto& b) { return a > b.first; });
    best.insert(at, {logit, static_cast<int32_t>(id)});
    if (best.size() > static_cast<size_t>(count)) best.pop_back();
    if (best.size() == static_cast<size_t>(count)) threshold = best.back().first;
  }
  for (const auto& [logit, id] : best) {
    const double logprob = logit - row.log_sum;
    candidates->push_back({from.sum + logprob, source, id, static_cast<float>(logprob)});
  }
}

Result<std::vector<WindowDecoder::Hypothesis>> WindowDecoder::Advance(
    std::vector<Hypothesis> from, std::span<const Candidate> chosen) {
  std::vector<Hypothesis> next;
  std::vector<bool> taken(from.size());
  for (const Candidate& candidate : chosen) {
    const Hypothesis& source = from[candidate.source];
    Hypothesis made = {.tokens = source.tokens, .logprobs = source.logprobs};
    made.sum = candidate.score;
    made.tokens.push_back(candidate.token);
    made.logprobs.push_back(candidate.logprob);
    // The first that follows goes on in the sequence itself, the others in forks of it.
    if (!taken[candidate.source]) {
      taken[candidate.source] = true;
      made.sequence = source.sequence;
    } else {
      VARVE_ASSIGN_OR_RETURN(made.sequence, runner_.self().Fork(source.sequence));
      open_.push_back(made.sequence);
    }
    next.push_back(std::move(made));
  }
  for (size_t i = 0; i < from.size(); ++i) {
    if (!taken[i]) VARVE_RETURN_IF_ERROR(Free(from[i].sequence));
  }
  return next;
}

Result<std::vector<WindowDecoder::Hypothesis>> WindowDecoder::SearchBeams(
    const WindowSearch& search, const DecodingRules& rules) {
  const auto beams = static_cast<size_t>(search.beams);
  const auto enough =
      static_cast<size_t>(std::max(1L, std::lround(search.beams * search.patience)));
  std::vector<Hypothesis> ended;
  std::vector<Hypothesis> live(1);
  VARVE_ASSIGN_OR_RETURN(live.front().sequence, Fork());
  const int max_tokens = MaxTokens(search);
  for (int step = 0; step < max_tokens && ended.size() < enough && !live.empty(); ++step) {
    std::vector<Hypothesis*> pointers;
    for (Hypothesis& hypothesis : live) pointers.push_back(&hypothesis);
    VARVE_RETURN_IF_ERROR(NextRows(pointers, rules));
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < live.size(); ++i) {
      AddCandidates(rows_[i], live[i], i, search.beams + 1, &candidates);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    std::vector<Candidate> chosen;
    for (const Candidate& candidate : candidates) {
      if (candidate.token != vocabulary_.end_of_text()) {
        chosen.push_back(candidate);
        if (chosen.size() == beams) break;
      } else if (ended.size() < enough) {
        Hypothesis done = live[candidate.source];
        done.sum = candidate.score;
        done.ended = true;
        ended.push_back(std::move(done));
      }
    }
    VARVE_ASSIGN_OR_RETURN(live, Advance(std::move(live), chosen));
  }
  // Beams are in the order of their sums.
  for (const Hypothesis& hypothesis : live) {
    VARVE_RETURN_IF_ERROR(Free(hypothesis.sequence));
    if (ended.size() < beams) ended.push_back(hypothesis);
  }
  return ended;
}

WindowText WindowDecoder::Finish(const WindowSearch& search,
                                 const std::vector<Hypothesis>& hypotheses) const {
  const auto rank = [&](const Hypothesis& hypothesis) {
    const double length = std::max<double>(1, static_cast<double>(hypothesis.tokens.size()));
    if (!search.length_penalty) return hypothesis.sum / length;
    return hypothesis.sum / std::pow((5 + length) / 6, *search.length_penalty);
  };
  const Hypothesis* best = &hypotheses.front();
  for (const Hypothesis& hypothesis : hypotheses) {
    if (rank(hypothesis) > rank(*best)) best = &hypothesis;
  }
  WindowText text;
  text.tokens = best->tokens;
  text.logprobs = best->logprobs;
  text.text = Stripped(vocabulary_.Decode(best->tokens));
  text.avg_logprob = best->sum / (static_cast<double>(best->tokens.size()) + 1);
  text.no_speech_prob = no_speech_prob_;
  text.compression_ratio = CompressionRatio(text.text);
  text.temperature = search.temperature;
  return text;
}

Result<WindowText> WindowDecoder::Decode(const WindowSearch& search) {
  if (open_.empty()) return FailedPrecondition("WindowDecoder: Decode before Start");
  const DecodingRules rules(
      runner_.model(),
      {.timestamps = timestamps_, .max_initial_timestamp_s = search.max_initial_timestamp_s});
  const bool beams = search.temperature == 0 && search.beams > 1;
  VARVE_ASSIGN_OR_RETURN(const std::vector<Hypothesis> hypotheses,
                         beams ? SearchBeams(search, rules) : Sample(search, rules));
  return Finish(search, hypotheses);
}

}  // namespace varve
