#include "cli/report/trace_picture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "cli/report/compare_report.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

// The view box; the page scales it.
constexpr double kWidth = 1000;
constexpr double kLeft = 62;    // room for the labels of steps
constexpr double kTop = 34;     // room for titles
constexpr double kMap = 690;    // width of the map
constexpr double kPanel = 790;  // where the panel of bytes begins
constexpr double kPanelWidth = 196;
constexpr double kBottom = 44;

// Colours are variables, so that the picture follows the reader's light or dark setting. One hue:
// the darker (on dark paper, the brighter) the more bits a page has.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --page: #faf9f6; --ink: #1e2329; --quiet: #5f6873; --card: #ffffff;
  --line: #dedad1; --full: #12497f; --half: #4a94cf; --quarter: #a9d3ee; --gone: #efece4; --drop: #d2452d; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --ink: #e7e6e2; --quiet: #9da6b0; --card: #1d2127; --line: #363d46;
    --full: #b9dcfa; --half: #5499d6; --quarter: #2d5880; --gone: #282d34; --drop: #f0694f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.65rem; line-height: 1.25; margin: 0 0 .4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p { margin: .3rem 0; } .quiet { color: var(--quiet); }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px;
  margin-top: 1rem; min-width: 0; }
.pick { position: absolute; opacity: 0; pointer-events: none; }
.choice { display: inline-block; min-width: 2.1rem; text-align: center; padding: 2px 8px; margin: 0 4px 6px 0;
  border: 1px solid var(--line); border-radius: 6px; cursor: pointer; font-size: .9rem; }
.view { display: none; overflow-x: auto; } svg { display: block; width: 100%; min-width: 640px; height: auto; }
svg text { font-size: 13px; fill: var(--ink); } svg .tick { fill: var(--quiet); font-size: 12px; }
.full { fill: var(--full); background: var(--full); } .half { fill: var(--half); background: var(--half); }
.quarter { fill: var(--quarter); background: var(--quarter); } .mean { fill: var(--full); background: var(--full); }
.gone { fill: var(--gone); background: var(--gone); } .drop { fill: var(--drop); background: var(--drop); }
svg .note { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.grid { stroke: var(--line); } .prompt { stroke: var(--ink); stroke-dasharray: 5 4; }
.held, .target, .f16 { fill: none; stroke-width: 2; } .held { stroke: var(--full); }
.target { stroke: var(--drop); stroke-dasharray: 5 4; } .f16 { stroke: var(--quiet); stroke-dasharray: 2 4; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: .2rem 0 .8rem; font-size: .9rem; }
.key i { display: inline-block; width: 1.1rem; height: .8rem; border-radius: 2px; margin-right: .4rem;
  border: 1px solid var(--line); vertical-align: -1px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: 4px 8px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--quiet); font-weight: 600; }
)css";

const char* ClassOf(double bits) {
  if (bits <= 0) return "drop";
  return bits >= 12 ? "full" : bits >= 6 ? "half" : "quarter";
}

// 1, 2 or 5 times a power of ten: about `count` of them up to `most`.
double TickStep(double most, double count) {
  const double raw = std::max(most, 1.0) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return std::max(1.0, factor * power);
  }
  return std::max(1.0, 10 * power);
}

// Where things are in one picture.
struct Frame {
  double most_position = 1;
  double row_height = 4;
  double height = 0;  // of the map

  Frame(const RetentionTrace& trace, const TraceGrid& grid) {
    const auto rows = static_cast<double>(std::max<size_t>(1, grid.steps.size()));
    height = std::clamp(rows * 7, 180.0, 520.0);
    row_height = height / rows;
    most_position = static_cast<double>(std::max<int64_t>(1, trace.end_position));
    for (const int64_t step : grid.steps) {
      most_position = std::max(most_position, static_cast<double>(step));
    }
  }
  double X(double position) const { return kLeft + kMap * std::min(position / most_position, 1.0); }
  double Y(double row) const { return kTop + row_height * row; }
};

std::string Axes(const RetentionTrace& trace, const TraceGrid& grid, const Frame& frame) {
  std::string svg;
  const double bottom = kTop + frame.height;
  const double step = TickStep(frame.most_position, 8);
  for (double at = 0; at <= frame.most_position; at += step) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4:.0f}</text>\n",
        frame.X(at), bottom, bottom + 5, bottom + 18, at);
  }
  svg += fmt::format(
      "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">position of the token"
      "</text>\n<text class=\"tick\" x=\"2\" y=\"{:.1f}\">tokens seen</text>\n",
      kLeft + kMap / 2, bottom + 36, kTop - 14);
  const size_t apart = std::max<size_t>(1, (grid.steps.size() + 9) / 10);
  for (size_t row = 0; row < grid.steps.size(); row += apart) {
    svg += fmt::format(
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
        frame.Y(static_cast<double>(row)) + std::max(frame.row_height / 2 + 4, 10.0),
        grid.steps[row]);
  }
  const auto end_of_prompt =
      std::find_if(grid.steps.begin(), grid.steps.end(),
                   [&](int64_t position) { return position > trace.prompt_tokens; });
  if (end_of_prompt != grid.steps.begin() && end_of_prompt != grid.steps.end()) {
    const double y = frame.Y(static_cast<double>(end_of_prompt - grid.steps.begin()));
    svg += fmt::format(
        "<line class=\"prompt\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"note\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">end of the "
        "prompt</text>\n",
        kLeft, y, kLeft + kMap, y, kLeft + kMap, y - 4);
  }
  return svg;
}

std::string Map(const RetentionTrace& trace, const TraceGrid& grid, const Frame& frame,
                bool is_mean) {
  // What the layers have seen; pages that are held lie on top of it.
  std::string svg = fmt::format("<path class=\"gone\" d=\"M{:.1f} {:.1f}", kLeft, kTop);
  for (size_t row = 0; row < grid.steps.size(); ++row) {
    svg += fmt::format("H{:.1f}V{:.1f}", frame.X(static_cast<double>(grid.steps[row])),
                       frame.Y(static_cast<double>(row + 1)));
  }
  svg += fmt::format("H{:.1f}Z\"><title>seen, and dropped</title></path>\n", kLeft);
  for (const TraceCell& cell : grid.cells) {
    const double x = frame.X(static_cast<double>(cell.first));
    const double y = frame.Y(static_cast<double>(cell.begin_row));
    const double width = frame.X(static_cast<double>(cell.first + cell.length)) - x;
    // Neighbours touch: anti-aliased seams would look like a grid that means nothing.
    const double height = frame.Y(static_cast<double>(cell.end_row)) - y;
    const std::string look = is_mean ? fmt::format("class=\"mean\" fill-opacity=\"{:.2f}\"",
                                                   std::clamp(cell.bits / 16, 0.06, 1.0))
                                     : fmt::format("class=\"{}\"", ClassOf(cell.bits));
    const std::string state = is_mean          ? fmt::format("{:.1f} bits", cell.bits)
                              : cell.rung == 0 ? "dropped"
                                               : trace.rungs[cell.rung];
    svg += fmt::format(
        "<rect {} x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"><title>tokens "
        "{}-{}, "
        "at {}-{}: {}, score {:.3g}</title></rect>\n",
        look, x, y, std::max(0.5, width - 0.3), height, cell.first, cell.first + cell.length - 1,
        grid.steps[cell.begin_row], grid.steps[cell.end_row - 1], EscapeHtml(state), cell.score);
  }
  return svg;
}

std::string Panel(const TraceGrid& grid, const Frame& frame) {
  double most = 1;
  for (const double bytes : grid.f16_bytes) most = std::max(most, bytes);
  for (const double bytes : grid.held_bytes) most = std::max(most, bytes);
  const auto line = [&](const std::vector<double>& values, const char* name) {
    std::string points;
    for (size_t row = 0; row < values.size(); ++row) {
      points += fmt::format("{:.1f},{:.1f} ", kPanel + kPanelWidth * values[row] / most,
                            frame.Y(static_cast<double>(row) + 0.5));
    }
    return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", name, points);
  };
  const double bottom = kTop + frame.height;
  std::string svg = fmt::format(
      "<text x=\"{0:.1f}\" y=\"{1:.1f}\">bytes held</text>"
      "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{2:.1f}\" x2=\"{0:.1f}\" y2=\"{3:.1f}\"/>"
      "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{3:.1f}\" x2=\"{4:.1f}\" y2=\"{3:.1f}\"/>"
      "<text class=\"tick\" x=\"{0:.1f}\" y=\"{5:.1f}\" text-anchor=\"middle\">0</text>"
      "<text class=\"tick\" x=\"{4:.1f}\" y=\"{5:.1f}\" text-anchor=\"end\">{6}</text>\n",
      kPanel, kTop - 14, kTop, bottom, kPanel + kPanelWidth, bottom + 18, HumanBytes(most));
  return svg + line(grid.f16_bytes, "f16") + line(grid.target_bytes, "target") +
         line(grid.held_bytes, "held");
}

std::string Picture(const RetentionTrace& trace, int layer) {
  const TraceGrid grid = MakeTraceGrid(trace, layer);
  const Frame frame(trace, grid);
  const bool is_mean = layer == kAllLayers;
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Pages kept, demoted and "
      "dropped "
      "over time, {}\" xmlns=\"http://www.w3.org/2000/svg\">\n",
      kWidth, kTop + frame.height + kBottom,
      is_mean ? std::string("mean over layers") : fmt::format("layer {}", layer));
  svg += Map(trace, grid, frame, is_mean) + Axes(trace, grid, frame) + Panel(grid, frame);
  return svg + "</svg>\n";
}

std::string Key(const RetentionTrace& trace, bool is_mean) {
  std::string html = "<div class=\"key\">";
  if (is_mean) {
    for (const int bits : {16, 12, 8, 4}) {
      html +=
          fmt::format("<span><i class=\"mean\" style=\"opacity:{:.2f}\"></i>{}</span>", bits / 16.0,
                      bits == 16 ? "16 bits, mean of the layers" : fmt::format("{}", bits));
    }
  } else {
    std::array<std::string, 3> names;
    for (size_t i = 1; i < trace.rungs.size(); ++i) {
      const double bits = RungBits(trace.rungs[i]);
      std::string& name = names[bits >= 12 ? 0 : bits >= 6 ? 1 : 2];
      name += (name.empty() ? "" : ", ") + trace.rungs[i];
    }
    constexpr std::array<const char*, 3> kClasses = {"full", "half", "quarter"};
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      html += fmt::format("<span><i class=\"{}\"></i>{}</span>", kClasses[i], EscapeHtml(names[i]));
    }
    html += "<span><i class=\"drop\"></i>dropped now</span>";
  }
  return html + "<span><i class=\"gone\"></i>gone</span></div>\n";
}

std::string Table(const std::vector<LayerSummary>& layers) {
  std::string html =
      "<div class=\"card wide\"><table><thead><tr><th>layer</th><th>plans</th><th>pages "
      "dropped</th>"
      "<th>demoted</th><th>held</th><th>target</th><th>f16</th><th>ratio</th><th>floors bind</th>"
      "</tr></thead><tbody>\n";
  for (const LayerSummary& layer : layers) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{:.2f}</td><td>{}</td></tr>\n",
        layer.layer, layer.plans, layer.dropped, layer.demoted,
        HumanBytes(static_cast<double>(layer.held_bytes)),
        HumanBytes(static_cast<double>(layer.target_bytes)),
        HumanBytes(static_cast<double>(layer.f16_bytes)), layer.ratio(), layer.floors_bound);
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string RenderTrace(const RetentionTrace& trace) {
  const std::vector<LayerSummary> layers = SummariseLayers(trace);
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Varve: what the cache kept</title>\n<style>";
  html += kStyle;
  for (size_t i = 0; i <= layers.size(); ++i) {
    html += fmt::format(
        "#v{0}:checked ~ .views .w{0} {{ display: block; }} #v{0}:checked ~ .choices .c{0} "
        "{{ background: var(--full); color: var(--card); }} #v{0}:focus-visible ~ .choices .c{0} "
        "{{ outline: 2px solid var(--drop); }}\n",
        i);
  }
  html += "</style></head><body><main>\n<h1>What the cache kept</h1>\n";
  html +=
      fmt::format("<p>{} with <code>{}</code>: {} tokens, {} of them prompt, in pages of {}.</p>\n",
                  EscapeHtml(trace.model), EscapeHtml(trace.plan), trace.end_position,
                  trace.prompt_tokens, trace.page_tokens);
  if (layers.empty()) {
    return html +
           "<p>No plan was carried out: the text stayed below the "
           "trigger.</p></main></body></html>\n";
  }
  html +=
      "<p class=\"quiet\">Each row of a picture is one moment at which the policy decided, from "
      "top "
      "to bottom; across it lie the tokens seen by then. Colour is what a page is stored in from "
      "then on. Point at a page for its score.</p>\n<div class=\"card\">\n";
  for (size_t i = 0; i <= layers.size(); ++i) {
    html += fmt::format("<input class=\"pick\" type=\"radio\" name=\"v\" id=\"v{}\"{}>", i,
                        i == 0 ? " checked" : "");
  }
  html += "\n<div class=\"choices\">layer ";
  for (size_t i = 0; i <= layers.size(); ++i) {
    html += fmt::format("<label class=\"choice c{0}\" for=\"v{0}\">{1}</label>", i,
                        i == 0 ? "mean" : fmt::format("{}", layers[i - 1].layer));
  }
  html += "</div>\n<div class=\"views\">\n";
  for (size_t i = 0; i <= layers.size(); ++i) {
    html += fmt::format("<div class=\"view w{}\">\n", i) + Key(trace, i == 0) +
            Picture(trace, i == 0 ? kAllLayers : layers[i - 1].layer) + "</div>\n";
  }
  html +=
      "</div>\n<p class=\"quiet\">Right: bytes of pages held after each plan (line), the target "
      "(dashed), and all tokens seen in f16 (dotted).</p></div>\n";
  html += "<h2>Per layer, at its last plan</h2>\n" + Table(layers);
  return html + "</main></body></html>\n";
}

}  // namespace varve::cli
