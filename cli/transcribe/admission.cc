#include "cli/transcribe/admission.h"

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {

Status Admission::Enter(const std::string& name, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  if (max_bytes_ != 0 && bytes > max_bytes_) {
    return FailedPrecondition(fmt::format(
        "{}: needs about {} for its caches, more than --max-memory {}; a plan of fewer bits (--kv) "
        "or fewer beams (--beam) needs less",
        name, HumanBytes(static_cast<double>(bytes)), HumanBytes(static_cast<double>(max_bytes_))));
  }
  changed_.wait(lock, [&] { return max_bytes_ == 0 || bytes_ + bytes <= max_bytes_; });
  bytes_ += bytes;
  return Status();
}

void Admission::Leave(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    bytes_ -= bytes;
  }
  changed_.notify_all();
}

}  // namespace varve::cli
