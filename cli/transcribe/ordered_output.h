// Output of several files that are worked on at once, as if they came one after the other: what
// belongs to the first unfinished file goes out as it comes, the rest waits. Any thread may call.

#ifndef VARVE_CLI_TRANSCRIBE_ORDERED_OUTPUT_H_
#define VARVE_CLI_TRANSCRIBE_ORDERED_OUTPUT_H_

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace varve::cli {

class OrderedOutput {
 public:
  // `write` is called by one thread at a time.
  OrderedOutput(size_t num_files, std::function<void(std::string_view)> write)
      : files_(num_files), write_(std::move(write)) {}

  void Add(size_t file, std::string_view text);
  // Nothing more comes of that file.
  void Done(size_t file);

 private:
  struct File {
    std::string waiting;
    bool done = false;
  };
  std::mutex mutex_;
  std::vector<File> files_;
  size_t first_ = 0;  // unfinished
  std::function<void(std::string_view)> write_;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_TRANSCRIBE_ORDERED_OUTPUT_H_
