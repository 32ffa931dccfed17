// How the server is: /health, /slots, /metrics, /cache (what the page draws), and the page itself.

#include <fmt/format.h>

#include "serve/http/metrics_text.h"
#include "serve/http/route_context.h"
#include "serve/page/live_page.h"

namespace varve::serve {
namespace {

using nlohmann::ordered_json;

bool IsFree(const EngineSnapshot& snapshot, int slot) {
  for (const ConversationView& view : snapshot.conversations) {
    if (view.slot == slot) return false;
  }
  return true;
}

ordered_json SlotJson(const EngineSnapshot& snapshot, int slot) {
  ordered_json json = {
      {"id", slot}, {"n_ctx", snapshot.context}, {"speculative", false}, {"is_processing", false}};
  for (const ConversationView& view : snapshot.conversations) {
    if (view.slot != slot) continue;
    json["is_processing"] = true;
    json["id_task"] = view.id;
    json["n_prompt_tokens"] = view.prompt_tokens;
    json["n_prompt_tokens_processed"] =
        std::min(view.tokens_fed, view.prompt_tokens) - view.cached_tokens;
    json["n_prompt_tokens_cache"] = view.cached_tokens;
    json["next_token"] =
        ordered_json::array({{{"n_decoded", view.generated},
                              {"n_remain", view.limit - view.prompt_tokens - view.generated}}});
  }
  return json;
}

void SendSlots(const RouteContext& context, const httplib::Request& request,
               httplib::Response& response) {
  if (!context.options.show_slots) {
    return SendError(response, {501, "not_supported_error", "started with --no-slots", {}});
  }
  const auto snapshot = context.engine.Snapshot();
  ordered_json slots = ordered_json::array();
  bool any_free = false;
  for (int slot = 0; slot < snapshot->num_slots; ++slot) {
    slots.push_back(SlotJson(*snapshot, slot));
    any_free = any_free || IsFree(*snapshot, slot);
  }
  if (!any_free && request.has_param("fail_on_no_slot")) {
    return SendError(response, {503, "unavailable_error", "no slot is free", {}});
  }
  SendJson(response, slots);
}

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
  response.set_content(MetricsText(*context.engine.Snapshot()), "text/plain; version=0.0.4");
}

}  // namespace

void AddStatusRoutes(httplib::Server& server, RouteContext& context) {
  const auto health = [&context](const auto&, auto& response) { SendHealth(context, response); };
  server.Get("/health", health);
  server.Get("/v1/health", health);
  server.Get("/slots", [&context](const auto& request, auto& response) {
    SendSlots(context, request, response);
  });
  server.Get("/metrics",
             [&context](const auto&, auto& response) { SendMetrics(context, response); });
  server.Get("/cache", [&context](const auto&, auto& response) {
    SendJson(response, CacheJson(*context.engine.Snapshot()));
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
