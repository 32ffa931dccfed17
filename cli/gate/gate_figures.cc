// Of gate_verdict.h: what is derived from the figures of a case, and the names that must be there.

#include <algorithm>
#include <cmath>

#include "cli/gate/gate_verdict.h"

namespace varve::cli {

std::vector<SpeedBlock> BlocksOf(const CaseFigures& figures, const std::string& bucket) {
  std::vector<SpeedBlock> blocks;
  for (const PromptFigures& prompt : figures.prompts) {
    if (bucket != kAllBuckets && prompt.bucket != bucket) continue;
    blocks.insert(blocks.end(), prompt.blocks.begin(), prompt.blocks.end());
  }
  return blocks;
}

std::optional<SpeedFigures> SpeedOf(const CaseFigures& figures, const std::string& bucket) {
  const std::vector<SpeedBlock> blocks = BlocksOf(figures, bucket);
  if (blocks.empty()) return std::nullopt;
  if (bucket != kAllBuckets) {
    const auto fixed = figures.fixed.find(bucket);
    SpeedFigures speed =
        fixed == figures.fixed.end()
            ? SummariseSpeed(blocks)
            : SummariseSpeed(blocks, fixed->second.tokens_per_s, fixed->second.noise);
    const auto noise = figures.run_noise.find(bucket);
    if (noise != figures.run_noise.end()) speed.noise = std::max(speed.noise, noise->second);
    return speed;
  }
  SpeedFigures all = SummariseSpeed(blocks);
  // Buckets differ in speed: their ratios are what can be averaged.
  double sum = 0;
  double square = 0;
  int count = 0;
  for (const std::string& name : BucketsOf(figures)) {
    const std::optional<SpeedFigures> one = SpeedOf(figures, name);
    if (!one) continue;
    sum += one->ratio;
    square += one->noise * one->noise;
    ++count;
  }
  all.ratio = sum / count;
  all.noise = std::sqrt(square) / count;
  all.drop = 1 - all.ratio;
  return all;
}

std::vector<std::string> BucketsOf(const CaseFigures& figures) {
  std::vector<std::string> buckets;
  for (const PromptFigures& prompt : figures.prompts) {
    if (std::ranges::find(buckets, prompt.bucket) == buckets.end()) {
      buckets.push_back(prompt.bucket);
    }
  }
  return buckets;
}

const std::vector<std::string>& RequiredMetrics() {
  static const std::vector<std::string> kNames = {
      "keep_ratio",
      "lossy_ratio",
      "target_keep_effective",
      "floor_keep_by_recent_sink",
      "block_quantized_keep",
      "evict_us",
      "codec_us",
      "last_evict_tokens",
      "total_evict_tokens",
      "lossless_ratio",
      "lossless_raw_bytes",
      "lossless_compressed_bytes",
      "lossless_decompressed_bytes",
      "lossless_compress_us",
      "lossless_decompress_us",
      "lossless_queue_depth_peak",
      "lossless_fallback_count",
      "lossless_backpressure_skip_count",
      "lossless_async_queue_peak",
      "lossless_async_wait_us",
      "lossless_decode_cache_hit",
      "lossless_decode_cache_miss",
      "lossy_best",
      "lossless_selected_value",
      "decode_gate_tps",
      "decode_drop_ratio",
      "kv_content_consistency_pass",
      "async_wait_headroom_us",
      "async_wait_headroom_ratio",
      "total_ratio_avg",
      "resident_bytes",
  };
  return kNames;
}

}  // namespace varve::cli
