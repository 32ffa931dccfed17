// JSON as text that always is JSON: what is no UTF-8 (half a character that a stop text has cut
// off) becomes U+FFFD.

#ifndef VARVE_SERVE_API_JSON_TEXT_H_
#define VARVE_SERVE_API_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace varve::serve {

inline std::string JsonText(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace varve::serve

#endif  // VARVE_SERVE_API_JSON_TEXT_H_
