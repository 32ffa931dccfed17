#include "serve/http/self_check.h"

#include <httplib.h>

#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>

namespace varve::serve {
namespace {

using nlohmann::json;

constexpr int kPatienceSeconds = 120;

class SelfClient {
 public:
  SelfClient(const std::string& host, int port, const std::string& key) : client_(host, port) {
    client_.set_read_timeout(kPatienceSeconds);
    if (!key.empty()) client_.set_bearer_token_auth(key);
  }

  Result<std::string> Get(const std::string& path) {
    return Body("GET " + path, client_.Get(path));
  }
  Result<json> Post(const std::string& path, const json& body) {
    VARVE_ASSIGN_OR_RETURN(
        const std::string text,
        Body("POST " + path, client_.Post(path, body.dump(), "application/json")));
    json answer = json::parse(text, nullptr, false);
    if (answer.is_discarded()) return DataLoss(fmt::format("POST {}: no JSON", path));
    return answer;
  }

 private:
  static Result<std::string> Body(const std::string& what, const httplib::Result& result) {
    if (!result) {
      return IoError(fmt::format("{}: {}", what, httplib::to_string(result.error())));
    }
    if (result->status == 200) return result->body;
    return Internal(fmt::format("{}: status {}: {}", what, result->status, result->body));
  }

  httplib::Client client_;
};

// A prompt of more than two pages, so that the second request has something to share.
json CheckRequest() {
  std::string prompt;
  for (int i = 0; i < 200; ++i) prompt += fmt::format(" {}", i);
  return {{"prompt", prompt}, {"max_tokens", 8}, {"temperature", 0}};
}

}  // namespace

Status CheckServer(const std::string& host, int port, const std::string& key,
                   const std::function<void(const std::string&)>& say) {
  SelfClient client(host == "0.0.0.0" ? "127.0.0.1" : host, port, key);
  VARVE_RETURN_IF_ERROR(client.Get("/health").status());
  say("health: ok");
  VARVE_ASSIGN_OR_RETURN(const std::string models, client.Get("/v1/models"));
  say(fmt::format("models: {}", json::parse(models)["data"][0]["id"].get<std::string>()));
  VARVE_ASSIGN_OR_RETURN(const json first, client.Post("/v1/completions", CheckRequest()));
  VARVE_ASSIGN_OR_RETURN(const json second, client.Post("/v1/completions", CheckRequest()));
  const auto cached = [](const json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
  };
  say(fmt::format("completion: {} prompt tokens, {} and {} of them from the cache",
                  second["usage"]["prompt_tokens"].get<int64_t>(), cached(first), cached(second)));
  if (first["choices"][0]["text"] != second["choices"][0]["text"]) {
    return Internal("completion: the same greedy request was answered in two ways");
  }
  VARVE_ASSIGN_OR_RETURN(const std::string metrics, client.Get("/metrics"));
  say(fmt::format("metrics: {} bytes", metrics.size()));
  return Status();
}

}  // namespace varve::serve
