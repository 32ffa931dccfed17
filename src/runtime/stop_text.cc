#include "runtime/stop_text.h"

#include <algorithm>
#include <utility>

namespace varve {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopText::Next(std::string_view piece) {
  if (stopped_) return {};
  waiting_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = waiting_.find(stop);
    if (at >= end) continue;
    end = at;
    found_ = stop;
  }
  if (end != std::string::npos) {
    stopped_ = true;
    return std::exchange(waiting_, {}).substr(0, end);
  }
  size_t kept = 0;  // the longest end of the text that begins a stop
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, waiting_.size()); n > kept; --n) {
      if (waiting_.ends_with(std::string_view(stop).substr(0, n))) kept = n;
    }
  }
  std::string shown = waiting_.substr(0, waiting_.size() - kept);
  waiting_.erase(0, shown.size());
  return shown;
}

std::string StopText::Finish() { return std::exchange(waiting_, {}); }

}  // namespace varve
