// RouteContext: what the handlers of all routes share, and how each group of routes is added. For
// the files of this folder alone.

#ifndef VARVE_SERVE_HTTP_ROUTE_CONTEXT_H_
#define VARVE_SERVE_HTTP_ROUTE_CONTEXT_H_

#include <httplib.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "serve/api/api_error.h"
#include "serve/api/served_model.h"
#include "serve/engine/engine.h"
#include "serve/http/http_server.h"

namespace varve::serve {

struct RouteContext {
  Engine& engine;
  const ServedModel& model;
  const HttpOptions& options;
  std::atomic<bool> is_stopping = false;
  std::atomic<uint64_t> next_id = 0;
  std::mutex log_mutex = {};

  void Log(const nlohmann::ordered_json& line);
};

void SendJson(httplib::Response& response, const nlohmann::ordered_json& body);
void SendError(httplib::Response& response, const ApiError& error);

// The key that a request carries ("Authorization: Bearer", "X-Api-Key"); empty: none.
std::string KeyOf(const httplib::Request& request);
// True if the request may be answered. Keys are compared in a time that tells nothing of them.
bool IsAllowed(const RouteContext& context, const httplib::Request& request);

void AddCompletionRoutes(httplib::Server& server, RouteContext& context);
void AddSlotRoutes(httplib::Server& server, RouteContext& context);
void AddModelRoutes(httplib::Server& server, RouteContext& context);
void AddStatusRoutes(httplib::Server& server, RouteContext& context);
void AddSpeechRoutes(httplib::Server& server, RouteContext& context);

}  // namespace varve::serve

#endif  // VARVE_SERVE_HTTP_ROUTE_CONTEXT_H_
