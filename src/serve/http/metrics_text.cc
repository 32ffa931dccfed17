#include "serve/http/metrics_text.h"

#include <string_view>

#include <fmt/format.h>

namespace varve::serve {
namespace {

class MetricsPage {
 public:
  template <typename Number>
  void Counter(std::string_view name, Number value, std::string_view help) {
    Add(name, "counter", value, help);
  }
  template <typename Number>
  void Gauge(std::string_view name, Number value, std::string_view help) {
    Add(name, "gauge", value, help);
  }
  void Line(const std::string& line) { text_ += line + "\n"; }
  std::string Take() { return std::move(text_); }

 private:
  template <typename Number>
  void Add(std::string_view name, std::string_view kind, Number value, std::string_view help) {
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, kind, value);
  }

  std::string text_;
};

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

int Processing(const EngineSnapshot& snapshot) {
  int count = 0;
  for (const ConversationView& view : snapshot.conversations) count += view.slot >= 0 ? 1 : 0;
  return count;
}

void AddOurs(const EngineSnapshot& snapshot, MetricsPage& page) {
  const EngineCounters& counters = snapshot.counters;
  page.Counter("varve_requests_total", counters.requests, "Requests that came to the engine.");
  page.Counter("varve_requests_finished_total", counters.finished, "Requests that were answered.");
  page.Counter("varve_requests_cancelled_total", counters.cancelled, "Clients that went away.");
  page.Counter("varve_requests_refused_total", counters.refused, "Requests without room.");
  page.Gauge("varve_bytes_held", snapshot.bytes_held, "Memory that is resident for pages.");
  page.Gauge("varve_bytes_budget", snapshot.bytes_budget, "What it may be: --cache-bytes.");
  page.Gauge("varve_bytes_used", snapshot.cache.bytes_used, "Payload of all live pages.");
  page.Gauge("varve_bytes_f16", snapshot.cache.bytes_f16, "Live rows of all sequences in f16.");
  page.Gauge("varve_bytes_tables", snapshot.cache.bytes_tables, "Page records and tables.");
  page.Gauge("varve_pages", snapshot.cache.pages, "Pages of single layers.");
  page.Gauge("varve_sequences", snapshot.cache.sequences, "Sequences, kept ones included.");
  page.Counter("varve_pages_sealed", snapshot.cache.pages_sealed, "Pages encoded.");
  page.Counter("varve_pages_demoted", snapshot.cache.pages_demoted, "Pages demoted.");
  page.Counter("varve_pages_dropped", snapshot.cache.pages_dropped, "Pages dropped.");
  page.Gauge("varve_prefix_pages", snapshot.prefix.pages, "Pages kept for later requests.");
  page.Gauge("varve_prefix_conversations", snapshot.prefix.leaves, "Ends of kept prefixes.");
  page.Counter("varve_prefix_page_queries_total", snapshot.prefix.queries, "Pages asked for.");
  page.Counter("varve_prefix_page_hits_total", snapshot.prefix.hits, "Pages that were there.");
  page.Counter("varve_prefix_pages_evicted_total", snapshot.prefix.pages_evicted,
               "Pages given up for others.");
  page.Counter("varve_prefix_pages_rested_total", snapshot.prefix.pages_rested,
               "Pages of idle conversations brought to the form of idle=.");
  page.Counter("varve_prefix_pages_spilled_total", snapshot.prefix.pages_spilled,
               "Pages of idle conversations that left memory for a tier.");
  page.Line("# HELP varve_rung_bytes Payload of pages by rung and state.");
  page.Line("# TYPE varve_rung_bytes gauge");
  for (const RungBytes& rung : snapshot.cache.rungs) {
    page.Line(fmt::format("varve_rung_bytes{{rung=\"{}\",state=\"{}\"}} {}", rung.rung,
                          PageStateName(rung.state), rung.bytes));
  }
}

struct TierMetric {
  std::string_view name;
  std::string_view kind;
  std::string_view help;
  uint64_t (*value)(const TierStats&);
};

constexpr TierMetric kTierMetrics[] = {
    {"page_hits_total", "counter", "Pages that were there.",
     [](const TierStats& s) { return s.hits; }},
    {"page_misses_total", "counter", "Pages that were not.",
     [](const TierStats& s) { return s.misses; }},
    {"pages_late_total", "counter", "Misses by the deadline.",
     [](const TierStats& s) { return s.late; }},
    {"pages_damaged_total", "counter", "Pages that failed their check.",
     [](const TierStats& s) { return s.damaged; }},
    {"pages_stored_total", "counter", "Pages written.",
     [](const TierStats& s) { return s.stored; }},
    {"pages_evicted_total", "counter", "Pages given up for others.",
     [](const TierStats& s) { return s.evicted; }},
    {"pages_dropped_total", "counter", "Pages that were not written.",
     [](const TierStats& s) { return s.dropped_queue + s.dropped_room + s.dropped_error; }},
    {"errors_total", "counter", "Failures behind the tier.",
     [](const TierStats& s) { return s.errors; }},
    {"reconnects_total", "counter", "Connections made again.",
     [](const TierStats& s) { return s.reconnects; }},
    {"bytes_read_total", "counter", "Bytes of pages that were there.",
     [](const TierStats& s) { return s.bytes_read; }},
    {"bytes_written_total", "counter", "Bytes written.",
     [](const TierStats& s) { return s.bytes_written; }},
    {"bytes_held", "gauge", "Bytes on disk.", [](const TierStats& s) { return s.bytes_held; }},
    {"bytes_queued", "gauge", "Bytes that wait to be written.",
     [](const TierStats& s) { return s.bytes_queued; }},
    {"available", "gauge", "0: not asked at the moment.",
     [](const TierStats& s) { return uint64_t{s.available ? 1u : 0u}; }},
};

void AddTiers(const PrefixTierStats& stats, MetricsPage& page) {
  if (stats.tiers.empty()) return;
  page.Counter("varve_tier_pages_imported_total", stats.pages_imported, "Pages not computed.");
  page.Counter("varve_tier_pages_refused_total", stats.pages_refused, "Images not taken.");
  page.Counter("varve_tier_pages_exported_total", stats.pages_exported, "Pages handed over.");
  page.Counter("varve_tier_pages_skipped_total", stats.pages_skipped,
               "Pages not asked for: computing was expected to be faster.");
  for (const TierMetric& metric : kTierMetrics) {
    page.Line(fmt::format("# HELP varve_tier_{} {}", metric.name, metric.help));
    page.Line(fmt::format("# TYPE varve_tier_{} {}", metric.name, metric.kind));
    for (const TierView& tier : stats.tiers) {
      page.Line(fmt::format("varve_tier_{}{{tier=\"{}\"}} {}", metric.name, tier.name,
                            metric.value(tier.stats)));
    }
  }
}

void AddLlama(const EngineSnapshot& snapshot, MetricsPage& page) {
  const EngineCounters& counters = snapshot.counters;
  const uint64_t computed = counters.prompt_tokens - counters.prompt_tokens_cached;
  page.Counter("llamacpp:prompt_tokens_total", computed, "Prompt tokens computed.");
  page.Counter("llamacpp:prompt_tokens_cached_total", counters.prompt_tokens_cached,
               "Prompt tokens that were not computed.");
  page.Counter("llamacpp:prompt_seconds_total", counters.prompt_s, "Time of prompts.");
  page.Counter("llamacpp:tokens_predicted_total", counters.tokens, "Tokens generated.");
  page.Counter("llamacpp:tokens_predicted_seconds_total", counters.decode_s, "Time of these.");
  page.Counter("llamacpp:n_decode_total", counters.decode_steps, "Decode steps.");
  page.Counter("llamacpp:n_tokens_max", counters.longest, "Longest sequence so far.");
  page.Gauge("llamacpp:prompt_tokens_seconds",
             Ratio(static_cast<double>(computed), counters.prompt_s), "Prompt tokens per second.");
  page.Gauge("llamacpp:predicted_tokens_seconds",
             Ratio(static_cast<double>(counters.tokens), counters.decode_s),
             "Generated tokens per second.");
  page.Gauge(
      "llamacpp:kv_cache_usage_ratio",
      Ratio(static_cast<double>(snapshot.bytes_held), static_cast<double>(snapshot.bytes_budget)),
      "Bytes held of the budget.");
  page.Gauge("llamacpp:requests_processing", Processing(snapshot), "Requests with a slot.");
  page.Gauge("llamacpp:requests_deferred", snapshot.waiting, "Requests that wait for one.");
  page.Gauge("llamacpp:n_busy_slots_per_decode",
             Ratio(static_cast<double>(counters.decode_sequences),
                   static_cast<double>(counters.decode_steps)),
             "Sequences of a decode step, on average.");
}

void AddVllm(const EngineSnapshot& snapshot, MetricsPage& page) {
  const auto page_tokens = static_cast<uint64_t>(snapshot.page_tokens);
  page.Gauge("vllm:num_requests_running", Processing(snapshot), "Requests with a slot.");
  page.Gauge("vllm:num_requests_waiting", snapshot.waiting, "Requests that wait for one.");
  page.Gauge(
      "vllm:kv_cache_usage_perc",
      Ratio(static_cast<double>(snapshot.bytes_held), static_cast<double>(snapshot.bytes_budget)),
      "Bytes held of the budget; 1 is all of it.");
  page.Counter("vllm:prefix_cache_queries", snapshot.prefix.queries * page_tokens,
               "Tokens in full pages that prompts asked for.");
  page.Counter("vllm:prefix_cache_hits", snapshot.prefix.hits * page_tokens,
               "Those that were there.");
  page.Counter("vllm:prompt_tokens_total", snapshot.counters.prompt_tokens, "Prompt tokens.");
  page.Counter("vllm:prompt_tokens_cached", snapshot.counters.prompt_tokens_cached,
               "Those that were not computed.");
  page.Counter("vllm:generation_tokens_total", snapshot.counters.tokens, "Tokens generated.");
}

}  // namespace

std::string MetricsText(const EngineSnapshot& snapshot) {
  MetricsPage page;
  AddOurs(snapshot, page);
  AddTiers(snapshot.tiers, page);
  AddLlama(snapshot, page);
  AddVllm(snapshot, page);
  return page.Take();
}

}  // namespace varve::serve
