// The specification of product quantization in plain C++ (the table "scalar"), what all tables
// share, and the choice of table.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_tables.h"
#include "kernels/pq_kernels.h"
#include "kernels/pq_tables.h"

namespace varve {
namespace {

// Value of a channel under a code, without the scale.
int Centroid(const PqShape& shape, const PqCentroids& centroids, int channel, int code) {
  return centroids.bytes[static_cast<size_t>(channel) * shape.num_codes() + code] - 128;
}

int LevelOf(const PqScoresArgs& args, const int16_t* levels, int channel) {
  return args.shape.bits == 4 ? reinterpret_cast<const int8_t*>(levels)[channel] : levels[channel];
}

void PrepareQuery(const PqShape& shape, const PqCentroids& centroids, const float* query,
                  bool with_table, std::byte* out) {
  const int sub_dim = shape.sub_dim();
  float largest = 0.0f;
  for (int d = 0; d < shape.dim; ++d)
    largest = std::max(largest, std::abs(query[d] * centroids.scales[d / sub_dim]));
  // A query that is not finite gives scores that are not: through the step.
  const int levels = PqQueryLevels(shape);
  float step = largest / static_cast<float>(levels);
  for (int d = 0; d < shape.dim; ++d) {
    if (!std::isfinite(query[d])) step = std::numeric_limits<float>::quiet_NaN();
  }
  const float factor = step > 0.0f && std::isfinite(step) ? 1.0f / step : 0.0f;
  auto* level = reinterpret_cast<int16_t*>(out + kPqQueryHeaderBytes);
  std::memset(out, 0, PqQueryFloatOffset(shape.dim));
  int32_t sum = 0;
  for (int d = 0; d < shape.dim && factor > 0.0f; ++d) {
    const float x = std::nearbyint(query[d] * centroids.scales[d / sub_dim] * factor);
    const int rounded =
        static_cast<int>(std::clamp(x, -static_cast<float>(levels), static_cast<float>(levels)));
    sum += rounded;
    if (shape.bits == 4) {
      reinterpret_cast<int8_t*>(level)[d] = static_cast<int8_t>(rounded);
    } else {
      level[d] = static_cast<int16_t>(rounded);
    }
  }
  const int32_t offset = -128 * sum;
  std::memcpy(out, &step, 4);
  std::memcpy(out + 4, &offset, 4);
  std::memcpy(out + PqQueryFloatOffset(shape.dim), query, sizeof(float) * shape.dim);
  if (!with_table) return;
  MarkPqTable(out);
  const int num_codes = shape.num_codes();
  std::vector<float> floats;
  auto* table = reinterpret_cast<float*>(out + PqQueryTableOffset(shape.dim));
  if (shape.bits == 4) {
    floats.resize(static_cast<size_t>(shape.subspaces) * 16);
    table = floats.data();
  }
  for (int m = 0; m < shape.subspaces; ++m) {
    float* row = table + static_cast<size_t>(m) * num_codes;
    std::fill_n(row, num_codes, 0.0f);
    for (int j = 0; j < sub_dim; ++j) {
      const int channel = m * sub_dim + j;
      const uint8_t* bytes = centroids.bytes + static_cast<size_t>(channel) * num_codes;
      const float factor_of_channel = query[channel] * centroids.scales[m];
      for (int c = 0; c < num_codes; ++c)
        row[c] += factor_of_channel * static_cast<float>(bytes[c] - 128);
    }
  }
  if (shape.bits == 4) RoundPqTable(shape, floats.data(), out);
}

void ScoresNibbles(const PqScoresArgs& args) {
  const PqShape& shape = args.shape;
  uint16_t codes[kMaxPageTokens];
  std::vector<int32_t> sums(static_cast<size_t>(args.num_rows) * shape.page_tokens, 0);
  for (int m = 0; m < shape.subspaces; ++m) {
    ReadPqCodes(shape, args.strip, m, codes);
    for (int row = 0; row < args.num_rows; ++row) {
      const auto* low = reinterpret_cast<const uint8_t*>(args.query + row * args.query_stride +
                                                         PqQueryTableOffset(shape.dim));
      const uint8_t* high = low + 16 * static_cast<size_t>(shape.subspaces);
      for (int token = 0; token < args.num_tokens; ++token) {
        const size_t at = 16 * static_cast<size_t>(m) + codes[token];
        sums[static_cast<size_t>(row) * shape.page_tokens + token] += low[at] + 128 * high[at];
      }
    }
  }
  for (int row = 0; row < args.num_rows; ++row) {
    float step, offset;
    std::memcpy(&step, args.query + row * args.query_stride + 12, 4);
    std::memcpy(&offset, args.query + row * args.query_stride + 16, 4);
    for (int token = 0; token < args.num_tokens; ++token) {
      const float sum =
          static_cast<float>(sums[static_cast<size_t>(row) * shape.page_tokens + token]);
      args.scores[row * args.scores_stride + token] =
          (sum * step + offset) * ReadPqGain(args.strip, token);
    }
  }
}

void ScoresBytes(const PqScoresArgs& args) {
  const PqShape& shape = args.shape;
  std::vector<int32_t> sums(static_cast<size_t>(args.num_rows) * shape.page_tokens, 0);
  uint16_t codes[kMaxPageTokens];
  for (int m = 0; m < shape.subspaces; ++m) {
    ReadPqCodes(shape, args.strip, m, codes);
    for (int row = 0; row < args.num_rows; ++row) {
      const auto* level = reinterpret_cast<const int16_t*>(args.query + row * args.query_stride +
                                                           kPqQueryHeaderBytes);
      int32_t* sum = &sums[static_cast<size_t>(row) * shape.page_tokens];
      for (int token = 0; token < args.num_tokens; ++token) {
        for (int d = m * shape.sub_dim(); d < (m + 1) * shape.sub_dim(); ++d)
          sum[token] += LevelOf(args, level, d) * Centroid(shape, args.centroids, d, codes[token]);
      }
    }
  }
  for (int row = 0; row < args.num_rows; ++row) {
    float step;
    std::memcpy(&step, args.query + row * args.query_stride, 4);
    for (int token = 0; token < args.num_tokens; ++token) {
      const float sum =
          static_cast<float>(sums[static_cast<size_t>(row) * shape.page_tokens + token]);
      args.scores[row * args.scores_stride + token] = sum * (step * ReadPqGain(args.strip, token));
    }
  }
}

void ScoresTables(const PqScoresArgs& args) {
  const PqShape& shape = args.shape;
  const size_t num_codes = static_cast<size_t>(shape.num_codes());
  for (int row = 0; row < args.num_rows; ++row)
    std::fill_n(args.scores + row * args.scores_stride, args.num_tokens, 0.0f);
  uint16_t codes[kMaxPageTokens];
  for (int m = 0; m < shape.subspaces; ++m) {
    ReadPqCodes(shape, args.strip, m, codes);
    for (int row = 0; row < args.num_rows; ++row) {
      const auto* table = reinterpret_cast<const float*>(args.query + row * args.query_stride +
                                                         PqQueryTableOffset(shape.dim)) +
                          m * num_codes;
      float* scores = args.scores + row * args.scores_stride;
      for (int token = 0; token < args.num_tokens; ++token) scores[token] += table[codes[token]];
    }
  }
  for (int token = 0; token < args.num_tokens; ++token) {
    const float gain = ReadPqGain(args.strip, token);
    for (int row = 0; row < args.num_rows; ++row)
      args.scores[row * args.scores_stride + token] *= gain;
  }
}

// Integer weights of one row over all pages: [pages][page_tokens]. Returns the factor.
float RoundWeights(const PqValuesArgs& args, int row, std::vector<int32_t>* levels) {
  const int page_tokens = args.shape.page_tokens;
  const auto weigh = [&](size_t p, int token) {
    return args.pages[p].weights[row * args.weights_stride + token] *
           ReadPqGain(args.pages[p].strip, token);
  };
  float largest = 0.0f;
  float sum = 0.0f;
  for (size_t p = 0; p < args.pages.size(); ++p) {
    for (int token = 0; token < page_tokens; ++token) {
      largest = std::max(largest, weigh(p, token));
      sum += weigh(p, token);
    }
  }
  const float factor = PqLevelFactor(args.shape.bits, largest, sum);
  for (size_t p = 0; p < args.pages.size(); ++p) {
    for (int token = 0; token < page_tokens; ++token) {
      const float level = weigh(p, token) * factor + kDither[token];
      (*levels)[p * page_tokens + token] =
          static_cast<int32_t>(std::nearbyint(std::max(level, 0.0f)));
    }
  }
  return factor;
}

void AddValuesBytes(const PqValuesArgs& args) {
  const PqShape& shape = args.shape;
  std::vector<int32_t> levels(args.pages.size() * shape.page_tokens);
  uint16_t codes[kMaxPageTokens];
  for (int row = 0; row < args.num_rows; ++row) {
    const float factor = RoundWeights(args, row, &levels);
    if (factor == 0.0f) continue;
    std::vector<int32_t> sums(static_cast<size_t>(shape.dim), 0);
    for (size_t p = 0; p < args.pages.size(); ++p) {
      for (int m = 0; m < shape.subspaces; ++m) {
        ReadPqCodes(shape, args.pages[p].strip, m, codes);
        for (int token = 0; token < shape.page_tokens; ++token) {
          for (int d = m * shape.sub_dim(); d < (m + 1) * shape.sub_dim(); ++d)
            sums[d] += levels[p * shape.page_tokens + token] *
                       Centroid(shape, args.centroids, d, codes[token]);
        }
      }
    }
    for (int d = 0; d < shape.dim; ++d) {
      args.accumulators[static_cast<size_t>(row) * shape.dim + d] +=
          static_cast<float>(sums[d]) * (args.centroids.scales[d / shape.sub_dim()] / factor);
    }
  }
}

void AddValuesCentroids(const PqValuesArgs& args) {
  const PqShape& shape = args.shape;
  uint16_t codes[kMaxPageTokens];
  std::vector<float> weight_of(static_cast<size_t>(shape.num_codes()));
  for (int row = 0; row < args.num_rows; ++row) {
    for (int m = 0; m < shape.subspaces; ++m) {
      std::fill(weight_of.begin(), weight_of.end(), 0.0f);
      for (const PqValuePage& page : args.pages) {
        ReadPqCodes(shape, page.strip, m, codes);
        const float* weights = page.weights + row * args.weights_stride;
        for (int token = 0; token < shape.page_tokens; ++token)
          weight_of[codes[token]] += weights[token] * ReadPqGain(page.strip, token);
      }
      for (int d = m * shape.sub_dim(); d < (m + 1) * shape.sub_dim(); ++d) {
        float sum = 0.0f;
        for (int c = 0; c < shape.num_codes(); ++c)
          sum += weight_of[c] * static_cast<float>(Centroid(shape, args.centroids, d, c));
        args.accumulators[static_cast<size_t>(row) * shape.dim + d] +=
            sum * args.centroids.scales[m];
      }
    }
  }
}

void Nearest(const uint8_t* bytes, int sub_dim, int num_codes, const float* points, int num_points,
             uint16_t* codes) {
  for (int p = 0; p < num_points; ++p) {
    const float* point = points + static_cast<size_t>(p) * sub_dim;
    float best = std::numeric_limits<float>::infinity();
    codes[p] = 0;
    for (int c = 0; c < num_codes; ++c) {
      float distance = 0.0f;
      for (int j = 0; j < sub_dim; ++j) {
        const float difference =
            point[j] - static_cast<float>(bytes[static_cast<size_t>(j) * num_codes + c] - 128);
        distance += difference * difference;
      }
      if (distance < best) {
        best = distance;
        codes[p] = static_cast<uint16_t>(c);
      }
    }
  }
}

const std::vector<const PqKernels*>& Tables() {
  static const std::vector<const PqKernels*> tables = [] {
    std::vector<const PqKernels*> all = {&ScalarPqKernels()};
    for (const PqKernels* table : SimdPqKernels()) all.push_back(table);
    return all;
  }();
  return tables;
}

}  // namespace

const PqKernels& ScalarPqKernels() {
  static const PqKernels table = {
      .name = "scalar",
      .pair_dot = false,
      .prepare_query = PrepareQuery,
      .scores_bytes = {ScoresBytes, ScoresBytes, ScoresBytes, ScoresBytes, ScoresBytes},
      .scores_nibbles = ScoresNibbles,
      .scores_tables = ScoresTables,
      .add_values_bytes = {AddValuesBytes, AddValuesBytes, AddValuesBytes, AddValuesBytes,
                           AddValuesBytes},
      .add_values_centroids = AddValuesCentroids,
      .nearest = Nearest,
  };
  return table;
}

const PqKernels& PqKernelsOf(const Kernels& kernels) {
  for (const PqKernels* table : Tables()) {
    if (std::string_view(kernels.name) == table->name) return *table;
  }
  return ScalarPqKernels();
}

std::span<const PqKernels* const> AvailablePqKernels() { return Tables(); }

void ReadPqCodes(const PqShape& shape, const std::byte* strip, int subspace, uint16_t* codes) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(strip);
  const bool halves = shape.bits < 8;
  const uint8_t* base = bytes + shape.base_offset() +
                        static_cast<size_t>(halves ? subspace / 2 : subspace) * shape.page_tokens;
  const int shift = halves && subspace % 2 == 1 ? 4 : 0;
  for (int t = 0; t < shape.page_tokens; ++t)
    codes[t] = static_cast<uint16_t>(halves ? base[t] >> shift & 15 : base[t]);
  for (int plane = 0; plane < shape.num_planes(); ++plane) {
    const uint8_t* row =
        bytes + shape.plane_offset() +
        (static_cast<size_t>(subspace) * shape.num_planes() + plane) * shape.plane_bytes();
    for (int t = 0; t < shape.page_tokens; ++t) {
      codes[t] = static_cast<uint16_t>(codes[t] | (row[t / 8] >> (t % 8) & 1)
                                                      << (shape.base_bits() + plane));
    }
  }
}

void WritePqCodes(const PqShape& shape, int subspace, const uint16_t* codes, std::byte* strip) {
  auto* bytes = reinterpret_cast<uint8_t*>(strip);
  const bool halves = shape.bits < 8;
  uint8_t* base = bytes + shape.base_offset() +
                  static_cast<size_t>(halves ? subspace / 2 : subspace) * shape.page_tokens;
  for (int t = 0; t < shape.page_tokens; ++t) {
    if (!halves) {
      base[t] = static_cast<uint8_t>(codes[t]);
    } else if (subspace % 2 == 0) {
      base[t] = static_cast<uint8_t>((base[t] & 0xF0) | (codes[t] & 15));
    } else {
      base[t] = static_cast<uint8_t>((base[t] & 0x0F) | (codes[t] & 15) << 4);
    }
  }
  for (int plane = 0; plane < shape.num_planes(); ++plane) {
    uint8_t* row =
        bytes + shape.plane_offset() +
        (static_cast<size_t>(subspace) * shape.num_planes() + plane) * shape.plane_bytes();
    std::memset(row, 0, shape.plane_bytes());
    for (int t = 0; t < shape.page_tokens; ++t) {
      row[t / 8] = static_cast<uint8_t>(row[t / 8] | (codes[t] >> (shape.base_bits() + plane) & 1)
                                                         << (t % 8));
    }
  }
}

void RoundPqTable(const PqShape& shape, const float* table, std::byte* query) {
  const size_t subspaces = static_cast<size_t>(shape.subspaces);
  float range = 0.0f;
  float offset = 0.0f;
  for (size_t m = 0; m < subspaces; ++m) {
    const auto [least, most] = std::minmax_element(table + 16 * m, table + 16 * (m + 1));
    range = std::max(range, *most - *least);
    offset += *least;
  }
  // A query that is not finite gives scores that are not.
  if (!std::isfinite(offset)) range = offset = std::numeric_limits<float>::quiet_NaN();
  const float step = range / static_cast<float>(kPqTableLevels);
  const float factor = step > 0.0f ? 1.0f / step : 0.0f;
  std::memcpy(query + 12, &step, 4);
  std::memcpy(query + 16, &offset, 4);
  auto* low = reinterpret_cast<uint8_t*>(query + PqQueryTableOffset(shape.dim));
  uint8_t* high = low + 16 * subspaces;
  for (size_t m = 0; m < subspaces; ++m) {
    const float least = *std::min_element(table + 16 * m, table + 16 * (m + 1));
    for (size_t at = 16 * m; at < 16 * (m + 1); ++at) {
      const float level = factor > 0.0f ? (table[at] - least) * factor + 0.5f : 0.0f;
      const int rounded = std::min(static_cast<int>(level), kPqTableLevels);
      low[at] = static_cast<uint8_t>(rounded & 127);
      high[at] = static_cast<uint8_t>(rounded >> 7);
    }
  }
}

float ReadPqGain(const std::byte* strip, int token) {
  uint16_t bits;
  std::memcpy(&bits, strip + 2 * static_cast<size_t>(token), 2);
  return F16ToF32(bits);
}

float PqLevelFactor(int bits, float largest, float sum) {
  // Zero, not a number, or so small that its inverse is none: nothing to add.
  if (!(largest > 1e-30f) || !std::isfinite(sum)) return 0.0f;
  // 254 and half a level of dither are a byte. No token has more than the sum: 16 * 254 levels.
  // Sums over all tokens of 127 * level stay below 2^31.
  const float shares = bits == 4 ? 4.0f : bits <= 6 ? 8.0f : 16.0f;
  return 254.0f / std::min(largest, sum / shares);
}

}  // namespace varve
