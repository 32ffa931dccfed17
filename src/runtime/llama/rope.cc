#include "runtime/llama/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace varve {
namespace {

// YaRN keeps pairs that turn more than beta_fast times within the original context, interpolates
// those that turn less than beta_slow times, and blends linearly in between. The pair that turns
// `turns` times is where context * base^(-2i/dims) = 2 pi * turns.
double PairThatTurns(const RopeConfig& config, double turns) {
  const double context = static_cast<double>(config.original_context);
  return config.dims * std::log(context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.base));
}

void ScaleYarn(const RopeConfig& config, std::vector<double>& frequencies) {
  const double low = std::max(std::floor(PairThatTurns(config, config.yarn_beta_fast)), 0.0);
  const double high =
      std::min(std::ceil(PairThatTurns(config, config.yarn_beta_slow)), config.dims - 1.0);
  const double width = std::max(high - low, 0.001);  // as published: never a division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    frequencies[i] *= interpolated / config.factor + (1.0 - interpolated);
  }
}

void RotateInterleaved(const float* cos, const float* sin, int pairs, float* head) {
  for (int i = 0; i < pairs; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

void RotateHalves(const float* __restrict cos, const float* __restrict sin, int pairs,
                  float* __restrict first, float* __restrict second) {
  for (int i = 0; i < pairs; ++i) {
    const float a = first[i];
    const float b = second[i];
    first[i] = a * cos[i] - b * sin[i];
    second[i] = a * sin[i] + b * cos[i];
  }
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeConfig& config) {
  std::vector<double> frequencies(config.dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(config.base, -2.0 * static_cast<double>(i) / config.dims);
  switch (config.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& frequency : frequencies) frequency /= config.factor;
      break;
    case RopeScaling::kYarn:
      ScaleYarn(config, frequencies);
      break;
    case RopeScaling::kLlama3:
      for (size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] /= config.frequency_divisors[i];
      break;
  }
  return frequencies;
}

RopeTable::RopeTable(const RopeConfig& config)
    : order_(config.order),
      attention_factor_(static_cast<float>(config.attention_factor)),
      frequencies_(RopeFrequencies(config)) {}

void RopeTable::Prepare(std::span<const int64_t> positions) {
  const size_t pairs = frequencies_.size();
  if (cos_sin_.size() < positions.size() * 2 * pairs) cos_sin_.resize(positions.size() * 2 * pairs);
  for (size_t p = 0; p < positions.size(); ++p) {
    float* cos = cos_sin_.data() + p * 2 * pairs;
    float* sin = cos + pairs;
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(positions[p]) * frequencies_[i];
      cos[i] = static_cast<float>(std::cos(angle)) * attention_factor_;
      sin[i] = static_cast<float>(std::sin(angle)) * attention_factor_;
    }
  }
}

void RopeTable::Apply(size_t index, float* row, int num_heads, int head_dim) const {
  const int pairs = static_cast<int>(frequencies_.size());
  const float* cos = cos_sin_.data() + index * 2 * pairs;
  const float* sin = cos + pairs;
  for (int head = 0; head < num_heads; ++head, row += head_dim) {
    if (order_ == RopeOrder::kInterleaved) {
      RotateInterleaved(cos, sin, pairs, row);
    } else {
      RotateHalves(cos, sin, pairs, row, row + pairs);
    }
  }
}

}  // namespace varve
