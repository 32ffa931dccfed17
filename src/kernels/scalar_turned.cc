// The specification of the turned kernels, in plain C++, and the list of their tables.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/half.h"
#include "kernels/kernel_tables.h"
#include "kernels/turned_tables.h"

namespace varve {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float LoadHalf(const std::byte* base, size_t index) {
  uint16_t bits;
  std::memcpy(&bits, base + 2 * index, 2);
  return F16ToF32(bits);
}

template <int kBits>
int ByteAt(const std::byte* cell, int p, int j) {
  return kTurnedBytes<kBits>[static_cast<size_t>(ReadTurnedCode(kBits, cell, p, j))];
}

template <int kBits>
void KeyScores(const KeyScoresArgs& args) {
  const int blocks = args.dim / kTurnedBlock;
  const std::byte* scales = args.strip + 2 * static_cast<size_t>(args.dim);
  const std::byte* cells = args.strip + TurnedCodesOffset(true, args.dim, args.page_tokens);
  for (int row = 0; row < args.num_rows; ++row) {
    const std::byte* query = args.query + row * TurnedQueryBytes(args.dim);
    float step;
    int32_t offset;
    std::memcpy(&step, query, 4);
    std::memcpy(&offset, query + 4, 4);
    const auto* exact = reinterpret_cast<const float*>(query + kTurnedQueryHeaderBytes);
    const auto* codes = reinterpret_cast<const int8_t*>(query + TurnedQueryCodes(args.dim));
    float mean_score = 0.0f;
    for (int d = 0; d < args.dim; ++d)
      mean_score += exact[d] * LoadHalf(args.strip, static_cast<size_t>(d));
    for (int token = 0; token < args.num_tokens; ++token) {
      // |2 * sum + offset| <= 512 * 127 * 127 < 2^23: exact in f32, too.
      int32_t sum = 0;
      for (int d = 0; d < args.dim; ++d) {
        const std::byte* cell =
            cells + (token / kTileTokens * blocks + d / kTurnedBlock) * TurnedCellBytes(kBits);
        sum +=
            codes[d] * ByteAt<kBits>(cell, d % kTurnedBlock / 4, token % kTileTokens * 4 + d % 4);
      }
      const float scale = LoadHalf(scales, static_cast<size_t>(token));
      args.scores[row * args.scores_stride + token] =
          static_cast<float>(2 * sum + offset) * (scale * (step * kTurnedUnit)) + mean_score;
    }
  }
}

// A row's weights of a page times the scales of its tokens, as integers.
struct WeightLevels {
  int32_t levels[kMaxPageTokens];
  float step;  // the value of one level times one step of the codes; 0: nothing to add
};

WeightLevels RoundWeights(const AddValuesArgs& args, int row) {
  const float* weights = args.weights + row * args.weights_stride;
  float products[kMaxPageTokens];
  float weight_max = 0.0f;
  float largest = 0.0f;
  for (int token = 0; token < args.page_tokens; ++token) {
    // A NaN counts as 0 here and as anything elsewhere: it shows in the sum of the weights.
    const float weight = std::isnan(weights[token]) ? 0.0f : weights[token];
    products[token] = weight * LoadHalf(args.strip, static_cast<size_t>(token));
    weight_max = std::max(weight_max, weight);
    largest = std::max(largest, products[token]);
  }
  // Below 2^-100 they are nothing that f32 could add.
  if (!(largest > 0x1p-100f && largest < kInf)) return {{}, 0.0f};
  const bool coarse = UseCoarseWeights(BlockType::kQ4, weight_max, args.weight_sum[row]);
  const float factor = (coarse ? kTurnedWeights / kTurnedPlaneWeights : kTurnedWeights) / largest;
  WeightLevels rounded;
  for (int token = 0; token < args.page_tokens; ++token) {
    const float level = products[token] * factor + (coarse ? kDither[token] : 0.0f);
    rounded.levels[token] =
        static_cast<int32_t>(std::nearbyint(level)) * (coarse ? kTurnedPlaneWeights : 1);
  }
  rounded.step = largest * (kTurnedUnit / kTurnedWeights);
  return rounded;
}

template <int kBits>
void AddValues(const AddValuesArgs& args) {
  const int groups = args.page_tokens / kTileTokens;
  const std::byte* cells = args.strip + TurnedCodesOffset(false, args.dim, args.page_tokens);
  for (int row = 0; row < args.num_rows; ++row) {
    const WeightLevels weights = RoundWeights(args, row);
    if (weights.step == 0.0f) continue;
    float* out = args.accumulators + static_cast<size_t>(row) * args.dim;
    for (int d = 0; d < args.dim; ++d) {
      // |sum| <= 128 * 16256 * 117 < 2^28.
      int32_t sum = 0;
      for (int token = 0; token < args.page_tokens; ++token) {
        const std::byte* cell =
            cells + (d / kTurnedBlock * groups + token / kTileTokens) * TurnedCellBytes(kBits);
        const int byte = ByteAt<kBits>(cell, 2 * (token % kTileTokens / 4) + d % kTurnedBlock / 16,
                                       4 * (d % 16) + token % 4);
        sum += weights.levels[token] * (2 * byte - kTurnedOffset);
      }
      out[d] += static_cast<float>(sum) * weights.step;
    }
  }
}

void PrepareQuery(const float* query, const float* turned, int dim, std::byte* out) {
  std::memset(out, 0, TurnedQueryBytes(dim));
  std::memcpy(out + kTurnedQueryHeaderBytes, query, static_cast<size_t>(dim) * sizeof(float));
  float largest = 0.0f;
  bool finite = true;
  for (int d = 0; d < dim; ++d) {
    finite = finite && std::abs(turned[d]) < kInf;
    largest = std::max(largest, std::abs(turned[d]));
  }
  const float step = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(out, &step, 4);
  const float inverse = step > 0.0f ? 127.0f / largest : 0.0f;
  if (!(inverse > 0.0f && inverse < kInf)) return;  // codes of zero
  auto* codes = reinterpret_cast<int8_t*>(out + TurnedQueryCodes(dim));
  int32_t sum = 0;
  for (int d = 0; d < dim; ++d) {
    codes[d] = static_cast<int8_t>(std::nearbyint(turned[d] * inverse));
    sum += codes[d];
  }
  const int32_t offset = -kTurnedOffset * sum;
  std::memcpy(out + 4, &offset, 4);
}

template <int kBits>
uint64_t Quantize(const float* rows, int num_rows, int dim, uint16_t* scales, uint8_t* codes) {
  constexpr int kHalf = 1 << (kBits - 1);
  const auto& levels = TurnedLevels<kBits>::kPositive;
  uint64_t replaced = 0;
  for (int row = 0; row < num_rows; ++row, rows += dim, codes += dim) {
    float squares[kTurnedSumLanes] = {};
    for (int d = 0; d < dim; ++d) squares[d % kTurnedSumLanes] += rows[d] * rows[d];
    const float rms = std::sqrt(SumOfTurnedLanes(squares) / static_cast<float>(dim));
    const float factor = rms > 0.0f ? TurnedLevels<kBits>::kDeviation / rms : 0.0f;
    float products[kTurnedSumLanes] = {};
    float norms[kTurnedSumLanes] = {};
    for (int d = 0; d < dim; ++d) {
      const float magnitude = std::abs(rows[d] * factor);
      // Doubling is exact: the same as comparing with the midpoint.
      int place = 0;
      for (int i = 0; i + 1 < kHalf; ++i)
        place += 2.0f * magnitude > static_cast<float>(levels[i] + levels[i + 1]) ? 1 : 0;
      codes[d] = static_cast<uint8_t>(rows[d] < 0.0f ? kHalf - 1 - place : kHalf + place);
      const auto level = static_cast<float>(levels[static_cast<size_t>(place)]);
      products[d % kTurnedSumLanes] += level * std::abs(rows[d]);
      norms[d % kTurnedSumLanes] += level * level;
    }
    scales[row] =
        TurnedScaleBits(SumOfTurnedLanes(products), SumOfTurnedLanes(norms), dim, &replaced);
  }
  return replaced;
}

std::span<const TurnedKernels* const> Tables() {
  static const std::vector<const TurnedKernels*> tables = [] {
    std::vector<const TurnedKernels*> all = {&ScalarTurnedKernels()};
    for (const TurnedKernels* table : SimdTurnedKernels()) all.push_back(table);
    return all;
  }();
  return tables;
}

}  // namespace

uint16_t TurnedScaleBits(float product, float square, int dim, uint64_t* replaced) {
  constexpr float kLimit = 65504.0f;
  const float scale = product / square / kTurnedUnit;
  if (scale > kLimit) *replaced += static_cast<uint64_t>(dim);
  return F32ToF16(std::min(scale, kLimit));
}

const TurnedKernels& ScalarTurnedKernels() {
  static const TurnedKernels table = {
      .name = "scalar",
      .key_scores = {KeyScores<2>, KeyScores<3>, KeyScores<4>},
      .add_values = {AddValues<2>, AddValues<3>, AddValues<4>},
      .prepare_query = PrepareQuery,
      .quantize = {Quantize<2>, Quantize<3>, Quantize<4>},
  };
  return table;
}

const TurnedKernels& TurnedKernelsOf(const Kernels& kernels) {
  for (const TurnedKernels* table : Tables()) {
    if (std::string_view(kernels.name) == table->name) return *table;
  }
  return ScalarTurnedKernels();
}

std::span<const TurnedKernels* const> AvailableTurnedKernels() { return Tables(); }

}  // namespace varve
