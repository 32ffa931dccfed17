#include "serve/api/api_error.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "serve/api/json_text.h"

namespace varve::serve {

ApiError InvalidRequest(std::string message, std::string param) {
  return {400, "invalid_request_error", std::move(message), std::move(param)};
}

ApiError FromStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return {};
    case StatusCode::kInvalidArgument:
      return InvalidRequest(status.message());
    case StatusCode::kOutOfMemory:
    case StatusCode::kFailedPrecondition:
      return {503, "unavailable_error", status.message(), {}};
    case StatusCode::kNotFound:
      return {404, "not_found_error", status.message(), {}};
    case StatusCode::kUnimplemented:
      return {501, "not_supported_error", status.message(), {}};
    default:
      return {500, "server_error", status.ToString(), {}};
  }
}

std::string ErrorJson(const ApiError& error) {
  nlohmann::ordered_json body = {{"message", error.message},
                                 {"type", error.type},
                                 {"param", nullptr},
                                 {"code", error.http_status}};
  if (!error.param.empty()) body["param"] = error.param;
  for (const auto& [name, value] : error.figures) body[name] = value;
  return JsonText({{"error", std::move(body)}});
}

}  // namespace varve::serve
