// The routes that generate: OpenAI's completions and chat, llama-server's /completion.

#include <chrono>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "serve/api/field_reader.h"
#include "serve/http/answer_session.h"
#include "serve/http/route_context.h"

namespace varve::serve {
namespace {

enum class Endpoint { kChat, kText, kLlama };

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t AnySeed() {
  thread_local std::mt19937_64 random(std::random_device{}());
  // Fits what JSON readers keep exactly.
  return random() >> 12;
}

void LogAnswers(RouteContext& context, const httplib::Request& request,
                const AnswerSession& session, const char* outcome) {
  nlohmann::ordered_json line = {{"time", UnixSeconds()}, {"event", "answer"},
                                 {"path", request.path},  {"client", request.remote_addr},
                                 {"outcome", outcome},    {"seconds", session.seconds()}};
  for (const CollectedAnswer& answer : session.answers()) {
    if (!answer.end) continue;
    line["prompt_tokens"] = answer.end->prompt_tokens;
    line["cached_tokens"] = answer.end->cached_tokens;
    line["tokens"] = answer.end->tokens;
    line["queue_ms"] = answer.end->times.queue_us / 1e3;
    line["first_token_ms"] = (answer.end->times.queue_us + answer.end->times.prompt_us) / 1e3;
  }
  context.Log(line);
}

class CompletionHandler {
 public:
  CompletionHandler(RouteContext& context, Endpoint endpoint)
      : context_(context), endpoint_(endpoint) {}

  void operator()(const httplib::Request& request, httplib::Response& response) const {
    auto call = std::make_unique<CompletionCall>();
    const ApiError error = Read(request, call.get());
    if (!error.ok()) return SendError(response, error);
    auto format = MakeFormat(*call);
    const bool stream = call->stream;
    auto session =
        std::make_shared<AnswerSession>(context_.engine, std::move(call), std::move(format),
                                        ClientSocket(request.remote_addr, request.remote_port));
    const ApiError refused = session->WaitForRefusal();
    if (!refused.ok()) return SendError(response, refused);
    if (stream) return StartStream(request, response, session);
    const bool is_there = session->Collect();
    LogAnswers(context_, request, *session, is_there ? "done" : "client gone");
    if (!is_there) return SendError(response, {499, "server_error", "the client has gone", {}});
    const ApiError failed = session->error();
    if (!failed.ok()) return SendError(response, failed);
    SendJson(response, session->Whole());
  }

 private:
  ApiError Read(const httplib::Request& request, CompletionCall* call) const {
    nlohmann::json body;
    ApiError error = ParseBody(request.body, &body);
    if (!error.ok()) return error;
    const std::string tenant = context_.options.api_keys.empty() ? "" : KeyOf(request);
    const auto read = endpoint_ == Endpoint::kChat ? ReadChat : ReadCompletion;
    const uint64_t seed = context_.options.seed ? *context_.options.seed : AnySeed();
    error = read(body, context_.model, tenant, seed, call);
    for (const CompletionRequest& one : call->requests) {
      if (error.ok()) error = FromStatus(context_.engine.Check(one));
    }
    return error;
  }

  std::unique_ptr<AnswerFormat> MakeFormat(const CompletionCall& call) const {
    const uint64_t number = ++context_.next_id;
    const int64_t now = UnixSeconds();
    switch (endpoint_) {
      case Endpoint::kChat:
        return MakeChatFormat(call, context_.model, fmt::format("chatcmpl-{}-{}", now, number),
                              now);
      case Endpoint::kText:
        return MakeTextFormat(call, context_.model, fmt::format("cmpl-{}-{}", now, number), now);
      default:
        return MakeLlamaFormat(call, context_.model);
    }
  }

  void StartStream(const httplib::Request& request, httplib::Response& response,
                   const std::shared_ptr<AnswerSession>& session) const {
    response.set_header("Cache-Control", "no-cache");
    RouteContext& context = context_;
    httplib::Request asked;  // what the log says of it
    asked.path = request.path;
    asked.remote_addr = request.remote_addr;
    response.set_chunked_content_provider(
        "text/event-stream", [&context, asked, session](size_t, httplib::DataSink& sink) {
          const bool is_there = session->Stream(
              [&sink](const std::string& text) { return sink.write(text.data(), text.size()); });
          LogAnswers(context, asked, *session, is_there ? "done" : "client gone");
          if (is_there) sink.done();
          return is_there;
        });
  }

  RouteContext& context_;
  Endpoint endpoint_;
};

}  // namespace

void AddCompletionRoutes(httplib::Server& server, RouteContext& context) {
  const auto add = [&](const char* path, Endpoint endpoint) {
    server.Post(path, CompletionHandler(context, endpoint));
  };
  add("/v1/chat/completions", Endpoint::kChat);
  add("/chat/completions", Endpoint::kChat);
  add("/v1/completions", Endpoint::kText);
  add("/completion", Endpoint::kLlama);
  add("/completions", Endpoint::kLlama);
}

}  // namespace varve::serve
