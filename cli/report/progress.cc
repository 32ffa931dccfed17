#include "cli/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {
namespace {

constexpr double kRedrawIntervalS = 0.1;
constexpr double kLogIntervalS = 30;
constexpr int kBarCells = 24;

int TerminalColumns(std::FILE* file) {
  winsize size{};
  if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// "42 %  0:31 left"; no time before there is anything to tell it from.
std::string PercentAndTime(double fraction, double elapsed_s) {
  std::string text = fmt::format("{:3.0f} %", std::floor(100 * fraction));
  if (fraction > 0) {
    text += fmt::format("  {} left", HumanDuration(elapsed_s * (1 - fraction) / fraction));
  }
  return text;
}

}  // namespace

std::string HumanDuration(double seconds) {
  // Beyond a year nobody counts seconds; the cap also keeps the conversion defined.
  constexpr double kMaxSeconds = 366.0 * 24 * 3600;
  if (!(seconds > 0)) return "0:00";
  const auto whole = static_cast<int64_t>(std::ceil(std::min(seconds, kMaxSeconds)));
  const int64_t minutes = whole / 60;
  if (minutes < 60) return fmt::format("{}:{:02}", minutes, whole % 60);
  return fmt::format("{}:{:02}:{:02}", minutes / 60, minutes % 60, whole % 60);
}

std::string RenderProgress(std::string_view label, double fraction, double elapsed_s,
                           std::string_view note, int columns) {
  fraction = fraction > 0 ? std::min(fraction, 1.0) : 0.0;
  const auto filled = static_cast<size_t>(fraction * kBarCells);
  std::string line =
      fmt::format("{}  [{}{}] {}", label, std::string(filled, '#'),
                  std::string(kBarCells - filled, '.'), PercentAndTime(fraction, elapsed_s));
  if (!note.empty()) line += fmt::format("  {}", note);
  // Everything that callers write here is ASCII; a plan that is not may lose half a character.
  if (columns > 0 && line.size() > static_cast<size_t>(columns)) line.resize(columns);
  return line;
}

Progress::Progress(std::string label, double total, std::FILE* file)
    : label_(std::move(label)),
      total_(total),
      file_(file),
      terminal_(isatty(fileno(file)) != 0),
      next_draw_s_(terminal_ ? 0 : kLogIntervalS) {}

Progress::~Progress() { Clear(); }

void Progress::Update(double done, std::string_view note) {
  const double elapsed_s = since_start_.seconds();
  if (elapsed_s < next_draw_s_) return;
  const double fraction = total_ > 0 ? std::clamp(done / total_, 0.0, 1.0) : 0.0;
  if (terminal_) {
    const int columns = TerminalColumns(file_) - 1;
    WriteNote(fmt::format("\r{}\x1b[K", RenderProgress(label_, fraction, elapsed_s, note, columns)),
              file_);
    drawn_ = true;
    next_draw_s_ = elapsed_s + kRedrawIntervalS;
  } else {
    WriteNote(fmt::format("{}: {}{}{}\n", label_, PercentAndTime(fraction, elapsed_s),
                          note.empty() ? "" : "  ", note),
              file_);
    next_draw_s_ = elapsed_s + kLogIntervalS;
  }
  std::fflush(file_);
}

void Progress::Clear() {
  if (!drawn_) return;
  WriteNote("\r\x1b[K", file_);
  std::fflush(file_);
  drawn_ = false;
  next_draw_s_ = 0;
}

}  // namespace varve::cli
