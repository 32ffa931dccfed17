#include "runtime/eval/text_windows.h"

#include <algorithm>

#include <fmt/format.h>

namespace varve {

Result<std::vector<std::vector<int32_t>>> CutWindows(std::span<const int32_t> tokens, int64_t ctx,
                                                     int32_t bos, int64_t max_windows) {
  if (ctx < 2) {
    return InvalidArgument(fmt::format("ctx {} < 2: a window has no token to score", ctx));
  }
  if (tokens.empty()) return InvalidArgument("the text is empty");
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  const int64_t stride = bos >= 0 ? ctx - 1 : ctx;
  int64_t num_windows = num_tokens / stride;
  if (num_windows == 0) {
    return InvalidArgument(fmt::format("the text has {} tokens, one window needs {} (ctx {}{})",
                                       num_tokens, stride, ctx,
                                       bos >= 0 ? " with the BOS token" : ""));
  }
  if (max_windows > 0) num_windows = std::min(num_windows, max_windows);
  std::vector<std::vector<int32_t>> windows(static_cast<size_t>(num_windows));
  for (auto& window : windows) {
    if (bos >= 0) window.push_back(bos);
    window.insert(window.end(), tokens.begin(), tokens.begin() + stride);
    tokens = tokens.subspan(static_cast<size_t>(stride));
  }
  return windows;
}

}  // namespace varve
