// The document of a report as plain tables, for readers without script: what the page shows where
// nothing draws. No figure is computed here, the document has them all.

#ifndef VARVE_CLI_REPORT_REPORT_TABLES_H_
#define VARVE_CLI_REPORT_REPORT_TABLES_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace varve::cli {

// For text between tags and in attributes. Bytes that are no UTF-8 become U+FFFD.
std::string EscapeHtml(std::string_view text);

// HTML: a list of the document's plain members, and a table per array of objects, of those members
// that are no arrays; long texts stand below it. Objects in objects have a part of their own, so
// that everything is there but long series of samples, which are counted.
std::string StaticTables(std::string_view title, const nlohmann::ordered_json& document);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_REPORT_TABLES_H_
