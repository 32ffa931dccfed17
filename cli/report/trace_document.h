// What became of the tokens of a cache, as members of a report's document (report_page.h):
// `trace`, pages over time as a policy decided, and `spans`, where each layer stands at the end.

#ifndef VARVE_CLI_REPORT_TRACE_DOCUMENT_H_
#define VARVE_CLI_REPORT_TRACE_DOCUMENT_H_

#include <nlohmann/json.hpp>

#include "cli/report/retention_trace.h"
#include "cli/report/trace_grid.h"
#include "varve/cache.h"

namespace varve::cli {

// {"page_tokens", "prompt_tokens", "end_tokens", "rungs", "layers": [a row per layer with a
// policy],
//  "views": [{"layer": null for the mean, "steps", "held_bytes", "target_bytes", "f16_bytes",
//             "cells": [[first, length, begin_row, end_row, rung, bits, score], …]}, …]}
nlohmann::ordered_json TraceJson(const RetentionTrace& trace);

// {"layer", "plans", "dropped_pages", …}, as `inspect` writes it too.
nlohmann::ordered_json LayerRow(const LayerSummary& layer);

// {"page_tokens", "prompt_tokens", "end_tokens", "layers": [{"layer", "spans": [{"begin", "end",
//  "fate": "kept" | "demoted" | "dropped" | "folded", "rung"}, …]}, …]}
//
// Spans ascend and cover [0, end_tokens). `rung` is "" where nobody says it. From a trace alone:
// layers without a policy are kept.
nlohmann::ordered_json SpansJson(const RetentionTrace& trace);
// From what a cache holds; `trace` is of this sequence and tells demoted pages, or has no events.
Result<nlohmann::ordered_json> SpansJson(const Cache& cache, SequenceId sequence,
                                         const RetentionTrace& trace);

// True if not all tokens of all layers are just kept.
bool HasFates(const nlohmann::ordered_json& spans);

// The document of `run --trace FILE.html` and `inspect --picture`.
nlohmann::ordered_json TraceDocument(const RetentionTrace& trace);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_TRACE_DOCUMENT_H_
