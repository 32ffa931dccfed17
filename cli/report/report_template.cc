#include "cli/report/report_template.h"

#include "base/embedded_file.h"

#define VARVE_EMBED_TEMPLATE(name, file) \
  VARVE_EMBED_FILE(varve_report_##name, VARVE_REPORT_TEMPLATE file)

VARVE_EMBED_TEMPLATE(html, "report.html");
VARVE_EMBED_TEMPLATE(style, "report.css");
VARVE_EMBED_TEMPLATE(page, "page.js");
VARVE_EMBED_TEMPLATE(figure, "figure.js");
VARVE_EMBED_TEMPLATE(chart, "chart.js");
VARVE_EMBED_TEMPLATE(gate, "gate.js");
VARVE_EMBED_TEMPLATE(frontier, "frontier.js");
VARVE_EMBED_TEMPLATE(plans, "plans.js");
VARVE_EMBED_TEMPLATE(memory, "memory.js");
VARVE_EMBED_TEMPLATE(speed, "speed.js");
VARVE_EMBED_TEMPLATE(tokens, "tokens.js");
VARVE_EMBED_TEMPLATE(trace, "trace.js");
VARVE_EMBED_TEMPLATE(lossless, "lossless.js");
VARVE_EMBED_TEMPLATE(texts, "texts.js");
VARVE_EMBED_TEMPLATE(main, "main.js");

namespace varve::cli {

std::string_view ReportHtml() {
  return EmbeddedText(varve_report_html_begin, varve_report_html_end);
}

std::string_view ReportStyle() {
  return EmbeddedText(varve_report_style_begin, varve_report_style_end);
}

std::string ReportScript() {
  std::string script;
  script += EmbeddedText(varve_report_page_begin, varve_report_page_end);
  script += EmbeddedText(varve_report_figure_begin, varve_report_figure_end);
  script += EmbeddedText(varve_report_chart_begin, varve_report_chart_end);
  script += EmbeddedText(varve_report_gate_begin, varve_report_gate_end);
  script += EmbeddedText(varve_report_frontier_begin, varve_report_frontier_end);
  script += EmbeddedText(varve_report_plans_begin, varve_report_plans_end);
  script += EmbeddedText(varve_report_memory_begin, varve_report_memory_end);
  script += EmbeddedText(varve_report_speed_begin, varve_report_speed_end);
  script += EmbeddedText(varve_report_tokens_begin, varve_report_tokens_end);
  script += EmbeddedText(varve_report_trace_begin, varve_report_trace_end);
  script += EmbeddedText(varve_report_lossless_begin, varve_report_lossless_end);
  script += EmbeddedText(varve_report_texts_begin, varve_report_texts_end);
  script += EmbeddedText(varve_report_main_begin, varve_report_main_end);
  return script;
}

}  // namespace varve::cli
