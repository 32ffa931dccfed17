// ApiError: an error as clients of OpenAI's API and of llama-server read it:
//   {"error": {"message", "type", "param", "code"}}
// and the HTTP status that goes with it.

#ifndef VARVE_SERVE_API_API_ERROR_H_
#define VARVE_SERVE_API_API_ERROR_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "varve/status.h"

namespace varve::serve {

struct ApiError {
  int http_status = 0;  // 0: no error
  std::string type;     // "invalid_request_error", …
  std::string message;
  std::string param;                                          // the field; may be empty
  std::vector<std::pair<std::string, int64_t>> figures = {};  // llama-server's, beside these

  bool ok() const { return http_status == 0; }
};

ApiError InvalidRequest(std::string message, std::string param = {});

// What an error of the engine is to a client: what it asked for and cannot be is 400, what there is
// no room for now is 503, the rest is 500.
ApiError FromStatus(const Status& status);

// The body of the answer.
std::string ErrorJson(const ApiError& error);

}  // namespace varve::serve

#endif  // VARVE_SERVE_API_API_ERROR_H_
