#include "runtime/whisper/decoding_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/align.h"
#include "kernels/kernels.h"

namespace varve {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void Suppress(std::span<float> logits, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t i = std::max<int64_t>(begin, 0); i < std::min(end, size); ++i) logits[i] = kNever;
}

// e^(logit - largest) of every logit in scratch; gives the largest and their sum.
struct Exponentials {
  float max = kNever;
  float sum = 0;
};
Exponentials Exponentiate(std::span<const float> logits, std::vector<float>* scratch) {
  const size_t padded = AlignUp(logits.size(), kTileTokens);
  scratch->resize(padded);
  std::copy(logits.begin(), logits.end(), scratch->begin());
  std::fill(scratch->begin() + static_cast<ptrdiff_t>(logits.size()), scratch->end(), kNever);
  Exponentials result;
  ActiveKernels().softmax({.scores = scratch->data(),
                           .num_rows = 1,
                           .stride = padded,
                           .page_tokens = kTileTokens,
                           .num_pages = static_cast<int>(padded / kTileTokens),
                           .max = &result.max,
                           .sum = &result.sum,
                           .page_sum = nullptr});
  return result;
}

}  // namespace

double LogSumExp(std::span<const float> logits, std::vector<float>* scratch) {
  const Exponentials all = Exponentiate(logits, scratch);
  return all.max + std::log(static_cast<double>(all.sum));
}

DecodingRules::DecodingRules(const WhisperModel& model, const DecodingRuleOptions& options)
    : vocabulary_(model.vocabulary()), timestamps_(options.timestamps) {
  last_initial_ = options.max_initial_timestamp_s < 0
                      ? std::numeric_limits<int32_t>::max()
                      : vocabulary_.first_timestamp() +
                            static_cast<int32_t>(
                                std::lround(options.max_initial_timestamp_s / kTimestampSeconds));
  const std::span<const int32_t> unspoken = vocabulary_.non_speech();
  never_.assign(unspoken.begin(), unspoken.end());
  for (const int32_t id :
       {vocabulary_.start(), vocabulary_.translate(), vocabulary_.transcribe(),
        vocabulary_.start_of_previous(), vocabulary_.start_of_lm(), vocabulary_.no_speech()}) {
    never_.push_back(id);
  }
  if (timestamps_) never_.push_back(vocabulary_.no_timestamps());
  std::sort(never_.begin(), never_.end());
}

void DecodingRules::ApplyTimestampRules(std::span<const int32_t> sampled,
                                        std::span<float> logits) const {
  const int32_t first = vocabulary_.first_timestamp();
  const size_t count = sampled.size();
  if (count == 0) {
    Suppress(logits, 0, first);
    if (last_initial_ < std::numeric_limits<int32_t>::max()) {
      Suppress(logits, int64_t{last_initial_} + 1, static_cast<int64_t>(logits.size()));
    }
    return;
  }
  const bool last_is = vocabulary_.IsTimestamp(sampled[count - 1]);
  const bool before_is = count < 2 || vocabulary_.IsTimestamp(sampled[count - 2]);
  if (last_is && before_is) {
    Suppress(logits, first, static_cast<int64_t>(logits.size()));
  } else if (last_is) {
    Suppress(logits, 0, vocabulary_.end_of_text());
  }
  const auto latest = std::find_if(sampled.rbegin(), sampled.rend(),
                                   [&](int32_t id) { return vocabulary_.IsTimestamp(id); });
  if (latest == sampled.rend()) return;
  // The second of a pair may repeat the first: there the next segment begins.
  const bool pairs = last_is && !before_is;
  Suppress(logits, first, *latest + (pairs ? 0 : 1));
}

double DecodingRules::Apply(std::span<const int32_t> sampled, std::span<float> logits,
                            std::vector<float>* scratch) const {
  if (sampled.empty()) {
    logits[vocabulary_.space()] = kNever;
    logits[vocabulary_.end_of_text()] = kNever;
  }
  for (const int32_t id : never_) logits[id] = kNever;
  if (timestamps_) {
    ApplyTimestampRules(sampled, logits);
  } else {
    Suppress(logits, vocabulary_.first_timestamp(), static_cast<int64_t>(logits.size()));
  }
  const Exponentials all = Exponentiate(logits, scratch);
  double sum = all.sum;
  if (timestamps_) {
    const auto split = scratch->begin() + vocabulary_.first_timestamp();
    const auto end = scratch->begin() + static_cast<ptrdiff_t>(logits.size());
    double stamps = 0;
    for (auto at = split; at != end; ++at) stamps += *at;
    if (stamps > *std::max_element(scratch->begin(), split)) {
      Suppress(logits, 0, vocabulary_.first_timestamp());
      sum = stamps;
    }
  }
  return all.max + std::log(sum);
}

}  // namespace varve
