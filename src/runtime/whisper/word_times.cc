#include "runtime/whisper/word_times.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/align.h"
#include "kernels/kernels.h"
#include "runtime/whisper/decoding_rules.h"

namespace varve {
namespace {

constexpr int kMedianWidth = 7;

// Queries of the alignment heads: [heads, tokens, dim].
struct HeadQueries final : WhisperObserver {
  std::vector<AlignmentHead> heads;
  int tokens = 0;
  int dim = 0;
  ptrdiff_t state = 0;
  std::vector<float> values;

  HeadQueries(const WhisperConfig& config, size_t num_tokens)
      : heads(AlignmentHeads(config)),
        tokens(static_cast<int>(num_tokens)),
        dim(config.text_head_dim()),
        state(config.text_state),
        values(heads.size() * num_tokens * dim) {}

  void OnCross(int layer, int num_tokens, const float* queries, const float* /*output*/) override {
    for (size_t h = 0; h < heads.size(); ++h) {
      if (heads[h].first != layer) continue;
      for (int t = 0; t < num_tokens; ++t) {
        std::copy_n(queries + t * state + heads[h].second * dim, dim,
                    values.data() + (h * tokens + t) * dim);
      }
    }
  }
};

// Each value becomes the median of the seven around it; the ends are reflected.
void MedianFilter(std::span<float> row) {
  const auto size = static_cast<int>(row.size());
  constexpr int kHalf = kMedianWidth / 2;
  if (size <= kHalf) return;
  const std::vector<float> from(row.begin(), row.end());
  for (int i = 0; i < size; ++i) {
    float around[kMedianWidth];
    for (int k = -kHalf; k <= kHalf; ++k) {
      int at = std::abs(i + k);
      if (at >= size) at = 2 * (size - 1) - at;
      around[k + kHalf] = from[at];
    }
    std::nth_element(around, around + kHalf, around + kMedianWidth);
    row[i] = around[kHalf];
  }
}

// Attention of one head [tokens, frames], each frame's column with mean 0 and deviation 1,
// smoothed.
Result<std::vector<float>> HeadMap(SpeechRunner& runner, SequenceId window,
                                   const HeadQueries& queries, size_t index, int frames) {
  const int dim = queries.dim;
  const size_t stride = AlignUp(static_cast<size_t>(frames), kTileTokens);
  std::vector<float> keys(static_cast<size_t>(frames) * dim);
  const auto [layer, head] = queries.heads[index];
  VARVE_RETURN_IF_ERROR(
      runner.cross().ReadRows(window, layer, head, Part::kKey, 0, frames, keys.data()).status());
  std::vector<float> map(queries.tokens * stride, -std::numeric_limits<float>::infinity());
  ActiveKernels().multiply_dense({.rows = keys.data(),
                                  .num_rows = frames,
                                  .cols = dim,
                                  .inputs = queries.values.data() + index * queries.tokens * dim,
                                  .input_stride = dim,
                                  .num_tokens = queries.tokens,
                                  .out = map.data(),
                                  .out_stride = static_cast<ptrdiff_t>(stride)});
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int t = 0; t < queries.tokens; ++t) {
    float* row = map.data() + t * stride;
    float max = 0, sum = 0;
    for (int f = 0; f < frames; ++f) row[f] *= scale;
    ActiveKernels().softmax({.scores = row,
                             .num_rows = 1,
                             .stride = stride,
                             .page_tokens = kTileTokens,
                             .num_pages = static_cast<int>(stride / kTileTokens),
                             .max = &max,
                             .sum = &sum,
                             .page_sum = nullptr});
    for (int f = 0; f < frames; ++f) row[f] /= sum;
  }
  for (int f = 0; f < frames; ++f) {
    double mean = 0, squares = 0;
    for (int t = 0; t < queries.tokens; ++t) mean += map[t * stride + f];
    mean /= queries.tokens;
    for (int t = 0; t < queries.tokens; ++t) {
      squares += (map[t * stride + f] - mean) * (map[t * stride + f] - mean);
    }
    const double deviation = std::sqrt(squares / queries.tokens);
    for (int t = 0; t < queries.tokens; ++t) {
      float& value = map[t * stride + f];
      value = deviation > 0 ? static_cast<float>((value - mean) / deviation) : 0.0f;
    }
  }
  std::vector<float> packed(static_cast<size_t>(queries.tokens) * frames);
  for (int t = 0; t < queries.tokens; ++t) {
    std::span<float> row(packed.data() + static_cast<size_t>(t) * frames, frames);
    std::copy_n(map.data() + t * stride, frames, row.begin());
    MedianFilter(row);
  }
  return packed;
}

// Whether a token begins a word: with a space, or anywhere in a language without spaces, unless it
// goes on within a character.
bool BeginsWord(const std::string& bytes, bool spaces) {
  if (bytes.empty()) return false;
  if (spaces) return bytes[0] == ' ';
  return (static_cast<unsigned char>(bytes[0]) & 0xC0) != 0x80;
}

bool HasSpaces(const WhisperVocabulary& vocabulary, int language) {
  if (language < 0) return true;
  const std::string_view code = vocabulary.languages()[language].code;
  for (const std::string_view without : {"zh", "ja", "th", "lo", "my", "yue"}) {
    if (code == without) return false;
  }
  return true;
}

}  // namespace

std::vector<int> CheapestPath(std::span<const float> cost, int rows, int cols) {
  enum : uint8_t { kBoth, kDown, kRight };
  std::vector<uint8_t> from(static_cast<size_t>(rows) * cols);
  std::vector<double> above(static_cast<size_t>(cols) + 1, std::numeric_limits<double>::infinity());
  std::vector<double> here = above;
  above[0] = 0;  // before the first cell
  for (int r = 0; r < rows; ++r) {
    here[0] = std::numeric_limits<double>::infinity();
    for (int c = 0; c < cols; ++c) {
      const double both = above[c], down = above[c + 1], right = here[c];
      uint8_t step = kRight;
      double best = right;
      if (both < down && both < right) {
        step = kBoth;
        best = both;
      } else if (down < both && down < right) {
        step = kDown;
        best = down;
      }
      from[static_cast<size_t>(r) * cols + c] = step;
      here[c + 1] = best + cost[static_cast<size_t>(r) * cols + c];
    }
    above.swap(here);
  }
  std::vector<int> enters(static_cast<size_t>(rows));
  for (int r = rows - 1, c = cols - 1; r >= 0 && c >= 0;) {
    enters[r] = c;
    const uint8_t step = from[static_cast<size_t>(r) * cols + c];
    if (step != kRight) --r;
    if (step != kDown) --c;
  }
  return enters;
}

Status AddWordTimes(SpeechRunner& runner, SequenceId window, const WindowPrompt& prompt,
                    const WindowText& text, int num_frames,
                    std::vector<TranscriptSegment>* segments) {
  const WhisperVocabulary& vocabulary = runner.model().vocabulary();
  const int frames = num_frames / 2;
  std::vector<int32_t> tokens = {vocabulary.start()};
  if (prompt.language >= 0) {
    tokens.push_back(vocabulary.LanguageToken(prompt.language));
    tokens.push_back(prompt.translate ? vocabulary.translate() : vocabulary.transcribe());
  }
  const auto start = static_cast<int>(tokens.size());
  tokens.push_back(vocabulary.no_timestamps());
  std::vector<float> logprobs;
  const auto room = static_cast<size_t>(runner.model().config().text_ctx) - 1;
  for (size_t i = 0; i < text.tokens.size() && tokens.size() < room; ++i) {
    if (!vocabulary.IsText(text.tokens[i])) continue;
    tokens.push_back(text.tokens[i]);
    logprobs.push_back(text.logprobs[i]);
  }
  if (logprobs.empty() || frames < 1) return Status();
  tokens.push_back(vocabulary.end_of_text());

  HeadQueries queries(runner.model().config(), tokens.size());
  VARVE_RETURN_IF_ERROR(runner.Observe(window, tokens, queries));
  // The row of <|notimestamps|> predicts the first token, and so on; the end has none.
  const int rows = queries.tokens - 1 - start;
  std::vector<float> cost(static_cast<size_t>(rows) * frames, 0.0f);
  for (size_t h = 0; h < queries.heads.size(); ++h) {
    VARVE_ASSIGN_OR_RETURN(const std::vector<float> map,
                           HeadMap(runner, window, queries, h, frames));
    for (size_t i = 0; i < cost.size(); ++i) {
      cost[i] -= map[static_cast<size_t>(start) * frames + i] / queries.heads.size();
    }
  }
  const std::vector<int> enters = CheapestPath(cost, rows, frames);

  const bool spaces = HasSpaces(vocabulary, prompt.language);
  size_t at = 0;  // of the text tokens
  for (TranscriptSegment& segment : *segments) {
    double sum = 0;
    int count = 0;
    for (const int32_t id : segment.tokens) {
      if (!vocabulary.IsText(id) || at >= logprobs.size()) continue;
      const std::string bytes = vocabulary.Decode({&id, 1});
      if (segment.words.empty() || BeginsWord(bytes, spaces)) {
        segment.words.emplace_back().start_s = enters[at] * kTimestampSeconds;
        sum = count = 0;
      }
      TranscriptWord& word = segment.words.back();
      word.text += bytes;
      sum += std::exp(double{logprobs[at]});
      word.probability = sum / ++count;
      ++at;
      word.end_s = enters[at] * kTimestampSeconds;  // the end's row is the last
    }
  }
  return Status();
}

}  // namespace varve
