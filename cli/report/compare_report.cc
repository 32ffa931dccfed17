#include "cli/report/compare_report.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {
namespace {

// Colours are variables, so that pictures and text follow the reader's light or dark setting.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --page: #faf9f6; --ink: #1e2329; --quiet: #5f6873; --card: #ffffff;
  --line: #dedad1; --base: #8d929a; --accent: #1f66b0; --mark: #fdebc4; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --ink: #e7e6e2; --quiet: #9da6b0; --card: #1d2127; --line: #363d46;
    --base: #818993; --accent: #6fabea; --mark: #51401a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.65rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .7rem; }
h3 { font-size: 1rem; margin: 0 0 .15rem; }
p { margin: .3rem 0; } .quiet { color: var(--quiet); }
code, .plan { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.pair { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  min-width: 0; }
.card h3 code { overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; margin-top: .5rem; }
svg text { font-size: 15px; fill: var(--ink); } svg .plan { font-size: 14px; }
svg .tick { font-size: 13px; fill: var(--quiet); }
svg .base { fill: var(--base); } svg .bar, svg .dot { fill: var(--accent); }
svg .grid { stroke: var(--line); } svg .track { stroke: var(--accent); stroke-width: 3; opacity: .35; }
.figures { color: var(--quiet); font-size: .9rem; margin-bottom: .6rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font-family: Georgia, "Times New Roman", serif; }
mark { background: var(--mark); color: inherit; border-radius: 2px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: 6px 8px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--quiet); font-weight: 600; white-space: normal; vertical-align: bottom; }
@media (max-width: 600px) { svg text { font-size: 17px; } svg .plan, svg .tick { font-size: 16px; } }
details { margin-top: 1rem; } summary { cursor: pointer; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0 0; font-size: .88rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
dt { color: var(--quiet); } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
)css";

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Length of the common beginning, at a code point.
size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  auto length = static_cast<size_t>(in_a - a.begin());
  while (length > 0 && ((length < a.size() && IsContinuation(a[length])) ||
                        (length < b.size() && IsContinuation(b[length])))) {
    --length;
  }
  return length;
}

std::string Figures(const ComparedPlan& plan, bool is_reference) {
  const std::string bytes = HumanBytes(static_cast<double>(plan.memory.bytes));
  if (is_reference)
    return fmt::format("{} · {} tokens/s", bytes, HumanFigure(plan.tokens_per_s, 1));
  const std::string line =
      fmt::format("{} · {} · {} tokens/s · KL {}", bytes, SizeAgainstF16(plan.memory.ratio, "×"),
                  HumanFigure(plan.tokens_per_s, 1), HumanDivergence(plan.kl_mean));
  if (plan.first_difference < 0) return line + " · the same text as f16";
  return line + fmt::format(" · differs at token {}", plan.first_difference + 1);
}

std::string TextCard(const ComparedPlan& plan, const ComparedPlan& reference) {
  const bool is_reference = &plan == &reference;
  const size_t same = is_reference ? plan.text.size() : CommonPrefix(reference.text, plan.text);
  const std::string_view text = plan.text;
  const size_t blank = std::min(text.find_first_not_of(" \n"), same);  // between prompt and text
  std::string body = EscapeHtml(text.substr(blank, same - blank));
  if (same < text.size()) body += "<mark>" + EscapeHtml(text.substr(same)) + "</mark>";
  return fmt::format(
      "<section class=\"card\"><h3><code>{}</code></h3><p class=\"figures\">{}</p>"
      "<p class=\"text\">{}</p></section>\n",
      EscapeHtml(plan.plan), Figures(plan, is_reference), body);
}

std::string Table(const std::vector<ComparedPlan>& plans) {
  std::string html =
      "<div class=\"card wide\"><table><thead><tr><th>plan</th><th>cache</th><th>bytes/token</th>"
      "<th>× smaller</th><th>KL mean</th><th>KL max</th><th>same best</th><th>differs at</th>"
      "<th>tokens/s</th></tr></thead><tbody>\n";
  for (const ComparedPlan& plan : plans) {
    const bool is_reference = &plan == &plans[0];
    html += fmt::format(
        "<tr><td><code>{}</code></td><td>{}</td><td>{:.0f}</td><td>{:.2f}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        EscapeHtml(plan.plan), HumanBytes(static_cast<double>(plan.memory.bytes)),
        plan.memory.bytes_per_token, plan.memory.ratio,
        is_reference ? "–" : HumanDivergence(plan.kl_mean),
        is_reference ? "–" : HumanDivergence(plan.kl_max),
        is_reference ? std::string("–") : HumanPercent(plan.same_best),
        plan.first_difference < 0 ? std::string("–") : fmt::format("{}", plan.first_difference + 1),
        HumanFigure(plan.tokens_per_s, 1));
  }
  return html + "</tbody></table></div>\n";
}

std::string Facts(const Comparison& comparison) {
  const auto fact = [](const char* name, const std::string& value) {
    return fmt::format("<dt>{}</dt><dd>{}</dd>", name, EscapeHtml(value));
  };
  return "<div class=\"card\"><dl>" + fact("model", comparison.model) +
         fact("shape", comparison.shape) + fact("sampling", comparison.sampling) +
         fact("machine", comparison.machine) + fact("version", "varve " + comparison.version) +
         fmt::format("<dt>command</dt><dd><code>{}</code></dd>", EscapeHtml(comparison.command)) +
         "</dl></div>\n";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    bool valid = lead < 0x80 || (lead >= 0xC2 && lead < 0xF5);
    for (size_t k = 1; k < length; ++k) {
      valid = valid && i + k < text.size() && IsContinuation(text[i + k]);
    }
    if (!valid) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    switch (text[i]) {
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
        out += text.substr(i, length);
    }
    i += length;
  }
  return out;
}

std::string RenderComparison(const Comparison& comparison) {
  const std::vector<ComparedPlan>& plans = comparison.plans;
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Varve: one prompt, several caches</title>\n<style>";
  html += kStyle;
  html += "</style></head><body><main>\n<h1>One prompt, several caches</h1>\n";
  html += fmt::format(
      "<p>What {} writes after the same {} tokens, each time with its keys and values stored by "
      "another plan.</p>\n",
      EscapeHtml(comparison.model), comparison.prompt_tokens);
  html += "<div class=\"pair\" style=\"margin-top:1.2rem\">\n";
  const std::string codebooks = ConstantsNote(plans);
  html += fmt::format(
      "<section class=\"card\"><h3>Memory</h3><p class=\"quiet\">Bytes of cache per token, "
      "everything counted{}; × is f16 ÷ this.{}</p>{}</section>\n",
      codebooks.empty() ? "" : " but constants of the model",
      codebooks.empty() ? "" : " The " + EscapeHtml(codebooks) + ".", MemoryPicture(plans));
  html += fmt::format(
      "<section class=\"card\"><h3>Quality</h3><p class=\"quiet\">Mean KL divergence from the f16 "
      "cache over {} tokens, in nats; left is better.</p>{}</section>\n</div>\n",
      comparison.scored_tokens, QualityPicture(plans));
  html += "<h2>Figures</h2>\n" + Table(plans);
  html +=
      "<p class=\"quiet\">KL, “same best” (the same most likely token) and speed are along the f16 "
      "text, all plans in turn at each token. One short run: <code>varve eval</code> and "
      "<code>varve bench decode</code> measure properly.</p>\n";
  html +=
      "<h2>The texts</h2>\n<p class=\"quiet\">What differs from the f16 text is marked, from the "
      "first difference on.</p>\n<div class=\"pair\" style=\"margin-top:.8rem\">\n";
  for (const ComparedPlan& plan : plans) html += TextCard(plan, plans[0]);
  html += "</div>\n";
  html += fmt::format(
      "<details class=\"card\"><summary>The prompt, {} tokens</summary><pre>{}</pre></details>\n",
      comparison.prompt_tokens, EscapeHtml(comparison.prompt));
  html += "<h2>How this was made</h2>\n" + Facts(comparison);
  return html + "</main></body></html>\n";
}

Status WriteComparison(const std::string& path, const Comparison& comparison) {
  const std::string html = RenderComparison(comparison);
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "wb"), close);
  if (!file) return IoError(fmt::format("\"{}\": cannot be opened for writing", path));
  const bool written = std::fwrite(html.data(), 1, html.size(), file.get()) == html.size();
  if (!written || std::fflush(file.get()) != 0) {
    return IoError(fmt::format("\"{}\": cannot be written", path));
  }
  return Status();
}

}  // namespace varve::cli
