// The files of cli/report/template/, as bytes of the program.

#ifndef VARVE_CLI_REPORT_REPORT_TEMPLATE_H_
#define VARVE_CLI_REPORT_REPORT_TEMPLATE_H_

#include <string>
#include <string_view>

namespace varve::cli {

// The page, with {{title}}, {{style}}, {{tables}}, {{document}} and {{script}} where these go.
std::string_view ReportHtml();
std::string_view ReportStyle();
// The scripts, one behind the other.
std::string ReportScript();

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_REPORT_TEMPLATE_H_
