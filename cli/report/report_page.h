// The report: one page for everything that the program measures. A static template (HTML, CSS and
// script, cli/report/template/) reads a document of JSON that is embedded in the page; a section
// appears when its data is in the document. The page stands alone: no network, nothing beside it.
//
// `kind` says where a document comes from: "gate" is the summary.json of `varve gate`, "compare" is
// of `varve run --report` (compare_report.h), "trace" of `varve run --trace` (trace_document.h).
// They share their members; docs/format/report.md lists them. null is what was not measured.

#ifndef VARVE_CLI_REPORT_REPORT_PAGE_H_
#define VARVE_CLI_REPORT_REPORT_PAGE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::cli {

// The page. Whatever the document's texts are, they stay texts.
std::string RenderReport(std::string_view title, const nlohmann::ordered_json& document);

// Writes the page; a regular file appears whole or not at all.
Status WriteReport(const std::string& path, std::string_view title,
                   const nlohmann::ordered_json& document);

// JSON for a <script> element: nothing in it ends the element or opens a comment.
std::string EscapeJson(const nlohmann::ordered_json& document);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_REPORT_PAGE_H_
