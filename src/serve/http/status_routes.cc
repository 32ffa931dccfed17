// How the server is: /health, /metrics, /cache (what the page draws), and the page itself.

#include <fmt/format.h>

#include "serve/http/metrics_text.h"
#include "serve/http/route_context.h"
#include "serve/page/live_page.h"

namespace varve::serve {
namespace {

using nlohmann::ordered_json;

ordered_json ConversationJson(const ConversationView& view) {
  ordered_json runs = ordered_json::array();
  for (const PageRun& run : view.pages) {
    runs.push_back({{"pages", run.pages}, {"state", run.state}, {"rung", run.rung}});
  }
  return {{"slot", view.slot},
          {"reading", view.is_reading},
          {"id", view.id},
          {"prompt_tokens", view.prompt_tokens},
          {"cached_tokens", view.cached_tokens},
          {"tokens", view.tokens_fed},
          {"generated", view.generated},
          {"shared_pages", view.shared_pages},
          {"uses", view.uses},
          {"runs", std::move(runs)}};
}

ordered_json CacheJson(const EngineSnapshot& snapshot) {
  const EngineCounters& counters = snapshot.counters;
  ordered_json conversations = ordered_json::array();
  for (const ConversationView& view : snapshot.conversations) {
    conversations.push_back(ConversationJson(view));
  }
  ordered_json rungs = ordered_json::array();
  for (const RungBytes& rung : snapshot.cache.rungs) {
    rungs.push_back({{"rung", rung.rung},
                     {"state", PageStateName(rung.state)},
                     {"pages", rung.pages},
                     {"bytes", rung.bytes}});
  }
  return {{"plan", snapshot.plan},
          {"page_tokens", snapshot.page_tokens},
          {"slots", snapshot.num_slots},
          {"waiting", snapshot.waiting},
          {"uptime_s", snapshot.uptime_s},
          {"bytes_held", snapshot.bytes_held},
          {"bytes_budget", snapshot.bytes_budget},
          {"bytes_f16", snapshot.cache.bytes_f16},
          {"prompt_tokens", counters.prompt_tokens},
          {"cached_tokens", counters.prompt_tokens_cached},
          {"prompt_s", counters.prompt_s},
          {"tokens", counters.tokens},
          {"decode_s", counters.decode_s},
          {"requests", counters.requests},
          {"pages_sealed", snapshot.cache.pages_sealed},
          {"pages_demoted", snapshot.cache.pages_demoted},
          {"page_queries", snapshot.prefix.queries},
          {"page_hits", snapshot.prefix.hits},
          {"pages_evicted", snapshot.prefix.pages_evicted},
          {"pages_rested", snapshot.prefix.pages_rested},
          {"pages_spilled", snapshot.prefix.pages_spilled},
          {"rungs", std::move(rungs)},
          {"conversations", std::move(conversations)}};
}

void SendHealth(const RouteContext& context, httplib::Response& response) {
  if (context.is_stopping) {
    return SendError(response, {503, "unavailable_error", "the server is stopping", {}});
  }
  SendJson(response, {{"status", "ok"}});
}

void SendMetrics(const RouteContext& context, httplib::Response& response) {
  if (!context.options.show_metrics) {
    return SendError(response, {501, "not_supported_error", "started with --no-metrics", {}});
  }
  response.set_header("Process-Start-Time-Unix", std::to_string(context.model.started_s));
  response.set_content(MetricsText(context.engine.Snapshot()), "text/plain; version=0.0.4");
}

}  // namespace

void AddStatusRoutes(httplib::Server& server, RouteContext& context) {
  const auto health = [&context](const auto&, auto& response) { SendHealth(context, response); };
  server.Get("/health", health);
  server.Get("/v1/health", health);
  server.Get("/metrics",
             [&context](const auto&, auto& response) { SendMetrics(context, response); });
  server.Get("/cache", [&context](const auto&, auto& response) {
    SendJson(response, CacheJson(context.engine.Snapshot()));
  });
  if (!context.options.show_page) return;
  server.Get("/", [](const auto&, auto& response) {
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; style-src 'unsafe-inline'; script-src "
                        "'unsafe-inline'; connect-src 'self'");
    response.set_content(LivePage(), "text/html; charset=utf-8");
  });
}

}  // namespace varve::serve
