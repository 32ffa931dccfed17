#include "serve/http/http_server.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "serve/api/json_text.h"
#include "serve/http/bounded_server.h"
#include "serve/http/route_context.h"

namespace varve::serve {
namespace {

constexpr int kKeepAliveSeconds = 5;
constexpr int kMaxPending = 512;  // connections that wait to be accepted

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Digest DigestOf(const std::string& text) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

// What says nothing that others could not see.
bool IsPublic(const std::string& path) {
  return path == "/" || path == "/health" || path == "/v1/health" || path == "/v1/models" ||
         path == "/models";
}

bool IsLocalOrigin(std::string_view origin) {
  for (const std::string_view host : {"http://localhost", "http://127.0.0.1", "http://[::1]"}) {
    if (!origin.starts_with(host)) continue;
    const std::string_view rest = origin.substr(host.size());
    if (rest.empty() || rest.front() == ':') return true;
  }
  return false;
}

// Tells a browser whether the page that asks may read the answer.
void AllowOrigin(const HttpOptions& options, const httplib::Request& request,
                 httplib::Response& response) {
  const std::string origin = request.get_header_value("Origin");
  if (origin.empty()) return;
  const auto is_allowed = [&origin](const std::string& allowed) {
    if (allowed == "localhost") return IsLocalOrigin(origin);
    return allowed == "all" || allowed == origin;
  };
  const auto& allowed = options.cors_origins;
  if (std::none_of(allowed.begin(), allowed.end(), is_allowed)) return;
  response.set_header("Access-Control-Allow-Origin", origin);
  response.set_header("Access-Control-Allow-Credentials", "true");
  response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  response.set_header("Access-Control-Allow-Headers", "*");
  response.set_header("Vary", "Origin");
}

bool HasBody(const httplib::Request& request) {
  const std::string length = request.get_header_value("Content-Length");
  return request.has_header("Transfer-Encoding") || !(length.empty() || length == "0");
}

// Of others the library takes a body for the next request.
bool IsBodyRead(const std::string& method) {
  return method == "POST" || method == "PUT" || method == "PATCH" || method == "DELETE";
}

// Answers before the body has been read.
void Refuse(const httplib::Request& request, httplib::Response& response, const ApiError& error) {
  SendError(response, error);
  if (HasBody(request)) BoundedServer::EndConnection(request);
}

// `curl -d` calls any body a form, and the library takes no form of more than 8 KiB. Nothing here
// is one, so such a body is what its first reader makes of it: JSON. The request is the library's
// own and not constant; its handler alone says so.
void TakeFormsAsJson(const httplib::Request& request) {
  constexpr std::string_view kForm = "application/x-www-form-urlencoded";
  if (!request.get_header_value("Content-Type").starts_with(kForm)) return;
  auto& headers = const_cast<httplib::Request&>(request).headers;
  headers.erase("Content-Type");
  headers.emplace("Content-Type", "application/json");
}

// Errors of the library itself: no such route, a body that is too large, a request that is none.
ApiError LibraryError(int status, const httplib::Request& request, const HttpOptions& options) {
  switch (status) {
    case 404:
      return {404,
              "not_found_error",
              fmt::format("{} {}: no such route", request.method, request.path),
              {}};
    case 413:
      return {413, "invalid_request_error",
              fmt::format("body: more than {} bytes", options.max_body_bytes), "body"};
    default:
      return {status,
              status < 500 ? "invalid_request_error" : "server_error",
              fmt::format("HTTP status {}", status),
              {}};
  }
}

}  // namespace

void RouteContext::Log(const nlohmann::ordered_json& line) {
  if (!options.log) return;
  const std::lock_guard lock(log_mutex);
  options.log(JsonText(line));
}

void SendJson(httplib::Response& response, const nlohmann::ordered_json& body) {
  response.set_content(JsonText(body), "application/json");
}

void SendError(httplib::Response& response, const ApiError& error) {
  response.status = error.http_status;
  response.set_content(ErrorJson(error), "application/json");
}

std::string KeyOf(const httplib::Request& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string header = request.get_header_value("Authorization");
  if (header.starts_with(kBearer)) return header.substr(kBearer.size());
  return request.get_header_value("X-Api-Key");
}

bool IsAllowed(const RouteContext& context, const httplib::Request& request) {
  if (context.options.api_keys.empty()) return true;
  const Digest given = DigestOf(KeyOf(request));
  bool is_known = false;
  for (const std::string& key : context.options.api_keys) {
    is_known |= CRYPTO_memcmp(given.data(), DigestOf(key).data(), given.size()) == 0;
  }
  return is_known;
}

struct HttpServer::Impl {
  Impl(Engine& engine, const ServedModel& model, HttpOptions asked)
      : options(std::move(asked)),
        context{.engine = engine, .model = model, .options = options},
        server(options.max_body_bytes) {}

  void SetLimits();
  void SetHandlers();

  HttpOptions options;
  RouteContext context;
  BoundedServer server;
  int listener = -1;  // the library's
  int port = -1;
};

void HttpServer::Impl::SetLimits() {
  const auto threads = static_cast<size_t>(options.max_connections);
  server.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  server.set_tcp_nodelay(true);
  // The library's default also lets a second process take the port.
  server.set_socket_options([this](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    listener = socket;
  });
}

void HttpServer::Impl::SetHandlers() {
  server.set_pre_routing_handler([this](const auto& request, auto& response) {
    using Handled = httplib::Server::HandlerResponse;
    TakeFormsAsJson(request);
    AllowOrigin(options, request, response);
    if (HasBody(request) && !IsBodyRead(request.method)) BoundedServer::EndConnection(request);
    // A browser asks before it asks, without a key.
    if (request.method == "OPTIONS") return Handled::Handled;
    // The library would unpack any number of bytes.
    const std::string encoding = request.get_header_value("Content-Encoding");
    if (!encoding.empty() && encoding != "identity") {
      Refuse(request, response,
             {415,
              "invalid_request_error",
              "Content-Encoding: bodies are taken as they are, not packed",
              {}});
      return Handled::Handled;
    }
    if (IsPublic(request.path) || IsAllowed(context, request)) return Handled::Unhandled;
    Refuse(request, response, {401, "authentication_error", "the API key is missing or wrong", {}});
    return Handled::Handled;
  });
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (response.body.empty()) SendError(response, LibraryError(response.status, request, options));
  });
  server.set_exception_handler([](const auto&, auto& response, std::exception_ptr thrown) {
    std::string message = "unknown error";
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the message stays
    }
    SendError(response, {500, "server_error", message, {}});
  });
}

HttpServer::HttpServer(Engine& engine, const ServedModel& model, HttpOptions options)
    : impl_(std::make_unique<Impl>(engine, model, std::move(options))) {
  impl_->SetLimits();
  impl_->SetHandlers();
  AddCompletionRoutes(impl_->server, impl_->context);
  AddSlotRoutes(impl_->server, impl_->context);
  AddModelRoutes(impl_->server, impl_->context);
  AddStatusRoutes(impl_->server, impl_->context);
  AddSpeechRoutes(impl_->server, impl_->context);
}

HttpServer::~HttpServer() = default;

Status HttpServer::Bind() {
  const HttpOptions& options = impl_->options;
  if (options.port == 0) {
    impl_->port = impl_->server.bind_to_any_port(options.host);
  } else if (impl_->server.bind_to_port(options.host, options.port)) {
    impl_->port = options.port;
  }
  // The library lets 5 wait to be accepted; of more that come at once, some try again a second
  // later.
  if (impl_->port > 0) listen(impl_->listener, kMaxPending);
  if (impl_->port > 0) return Status();
  return IoError(
      fmt::format("host {}, port {}: cannot listen there: another program does, or the "
                  "address is not this machine's",
                  options.host, options.port));
}

int HttpServer::port() const { return impl_->port; }

void HttpServer::Run() { impl_->server.listen_after_bind(); }

void HttpServer::Stop() {
  impl_->context.is_stopping = true;
  impl_->server.stop();
}

}  // namespace varve::serve
