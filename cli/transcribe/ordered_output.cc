#include "cli/transcribe/ordered_output.h"

namespace varve::cli {

void OrderedOutput::Add(size_t file, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (file == first_) {
    write_(text);
  } else {
    files_[file].waiting += text;
  }
}

void OrderedOutput::Done(size_t file) {
  const std::lock_guard lock(mutex_);
  files_[file].done = true;
  while (first_ < files_.size() && files_[first_].done) {
    if (++first_ == files_.size()) break;
    write_(files_[first_].waiting);
    files_[first_].waiting.clear();
  }
}

}  // namespace varve::cli
