// EngineSnapshot: what the engine shows of itself between two steps, for /metrics, /slots and the
// page. A plain value; may be read by any thread once it has been copied out.

#ifndef VARVE_SERVE_ENGINE_ENGINE_SNAPSHOT_H_
#define VARVE_SERVE_ENGINE_ENGINE_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "serve/prefix/prefix_cache.h"
#include "serve/prefix/prefix_tiers.h"
#include "varve/cache_stats.h"

namespace varve::serve {

// Sums since the start.
struct EngineCounters {
  uint64_t requests = 0;  // that came,
  uint64_t finished = 0;  // got an answer,
  uint64_t cancelled = 0;
  uint64_t refused = 0;  // or ended with an error
  uint64_t prompt_tokens = 0;
  uint64_t prompt_tokens_cached = 0;  // of those, not computed
  double prompt_s = 0;                // in steps that read prompts
  uint64_t tokens = 0;                // generated
  double decode_s = 0;                // in steps that generate
  uint64_t decode_steps = 0;          // groups of sequences,
  uint64_t decode_sequences = 0;      // and their sequences
  uint64_t longest = 0;               // most tokens that a sequence has had
};

// Pages of a conversation that are in one state, in order.
struct PageRun {
  int64_t pages = 0;
  std::string state;  // as in PageForm: "exact", "sealed", "open", "idle", …
  std::string rung;   // "q8_0", or "q8_0/q4_0" where K and V differ
};

struct ConversationView {
  int slot = -1;  // -1: idle, kept for whoever continues it
  bool is_reading = false;
  uint64_t id = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t tokens_fed = 0;
  int64_t generated = 0;
  int64_t limit = 0;
  int64_t shared_pages = 0;    // at its beginning, with others
  double uses = 0;             // idle ones: how often, with the past fading
  std::vector<PageRun> pages;  // as they are in the first layer
};

struct EngineSnapshot {
  EngineCounters counters;
  PrefixStats prefix;
  PrefixTierStats tiers;
  bool shares_prefixes = false;
  std::string prefix_note;  // why not
  uint64_t bytes_held = 0;
  uint64_t bytes_budget = 0;
  uint64_t waiting = 0;
  int num_slots = 0;
  int64_t context = 0;
  int page_tokens = 0;
  std::string plan;
  double uptime_s = 0;
  CacheStats cache;
  std::vector<ConversationView> conversations;  // those with a slot first
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_ENGINE_SNAPSHOT_H_
