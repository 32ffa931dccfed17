#include "cli/lossless/lossless_report.h"

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {

void AddLosslessKeys(const LosslessStats& stats, nlohmann::ordered_json* row) {
  if (stats.layers == 0) return;
  row->update({{"lossless_ratio", stats.ratio()},
               {"lossless_layers", stats.layers},
               {"lossless_raw_bytes", stats.raw_bytes},
               {"lossless_compressed_bytes", stats.compressed_bytes},
               {"lossless_decompressed_bytes", stats.decompressed_bytes},
               {"lossless_compress_us", stats.compress_us},
               {"lossless_decompress_us", stats.decompress_us},
               {"codec_us", stats.compress_us + stats.decompress_us},
               {"lossless_queue_depth_peak", stats.queue_peak},
               {"lossless_async_queue_peak", stats.queue_peak},
               {"lossless_async_wait_us", stats.wait_us},
               {"lossless_fallback_count", stats.fallbacks},
               {"lossless_backpressure_skip_count", stats.backpressure_skips},
               {"lossless_restore_failures", stats.restore_failures},
               {"lossless_decode_cache_hit", stats.decode_cache_hits},
               {"lossless_decode_cache_miss", stats.decode_cache_misses},
               {"lossless_decode_cache_bytes", stats.decode_cache_bytes},
               {"lossless_dictionary_bytes", stats.dictionary_bytes},
               {"lossless_pages_packed", stats.pages_packed},
               {"lossless_pages_now", stats.pages_now},
               {"lossless_packed_bytes_now", stats.packed_bytes_now},
               {"lossless_raw_bytes_now", stats.raw_bytes_now},
               {"pages_spilled", stats.pages_spilled},
               {"bytes_spilled", stats.bytes_spilled},
               {"spill_refused", stats.spill_refused},
               {"strips_unpacked", stats.strips_unpacked},
               {"restored_pages", stats.pages_restored},
               {"prefetched_pages", stats.pages_prefetched}});
}

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

}  // namespace varve::cli
