// Statistics of a cache: CacheStats, the dozen figures that most programs want (Cache::Stats), and
// CacheReport, everything (Cache::Report). Plain values.

#ifndef VARVE_CACHE_STATS_H_
#define VARVE_CACHE_STATS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "varve/export.h"
#include "varve/part.h"

namespace varve {

enum class PageState { kFilling, kFull, kSealed, kPacked };

// "filling", "full", "sealed", "packed".
VARVE_API const char* PageStateName(PageState state);

struct RungBytes {
  std::string rung;  // "q8_0", or "q8_0/q4_0" where K and V differ
  PageState state = PageState::kSealed;
  uint64_t pages = 0;
  uint64_t bytes = 0;  // payload of those pages
};

// The figures that most programs want. Counts are since creation, the rest is of this moment.
struct CacheStats {
  uint64_t bytes_used = 0;      // payload of all live pages; a shared page counts once
  uint64_t bytes_held = 0;      // memory that is kept resident for pages; not the spill file
  uint64_t bytes_tables = 0;    // page records and tables
  uint64_t bytes_scratch = 0;   // work buffers of steps and attention
  uint64_t bytes_f16 = 0;       // what the live rows of all sequences would take in plain f16
  uint64_t bytes_f16_seen = 0;  // what all tokens that they have seen would take
  // Tables of centroids that the plan uses, each once; a constant of the model, in no other count.
  uint64_t bytes_codebooks = 0;
  uint64_t bytes_compressors = 0;  // likewise, of the networks that fold
  uint64_t pages = 0;
  uint64_t sequences = 0;
  uint64_t pages_sealed = 0;     // encoded: first seal …
  uint64_t pages_demoted = 0;    // … and later steps down the ladder
  uint64_t pages_dropped = 0;    // by window=, SlideWindow and policies, in all layers
  std::vector<RungBytes> rungs;  // by rung and state, in a fixed order
};

// What the plan's policies did. Parts and ratios are of the layers that have a policy, over all
// sequences that live now; counts are since creation.
struct RetentionStats {
  int layers = 0;            // with a policy; if 0, nothing else here means anything
  uint64_t plans = 0;        // decisions carried out
  uint64_t plans_stale = 0;  // decisions given up: the table had changed since
  uint64_t plans_bound = 0;  // carried out, but sink and recent alone exceeded the target
  uint64_t pages_evicted = 0;
  uint64_t pages_demoted = 0;        // by score
  uint64_t tokens_evicted = 0;       // summed over layers
  uint64_t tokens_evicted_last = 0;  // by the last step that evicted, summed over layers
  uint64_t plan_bytes = 0;           // of the spans in force
  double plan_us = 0;                // scoring, planning and carrying out
  double keep_ratio = 1;             // live tokens / tokens seen
  double lossy_ratio = 1;            // f16 bytes of all tokens seen / bytes held and plan bytes
  double lossy_ratio_run = 1;        // the same, summed over the steps after the first plan
  double target_keep = 1;     // means over the last plans of the layers: what the target asks,
  double effective_keep = 1;  // what the floors raise it to,
  double kept_part = 1;       // what whole pages make of it
  double floor_keep = 0;      // part that sink and recent take
  double target_ratio = 0;    // that the plan asks for in its layers; 0: a budget in bytes
  // The best lossy_ratio that sink, recent, the page that grows and the one that comes next leave
  // room for at the present lengths; 0 without tokens.
  double ratio_bound = 0;
};

// What lossless packing (pack=) did. Counts are since creation.
struct LosslessStats {
  int layers = 0;               // with pack=; if 0, nothing else here means anything
  uint64_t pages_packed = 0;    // in mode store: replaced; full and probe: tried
  uint64_t pages_compared = 0;  // of those, byte by byte after unpacking (strict=1)
  uint64_t pages_without_gain = 0;
  uint64_t block_tokens = 0;      // whole pages that are handed out together: the most of a layer
  uint64_t raw_bytes = 0;         // of all those pages
  uint64_t compressed_bytes = 0;  // what came of them
  uint64_t pages_now = 0;         // packed at this moment,
  uint64_t raw_bytes_now = 0;     // their raw
  uint64_t packed_bytes_now = 0;  // and packed bytes,
  uint64_t dictionary_bytes = 0;  // and the dictionaries that they share
  double compress_us = 0;         // of the workers
  double decompress_us = 0;       // of all threads
  uint64_t decompressed_bytes = 0;
  uint64_t fallbacks = 0;           // pages left raw because packing failed
  uint64_t backpressure_skips = 0;  // groups put off because the queue was full
  uint64_t mismatches = 0;          // of those, that were not the same after unpacking
  uint64_t restore_failures = 0;    // packed pages that could not be read
  uint64_t queue_peak = 0;          // groups waiting for a worker at once,
  uint64_t queue_depth_peak = 0;    // and those together with the ones being worked on
  // Of the thread that runs the steps: handing out, installing, restoring before a layer is read,
  // giving memory back. Attention's own unpacking is in decompress_us.
  uint64_t wait_steps = 0;           // steps so far,
  double wait_us = 0;                // their sum,
  double wait_max_us = 0;            // the worst
  double wait_last_us = 0;           // and the last
  double drain_us = 0;               // in WaitForPacking, outside of steps
  uint64_t decode_cache_hits = 0;    // pages whose raw strips were there when a layer was read
  uint64_t decode_cache_misses = 0;  // pages that were unpacked strip by strip, or then restored
  uint64_t strips_unpacked = 0;      // by attention, on the way
  uint64_t pages_restored = 0;       // into the decode cache
  uint64_t pages_prefetched = 0;     // of those, by workers ahead of their layer
  uint64_t decode_cache_bytes = 0;   // held for it now
  uint64_t pages_spilled = 0;  // of the pages packed now, those whose bytes are in the spill file,
  uint64_t bytes_spilled = 0;  // and these; not in bytes_held
  uint64_t spill_refused = 0;  // times that the spill file had no room: pages stayed in memory

  // Raw / packed bytes, dictionaries included: of the pages packed now; without any, of all tried.
  VARVE_API double ratio() const;
  VARVE_API double wait_mean_us() const;
  // What the worst step left of kAsyncWaitBudgetUs; negative if it took more.
  VARVE_API double wait_headroom_us() const;
  // Every page that was packed came out as it went in, and every packed page could be read.
  bool consistent() const { return mismatches == 0 && restore_failures == 0; }
};

// What packing may take of one step: 40 ms, the budget of the H2O system.
inline constexpr double kAsyncWaitBudgetUs = 40000;

// What the learned compressor (fold=) did, since creation; summed over the layers that fold.
struct FoldStats {
  int layers = 0;                // with fold=; if 0, nothing else here means anything
  uint64_t prompts = 0;          // that were folded
  uint64_t prompts_skipped = 0;  // that ended with EndPromptOptions::fold = false
  uint64_t tokens = 0;           // of those prompts
  uint64_t rows = 0;             // that they have become,
  uint64_t rows_raw = 0;         // of which so many are tokens as they were
  uint64_t bytes_before = 0;     // held by the pages that were folded,
  uint64_t bytes_after = 0;      // and by the new ones when they were made, in the open rung
  double fold_us = 0;
};

// Time by stage, summed over threads, since creation; all zero without CacheOptions::time_stages.
// Unpacking (pack=) lies within the stage that reads. What is no stage of the rungs (tables,
// policies, waiting for threads) is not counted.
struct StageTimes {
  double prepare_us = 0;       // queries into the key spaces: blocks, rotations, lookup tables
  double scores_us = 0;        // queries against keys
  double softmax_us = 0;       // weights of the scores
  double values_us = 0;        // weighted values
  double merge_us = 0;         // splits joined, value spaces brought together
  double encode_us = 0;        // rows of pages that are sealed or demoted, their decoding included
  double append_us = 0;        // new rows into the open page
  uint64_t attend_passes = 0;  // calls of Attend; long prompts take several passes
  uint64_t rows_encoded = 0;   // K rows and V rows, of every KV head
  uint64_t rows_appended = 0;  // likewise
};

// Where the plan's fallback= had to take the place of the rung that was asked for.
struct FallbackUse {
  int first_layer = 0;  // inclusive range
  int last_layer = 0;
  Part part = Part::kKey;
  std::string asked;   // "pq64x8"
  std::string used;    // "q4_0r"
  std::string reason;  // why the asked-for rung cannot run
};

// How much smaller the cache is, and what made it so. docs/metrics.md defines each by its name.
struct CacheMetrics {
  // f16 bytes of all tokens seen / bytes held and tables, of all layers. 1 without tokens.
  double total_ratio = 1;
  // The same, summed over the steps: with a policy, over those since its first decision.
  double total_ratio_avg = 1;
  RetentionStats retention;
  LosslessStats lossless;
};

// One layer, over all sequences that live now; a page that they share counts for each.
struct LayerReport {
  uint64_t tokens_live = 0;     // not dropped
  uint64_t bytes_f16_seen = 0;  // what all tokens that they have seen would take in plain f16
  uint64_t bytes_held = 0;      // pages as they are held, packed or not
  // Of packing, [K, V]: pages packed now (full, probe: all that were tried), dictionaries included.
  uint64_t lossless_raw_bytes[2] = {0, 0};
  uint64_t lossless_packed_bytes[2] = {0, 0};
};

// Everything that a cache knows about itself. varve/properties.h has the same by name, as text or
// JSON.
struct CacheReport : CacheStats, CacheMetrics {
  uint64_t bytes_copied = 0;      // copied on write
  uint64_t pages_unread = 0;      // of a file that was loaded, not asked for yet: they hold no
  uint64_t bytes_unread = 0;      // memory and are in no other count; their payload
  uint64_t pages_adopted = 0;     // took over the successor that another sequence had encoded
  uint64_t nonfinite_values = 0;  // values that a rung could not hold: see docs/metrics.md
  std::vector<FallbackUse> fallbacks;
  std::vector<std::string> plan_notes;  // what the plan says and runs otherwise, rounded
  FoldStats fold;
  StageTimes stages;
  std::vector<LayerReport> by_layer;
};

}  // namespace varve

#endif  // VARVE_CACHE_STATS_H_
