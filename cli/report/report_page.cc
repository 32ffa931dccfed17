#include "cli/report/report_page.h"

#include <utility>

#include "cli/report/output.h"
#include "cli/report/report_tables.h"
#include "cli/report/report_template.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string EscapeJson(const Json& document) {
  const std::string json = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (const char c : json) {
    // Outside of strings JSON has none of these.
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

std::string RenderReport(std::string_view title, const Json& document) {
  const std::pair<std::string_view, std::string> parts[] = {
      {"{{title}}", EscapeHtml(title)},
      {"{{style}}", std::string(ReportStyle())},
      {"{{tables}}", StaticTables(title, document)},
      {"{{document}}", EscapeJson(document)},
      {"{{script}}", ReportScript()},
  };
  // Once through the template, so that a text which looks like a marker stays as it is.
  std::string page;
  std::string_view rest = ReportHtml();
  for (const auto& [marker, text] : parts) {
    const size_t at = rest.find(marker);
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + marker.size());
  }
  page += rest;
  return page;
}

Status WriteReport(const std::string& path, std::string_view title, const Json& document) {
  return WriteText(path, RenderReport(title, document));
}

}  // namespace varve::cli
