// `varve serve --check`: the server asks itself, over HTTP, as a client would.

#ifndef VARVE_SERVE_HTTP_SELF_CHECK_H_
#define VARVE_SERVE_HTTP_SELF_CHECK_H_

#include <functional>
#include <string>

#include "varve/status.h"

namespace varve::serve {

// Health, models, the same completion twice (greedy: equal texts, the second with pages of the
// first), metrics. `say` gets a line per question; the error is the first answer that is wrong.
Status CheckServer(const std::string& host, int port, const std::string& key,
                   const std::function<void(const std::string&)>& say);

}  // namespace varve::serve

#endif  // VARVE_SERVE_HTTP_SELF_CHECK_H_
