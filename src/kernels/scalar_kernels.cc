// The specification: every kernel in plain C++, in the order in which a reader would write it.
// Ships as the table "scalar"; the vector tables are tested against it.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/kernel_tables.h"

namespace varve {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <FloatType kType>
float LoadFloat(const std::byte* base, size_t index) {
  if constexpr (kType == FloatType::kF32) {
    float value;
    std::memcpy(&value, base + 4 * index, 4);
    return value;
  } else {
    uint16_t bits;
    std::memcpy(&bits, base + 2 * index, 2);
    return kType == FloatType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }
}

float LoadScale(const std::byte* scales, size_t index) {
  return LoadFloat<FloatType::kF16>(scales, index);
}

template <FloatType kType>
void KeyScoresFloat(const KeyScoresArgs& args) {
  const float* queries = reinterpret_cast<const float*>(args.query);
  for (int row = 0; row < args.num_rows; ++row) {
    const float* query = queries + static_cast<size_t>(row) * args.dim;
    for (int token = 0; token < args.num_tokens; ++token) {
      const size_t tile = static_cast<size_t>(token / kTileTokens) * args.dim;
      float sum = 0.0f;
      for (int d = 0; d < args.dim; ++d) {
        sum +=
            query[d] * LoadFloat<kType>(args.strip, (tile + d) * kTileTokens + token % kTileTokens);
      }
      args.scores[row * args.scores_stride + token] = sum;
    }
  }
}

template <FloatType kType>
void AddValuesFloat(const AddValuesArgs& args) {
  const int chunk = ValueChunk(args.dim);
  for (int row = 0; row < args.num_rows; ++row) {
    const float* weights = args.weights + row * args.weights_stride;
    float* out = args.accumulators + static_cast<size_t>(row) * args.dim;
    for (int token = args.first; token < args.first + args.count; ++token) {
      for (int d = 0; d < args.dim; ++d) {
        const size_t index =
            (static_cast<size_t>(d / chunk) * args.page_tokens + token) * chunk + d % chunk;
        out[d] += weights[token] * LoadFloat<kType>(args.strip, index);
      }
    }
  }
}

// Unsigned code of element `i` (0…31) of a K block whose dwords lie 16 tokens apart.
template <BlockType kType>
int KeyCode(const uint8_t* block, int token, int i) {
  if constexpr (kType == BlockType::kQ8) {
    return block[(i / 4 * kTileTokens + token) * 4 + i % 4];
  } else {
    const int j = i % 16;
    const uint8_t byte = block[(j / 4 * kTileTokens + token) * 4 + j % 4];
    return i < 16 ? byte & 15 : byte >> 4;
  }
}

template <BlockType kType>
void KeyScoresBlock(const KeyScoresArgs& args) {
  const int blocks = args.dim / kBlockValues;
  const size_t block_bytes = BlockCodeBytes(kType) * kTileTokens;
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(args.strip) +
                         static_cast<size_t>(args.page_tokens) * blocks * 2;
  for (int row = 0; row < args.num_rows; ++row) {
    const std::byte* query = args.query + static_cast<size_t>(row) * BlockQueryBytes(args.dim);
    const float* query_scale = reinterpret_cast<const float*>(query);
    const int32_t* offsets = reinterpret_cast<const int32_t*>(query) + 2 * blocks;
    const int32_t* hi_offset = kType == BlockType::kQ8 ? offsets : offsets + 2 * blocks;
    const int32_t* lo_offset = offsets + blocks;
    const int8_t* hi = reinterpret_cast<const int8_t*>(offsets + 3 * blocks);
    const int8_t* lo = hi + args.dim;
    for (int token = 0; token < args.num_tokens; ++token) {
      float score = 0.0f;
      for (int b = 0; b < blocks; ++b) {
        const size_t tile_block = static_cast<size_t>(token / kTileTokens) * blocks + b;
        const uint8_t* block = codes + tile_block * block_bytes;
        // |sum| <= 32 * 127 * 128 per plane: 2^19, and 2^27 once hi is shifted.
        int32_t sum_hi = hi_offset[b];
        int32_t sum_lo = lo_offset[b];
        for (int i = 0; i < kBlockValues; ++i) {
          const int code = KeyCode<kType>(block, token % kTileTokens, i);
          sum_hi += code * hi[b * kBlockValues + i];
          sum_lo += code * lo[b * kBlockValues + i];
        }
        const int32_t sum = kType == BlockType::kQ8 ? sum_hi * 256 + sum_lo : sum_hi * 256;
        const float key_scale =
            LoadScale(args.strip, tile_block * kTileTokens + token % kTileTokens);
        score += static_cast<float>(sum) * (key_scale * query_scale[b]);
      }
      args.scores[row * args.scores_stride + token] = score;
    }
  }
}

// Signed code of channel `c` (0…31) of a V block, for one token.
template <BlockType kType>
int ValueCode(const uint8_t* block, int token, int c) {
  if constexpr (kType == BlockType::kQ8) {
    return static_cast<int8_t>(block[(token / 4 * 32 + c) * 4 + token % 4]);
  } else {
    const uint8_t byte = block[(token / 4 * 16 + c % 16) * 4 + token % 4];
    return (c < 16 ? byte & 15 : byte >> 4) - 8;
  }
}

// Weights of a page as integers. A weight is multiplied by its token's scale, both relative to the
// largest of the page, and rounded to kWeightLevels; then the sum over tokens is exact:
//   |sum| <= 32767 * 128 * 128 tokens < 2^30.
// q4_0 rounds coarsely, to multiples of 256 levels, the rows in which no token of the page has more
// than 1/8 of the split's mass: half the work, an error far below that of the codes. There the
// rounding is dithered, so that the many small weights keep their mass.
template <BlockType kType>
void AddValuesBlock(const AddValuesArgs& args) {
  const int blocks = args.dim / kBlockValues;
  const size_t block_bytes = BlockCodeBytes(kType) * args.page_tokens;
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(args.strip) +
                         static_cast<size_t>(args.page_tokens) * blocks * 2;
  for (int row = 0; row < args.num_rows; ++row) {
    const float* weights = args.weights + row * args.weights_stride;
    float weight_max = 0.0f;
    for (int token = 0; token < args.page_tokens; ++token)
      weight_max = std::max(weight_max, weights[token]);
    // Weights below 2^-100 are nothing that f32 could add; NaN shows in the sum.
    if (!(weight_max > 0x1p-100f)) continue;
    const bool coarse = UseCoarseWeights(kType, weight_max, args.weight_sum[row]);
    const float factor =
        kWeightLevels[static_cast<int>(kType)] / weight_max * (coarse ? 1.0f / 256 : 1.0f);
    float* out = args.accumulators + static_cast<size_t>(row) * args.dim;
    for (int b = 0; b < blocks; ++b) {
      const std::byte* scales = args.strip + static_cast<size_t>(b) * args.page_tokens * 2;
      float scale_max = 0.0f;
      for (int token = 0; token < args.page_tokens; ++token) {
        scale_max = std::max(scale_max, std::abs(LoadScale(scales, token)));
      }
      const float inverse = scale_max > 0.0f ? 1.0f / scale_max : 0.0f;
      int32_t sums[kBlockValues] = {};
      for (int token = 0; token < args.page_tokens; ++token) {
        float level = (weights[token] * factor) * (LoadScale(scales, token) * inverse);
        if (coarse) level += kDither[token];
        int32_t weight = std::isfinite(level) ? static_cast<int32_t>(std::nearbyint(level)) : 0;
        if (coarse) weight *= 256;
        for (int c = 0; c < kBlockValues; ++c) {
          sums[c] += weight * ValueCode<kType>(codes + b * block_bytes, token, c);
        }
      }
      const float step = weight_max * scale_max * (1.0f / kWeightLevels[static_cast<int>(kType)]);
      for (int c = 0; c < kBlockValues; ++c) {
        out[b * kBlockValues + c] += static_cast<float>(sums[c]) * step;
      }
    }
  }
}

void Softmax(const SoftmaxArgs& args) {
  for (int row = 0; row < args.num_rows; ++row) {
    float* scores = args.scores + row * args.stride;
    const int columns = args.num_pages * args.page_tokens;
    float max = -kInf;
    for (int i = 0; i < columns; ++i) max = std::max(max, scores[i]);
    float sum = 0.0f;
    for (int page = 0; page < args.num_pages; ++page) {
      float page_sum = 0.0f;
      for (int i = page * args.page_tokens; i < (page + 1) * args.page_tokens; ++i) {
        if (max > -kInf) {
          scores[i] = std::exp(scores[i] - max);
        } else if (!std::isnan(scores[i])) {  // nothing visible; a NaN must stay so
          scores[i] = 0.0f;
        }
        page_sum += scores[i];
      }
      if (args.page_sum != nullptr) args.page_sum[row * args.num_pages + page] = page_sum;
      sum += page_sum;
    }
    args.max[row] = max;
    args.sum[row] = sum;
  }
}

template <BlockType kType>
uint64_t QuantizeBlocks(const float* values, size_t count, uint16_t* scales, uint8_t* codes) {
  uint64_t replaced = 0;
  for (size_t b = 0; b < count; ++b) {
    float block[kBlockValues];
    replaced += SanitizeBlock(kType, values + b * kBlockValues, block);
    uint8_t* out = codes + b * BlockCodeBytes(kType);
    if constexpr (kType == BlockType::kQ8) {
      float largest = 0.0f;
      for (float x : block) largest = std::max(largest, std::abs(x));
      const float scale = largest / 127.0f;
      const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
      scales[b] = F32ToF16(scale);
      for (int i = 0; i < kBlockValues; ++i) {
        // A scale so small that its inverse overflows makes inf * x; ggml's cast is undefined
        // there.
        const float scaled = std::clamp(std::round(block[i] * inverse), -127.0f, 127.0f);
        out[i] = static_cast<uint8_t>(static_cast<int8_t>(std::isnan(scaled) ? 0.0f : scaled));
      }
    } else {
      // ggml: the scale carries the sign of the value of largest magnitude (the first of equals).
      float largest = 0.0f;
      float signed_largest = 0.0f;
      for (float x : block) {
        if (std::abs(x) > largest) {
          largest = std::abs(x);
          signed_largest = x;
        }
      }
      const float scale = signed_largest / -8.0f;
      const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
      scales[b] = F32ToF16(scale);
      for (int i = 0; i < 16; ++i) {
        const auto code = [&](float x) {
          const float shifted = std::clamp(x * inverse + 8.5f, 0.0f, 15.0f);
          return static_cast<uint8_t>(std::isnan(shifted) ? 8.0f : shifted);
        };
        out[i] = static_cast<uint8_t>(code(block[i]) | (code(block[i + 16]) << 4));
      }
    }
  }
  return replaced;
}

void PrepareBlockQuery(const float* query, int dim, std::byte* out) {
  const int blocks = dim / kBlockValues;
  float* scale = reinterpret_cast<float*>(out);
  float* scale4 = scale + blocks;
  int32_t* hi_offset8 = reinterpret_cast<int32_t*>(out) + 2 * blocks;
  int32_t* lo_offset8 = hi_offset8 + blocks;
  int32_t* hi_offset4 = lo_offset8 + blocks;
  int8_t* hi = reinterpret_cast<int8_t*>(hi_offset4 + blocks);
  int8_t* lo = hi + dim;
  int16_t* pairs = reinterpret_cast<int16_t*>(lo + dim);
  for (int b = 0; b < blocks; ++b) {
    float largest = 0.0f;
    bool finite = true;
    for (int i = 0; i < kBlockValues; ++i) {
      const float x = std::abs(query[b * kBlockValues + i]);
      finite = finite && x < kInf;
      largest = std::max(largest, x);
    }
    // 32512 = 127 * 256: the largest value whose high byte, rounded, still is 127. A query that is
    // not finite gives NaN scores through its scale.
    scale[b] = finite ? largest / 32512.0f : std::numeric_limits<float>::quiet_NaN();
    scale4[b] = 256.0f * scale[b];
    const float inverse = largest / 32512.0f > 0.0f ? 32512.0f / largest : 0.0f;
    int32_t hi_sum = 0;
    int32_t lo_sum = 0;
    for (int i = 0; i < kBlockValues; ++i) {
      const float scaled = finite && inverse < kInf ? query[b * kBlockValues + i] * inverse : 0.0f;
      const int code = static_cast<int>(std::nearbyint(scaled));
      const int low = static_cast<int8_t>(code & 255);
      const int high = (code - low) / 256;
      hi[b * kBlockValues + i] = static_cast<int8_t>(high);
      lo[b * kBlockValues + i] = static_cast<int8_t>(low);
      // 0 1 2 3 -> 0 2 1 3 within each four.
      const int place = i % 4 == 1 ? i + 1 : i % 4 == 2 ? i - 1 : i;
      pairs[b * kBlockValues + place] = static_cast<int16_t>(code);
      hi_sum += high;
      lo_sum += low;
    }
    hi_offset8[b] = -128 * hi_sum;
    lo_offset8[b] = -128 * lo_sum;
    hi_offset4[b] = -8 * hi_sum;
  }
}

void NarrowF16(const float* values, size_t count, uint16_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = F32ToF16(values[i]);
}

void NarrowBF16(const float* values, size_t count, uint16_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = F32ToBF16(values[i]);
}

void WidenF16(const uint16_t* bits, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = F16ToF32(bits[i]);
}

void WidenBF16(const uint16_t* bits, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = BF16ToF32(bits[i]);
}

void Hadamard(float* rows, int num_rows, int dim, int block) {
  const float norm = 1.0f / std::sqrt(static_cast<float>(block));
  for (float* run = rows; run < rows + static_cast<size_t>(num_rows) * dim; run += block) {
    for (int half = 1; half < block; half *= 2) {
      for (int i = 0; i < block; i += 2 * half) {
        for (int j = i; j < i + half; ++j) {
          const float a = run[j];
          const float b = run[j + half];
          run[j] = a + b;
          run[j + half] = a - b;
        }
      }
    }
    for (int j = 0; j < block; ++j) run[j] *= norm;
  }
}

void PageMass(const float* page_max, const float* page_sum, size_t count, float log_sum_exp,
              float* mass) {
  for (size_t i = 0; i < count; ++i) {
    mass[i] = page_sum[i] == 0.0f ? 0.0f : page_sum[i] * std::exp(page_max[i] - log_sum_exp);
  }
}

void MergeSums(float* into, size_t count, std::span<const MergeTerm> terms) {
  for (const MergeTerm& term : terms) {
    for (size_t i = 0; i < count; ++i) {
      into[i] *= term.keep;
      if (term.from != nullptr) into[i] += term.add * term.from[i];
    }
  }
}

void AddScaled(float* into, const float* from, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) into[i] += factor * from[i];
}

void MultiplyDense(const DenseArgs& args) {
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    const float* input = args.inputs + t * args.input_stride;
    for (int64_t r = 0; r < args.num_rows; ++r) {
      const float* row = args.rows + r * args.cols;
      float sum = 0.0f;
      for (int64_t i = 0; i < args.cols; ++i) sum += row[i] * input[i];
      args.out[t * args.out_stride + r] = sum;
    }
  }
}

}  // namespace

uint64_t SanitizeBlock(BlockType type, const float* values, float* out) {
  // Beyond this an f16 scale would overflow: ggml's own result is infinite or undefined there.
  const float limit = type == BlockType::kQ8 ? 65504.0f * 127.0f : 65504.0f * 8.0f;
  uint64_t replaced = 0;
  for (int i = 0; i < kBlockValues; ++i) {
    const float x = values[i];
    out[i] = std::isnan(x) ? 0.0f : std::clamp(x, -limit, limit);
    replaced += !(std::abs(x) <= limit);
  }
  return replaced;
}

const Kernels& ScalarKernels() {
  static const Kernels table = {
      .name = "scalar",
      .key_scores_float = {KeyScoresFloat<FloatType::kF32>, KeyScoresFloat<FloatType::kF16>,
                           KeyScoresFloat<FloatType::kBF16>},
      .add_values_float = {AddValuesFloat<FloatType::kF32>, AddValuesFloat<FloatType::kF16>,
                           AddValuesFloat<FloatType::kBF16>},
      .key_scores_block = {KeyScoresBlock<BlockType::kQ8>, KeyScoresBlock<BlockType::kQ4>},
      .add_values_block = {AddValuesBlock<BlockType::kQ8>, AddValuesBlock<BlockType::kQ4>},
      .softmax = Softmax,
      .prepare_block_query = PrepareBlockQuery,
      .quantize_blocks = {QuantizeBlocks<BlockType::kQ8>, QuantizeBlocks<BlockType::kQ4>},
      .narrow_f16 = NarrowF16,
      .narrow_bf16 = NarrowBF16,
      .widen_f16 = WidenF16,
      .widen_bf16 = WidenBF16,
      .hadamard = Hadamard,
      .page_mass = PageMass,
      .merge_sums = MergeSums,
      .add_scaled = AddScaled,
      .multiply_dense = MultiplyDense,
  };
  return table;
}

}  // namespace varve
