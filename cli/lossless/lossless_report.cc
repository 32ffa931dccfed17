#include "cli/lossless/lossless_report.h"

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {

std::string LosslessLine(const LosslessStats& stats) {
  if (stats.layers == 0) return "";
  const std::string layers = fmt::format("{} layer{}", stats.layers, stats.layers == 1 ? "" : "s");
  if (stats.pages_packed == 0 && stats.pages_now == 0)
    return fmt::format("nothing was cold yet in {} (hot=)", layers);
  const auto bytes = [](uint64_t count) { return HumanBytes(static_cast<double>(count)); };
  if (stats.pages_now == 0) {
    return fmt::format("{}: {} pages tried, {} would be {} ({:.3f}), {} fallbacks", layers,
                       stats.pages_packed, bytes(stats.raw_bytes), bytes(stats.compressed_bytes),
                       stats.ratio(), stats.fallbacks);
  }
  std::string spilled;
  if (stats.pages_spilled > 0) {
    spilled = fmt::format(" | {} pages spilled, {} on disk", stats.pages_spilled,
                          bytes(stats.bytes_spilled));
  }
  if (stats.spill_refused > 0) {
    spilled +=
        fmt::format(" | spill file full ({} times): pages stayed in memory", stats.spill_refused);
  }
  return fmt::format(
      "{}: {} pages packed, {} as {} and {} of dictionaries ({:.3f}) | decode cache {}, {} hits, "
      "{} "
      "misses, {} pages restored, {} of them ahead | {} fallbacks{}",
      layers, stats.pages_now, bytes(stats.raw_bytes_now), bytes(stats.packed_bytes_now),
      bytes(stats.dictionary_bytes), stats.ratio(), bytes(stats.decode_cache_bytes),
      stats.decode_cache_hits, stats.decode_cache_misses, stats.pages_restored,
      stats.pages_prefetched, stats.fallbacks, spilled);
}

void PrintLossless(const std::string& plan, const LosslessStats& stats, std::FILE* out) {
  const std::string line = LosslessLine(stats);
  if (!line.empty()) fmt::print(out, "{}: {}\n", plan, line);
}

nlohmann::ordered_json LosslessRows(std::span<const LayerReport> layers) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const size_t part : {0, 1}) {
      const uint64_t raw = layers[i].lossless_raw_bytes[part];
      const uint64_t packed = layers[i].lossless_packed_bytes[part];
      if (packed == 0) continue;
      rows.push_back({{"layer", i},
                      {"part", part == 0 ? "k" : "v"},
                      {"raw_bytes", raw},
                      {"packed_bytes", packed},
                      {"ratio", static_cast<double>(raw) / static_cast<double>(packed)}});
    }
  }
  return rows;
}

}  // namespace varve::cli
