#include "cli/report/report_tables.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// "kl_mean" is "kl mean".
std::string Words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return EscapeHtml(name);
}

std::string Cell(const Json& value) {
  if (value.is_null()) return "–";
  if (value.is_string()) return EscapeHtml(value.get_ref<const std::string&>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return EscapeHtml(value.dump());
}

bool IsRows(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& row) { return row.is_object(); });
}

// A text that is to be read, not looked up: it stands below its table.
bool IsLongText(const Json& value) {
  constexpr size_t kLongestCell = 160;
  return value.is_string() && value.get_ref<const std::string&>().size() > kLongestCell;
}

// Names of the rows' plain members, in the order in which they come first.
std::vector<std::string> Columns(const Json& rows) {
  std::vector<std::string> columns;
  for (const Json& row : rows) {
    for (const auto& [name, value] : row.items()) {
      if (value.is_structured() || IsLongText(value)) continue;
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  return columns;
}

std::string Table(const Json& rows) {
  const std::vector<std::string> columns = Columns(rows);
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& column : columns) html += "<th>" + Words(column) + "</th>";
  html += "</tr></thead><tbody>\n";
  for (const Json& row : rows) {
    html += "<tr>";
    for (const std::string& column : columns) {
      const auto found = row.find(column);
      const bool is_here = found != row.end() && !IsLongText(*found);
      html += "<td>" + (is_here ? Cell(*found) : std::string()) + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// One name for a row's part: the first text of the row.
std::string RowName(const Json& row) {
  for (const auto& [name, value] : row.items()) {
    if (value.is_string()) return EscapeHtml(value.get_ref<const std::string&>());
  }
  return "";
}

std::string Parts(const std::string& heading, const Json& object);

std::string Part(const std::string& heading, const Json& value) {
  if (value.is_object()) return Parts(heading, value);
  if (!IsRows(value)) return "";
  std::string html;
  const std::vector<std::string> columns = Columns(value);
  if (value.size() > 200) {
    return fmt::format("<p>{}: {} samples, which only the figure shows.</p>\n", heading,
                       value.size());
  }
  if (!columns.empty()) html += "<h3>" + heading + "</h3>\n" + Table(value);
  for (const Json& row : value) {
    for (const auto& [name, member] : row.items()) {
      const std::string inner = fmt::format("{} {}: {}", heading, RowName(row), Words(name));
      if (member.is_structured()) html += Part(inner, member);
      if (IsLongText(member)) {
        html += "<h3>" + inner + "</h3>\n<p class=\"story\">" + Cell(member) + "</p>\n";
      }
    }
  }
  return html;
}

std::string Parts(const std::string& heading, const Json& object) {
  std::string list;
  std::string parts;
  for (const auto& [name, value] : object.items()) {
    const std::string inner = heading.empty() ? Words(name) : heading + ": " + Words(name);
    if (value.is_structured()) {
      parts += Part(inner, value);
    } else {
      list += "<dt>" + Words(name) + "</dt><dd>" + Cell(value) + "</dd>";
    }
  }
  if (list.empty()) return parts;
  return (heading.empty() ? "" : "<h3>" + heading + "</h3>") + "<dl>" + list + "</dl>\n" + parts;
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string whole(text);
  whole = TakeWholeUtf8(&whole, true);
  std::string out;
  out.reserve(whole.size());
  for (const char c : whole) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string StaticTables(std::string_view title, const Json& document) {
  return "<h1>" + EscapeHtml(title) + "</h1>\n<p>The figures of this page need script; these are " +
         "the same data as tables.</p>\n" + Parts("", document);
}

}  // namespace varve::cli
