// The pictures of the comparison: one row per plan, its name above, so that long plans have room
// and a phone can show it.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/report/compare_report.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

constexpr int kWidth = 480;  // of the view box; the page scales it
constexpr int kRowHeight = 50;
constexpr int kTop = 4;
constexpr double kBar = 300;         // the longest bar; its figures stand behind it
constexpr double kAxis = 250;        // likewise
constexpr size_t kLabelPoints = 48;  // that fit above a row
constexpr double kFloor = 1e-7;      // below this f32 logits say nothing

// Cut to what fits, at a code point.
std::string Label(std::string_view plan) {
  size_t points = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    if ((static_cast<unsigned char>(plan[i]) & 0xC0) == 0x80) continue;
    if (++points > kLabelPoints) return EscapeHtml(std::string(plan.substr(0, i)) + "…");
  }
  return EscapeHtml(plan);
}

std::string Open(const char* title, int height) {
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" "
      "xmlns=\"http://www.w3.org/2000/svg\">\n",
      kWidth, height, title);
}

std::string RowLabel(std::string_view plan, int y) {
  return fmt::format("<text class=\"plan\" x=\"0\" y=\"{}\">{}</text>\n", y + 15, Label(plan));
}

// Powers of ten that the axis spans.
struct LogAxis {
  int low = 0;
  int high = 0;
  double At(double kl) const {
    if (!std::isfinite(kl)) return kAxis;
    const double place = (std::log10(std::max(kl, kFloor)) - low) / (high - low);
    return kAxis * std::clamp(place, 0.0, 1.0);
  }
};

LogAxis AxisOf(const std::vector<ComparedPlan>& plans) {
  double least = HUGE_VAL;
  double most = 0;
  for (const ComparedPlan& plan : plans) {
    if (!std::isfinite(plan.kl_mean) || plan.kl_mean <= 0) continue;
    least = std::min(least, std::max(plan.kl_mean, kFloor));
    most = std::max(most, std::max(plan.kl_mean, kFloor));
  }
  if (most <= 0) return {-5, -1};
  LogAxis axis{static_cast<int>(std::floor(std::log10(least))),
               static_cast<int>(std::ceil(std::log10(most)))};
  while (axis.high - axis.low < 3) axis.high - axis.low == 1 ? --axis.low : ++axis.high;
  return axis;
}

// "10⁻⁵", "0.01", "1": short enough for neighbours on the axis.
std::string Tick(int decade) {
  static constexpr const char* kDigits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  if (decade >= -2 && decade <= 2) return fmt::format("{:g}", std::pow(10.0, decade));
  std::string tick = decade < 0 ? "10⁻" : "10";
  for (const char digit : fmt::format("{}", std::abs(decade))) tick += kDigits[digit - '0'];
  return tick;
}

}  // namespace

std::string HumanDivergence(double kl) {
  if (std::isnan(kl)) return "–";
  if (!std::isfinite(kl)) return "not finite";
  if (kl <= 0) return "0";
  if (kl < 1e-4) return fmt::format("{:.1e}", kl);
  return kl < 0.1 ? fmt::format("{:.2g}", kl) : fmt::format("{:.2f}", kl);
}

std::string HumanPercent(double share) {
  return std::isnan(share) ? "–" : fmt::format("{:.1f} %", 100 * share);
}

std::string HumanFigure(double value, int decimals) {
  return std::isnan(value) ? "–" : fmt::format("{:.{}f}", value, decimals);
}

std::string MemoryPicture(const std::vector<ComparedPlan>& plans) {
  double most = 1;
  for (const ComparedPlan& plan : plans) most = std::max(most, plan.memory.bytes_per_token);
  const int height = kTop + kRowHeight * static_cast<int>(plans.size());
  std::string svg = Open("Bytes of cache per token, per plan", height);
  int y = kTop;
  for (const ComparedPlan& plan : plans) {
    const double width = std::max(2.0, kBar * plan.memory.bytes_per_token / most);
    svg += RowLabel(plan.plan, y);
    svg += fmt::format(
        "<rect class=\"{}\" x=\"0\" y=\"{}\" width=\"{:.1f}\" height=\"16\" rx=\"3\"/>\n",
        &plan == &plans[0] ? "base" : "bar", y + 22, width);
    svg +=
        fmt::format("<text class=\"value\" x=\"{:.1f}\" y=\"{}\">{} · {:.2f}×</text>\n", width + 8,
                    y + 35, HumanBytes(plan.memory.bytes_per_token), plan.memory.ratio);
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

std::string QualityPicture(const std::vector<ComparedPlan>& plans) {
  const LogAxis axis = AxisOf(plans);
  const int bottom = kTop + kRowHeight * static_cast<int>(plans.size());
  std::string svg =
      Open("Mean KL divergence from the f16 cache, per plan, logarithmic", bottom + 28);
  for (int decade = axis.low; decade <= axis.high; ++decade) {
    const double x = 6 + kAxis * (decade - axis.low) / (axis.high - axis.low);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n"
        "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"{4}\">{5}</text>\n",
        x, kTop + 20, bottom, bottom + 18, decade == axis.low ? "start" : "middle", Tick(decade));
  }
  int y = kTop;
  for (const ComparedPlan& plan : plans) {
    svg += RowLabel(plan.plan, y);
    if (&plan == &plans[0]) {
      svg += fmt::format("<text class=\"value\" x=\"0\" y=\"{}\">the reference</text>\n", y + 35);
    } else if (std::isnan(plan.kl_mean)) {
      svg += fmt::format("<text class=\"value\" x=\"0\" y=\"{}\">not measured</text>\n", y + 35);
    } else {
      const double x = 6 + axis.At(plan.kl_mean);
      svg += fmt::format(
          "<line class=\"track\" x1=\"6\" y1=\"{0}\" x2=\"{1:.1f}\" y2=\"{0}\"/>\n"
          "<circle class=\"dot\" cx=\"{1:.1f}\" cy=\"{0}\" r=\"6\"/>\n"
          "<text class=\"value\" x=\"{2:.1f}\" y=\"{3}\">{4} · {5:.1f} % same best</text>\n",
          y + 30, x, x + 13, y + 35, HumanDivergence(plan.kl_mean), 100 * plan.same_best);
    }
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace varve::cli
