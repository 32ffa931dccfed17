// The page of /metrics, in Prometheus' text format: our own names (varve_…), those of llama-server
// (llamacpp:…) and of vLLM (vllm:…), so that boards made for these work as they are. Pure.

#ifndef VARVE_SERVE_HTTP_METRICS_TEXT_H_
#define VARVE_SERVE_HTTP_METRICS_TEXT_H_

#include <string>

#include "serve/engine/engine_snapshot.h"

namespace varve::serve {

std::string MetricsText(const EngineSnapshot& snapshot);

}  // namespace varve::serve

#endif  // VARVE_SERVE_HTTP_METRICS_TEXT_H_
