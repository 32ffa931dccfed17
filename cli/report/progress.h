// Progress of long commands on stderr: a bar with the time left on a terminal, one line that is
// overwritten; elsewhere a plain line now and then, so that a log of a long run is not silent.
//
//   Progress progress("eval ppl", total_tokens);
//   progress.Update(done, "window 3 of 8");   // as often as you like; it draws when it is time
//   progress.Clear();                         // before other output
//
// One thread; one at a time.

#ifndef VARVE_CLI_REPORT_PROGRESS_H_
#define VARVE_CLI_REPORT_PROGRESS_H_

#include <cstdio>
#include <string>
#include <string_view>

#include "base/timer.h"

namespace varve::cli {

// "0:09", "12:30", "2:05:00"; seconds round up, so that nothing unfinished has 0:00 left.
std::string HumanDuration(double seconds);

// One line of the bar, at most `columns` wide. `fraction` is cut to [0, 1]; the time left assumes
// that the rest takes as long per unit as what is done.
std::string RenderProgress(std::string_view label, double fraction, double elapsed_s,
                           std::string_view note, int columns);

class Progress {
 public:
  // Work is counted in units of the caller's choice. `file` is not owned.
  Progress(std::string label, double total, std::FILE* file = stderr);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(double done, std::string_view note = {});
  // Takes the bar off the screen; the next Update draws it again.
  void Clear();

 private:
  std::string label_;
  double total_;
  std::FILE* file_;
  bool terminal_;
  bool drawn_ = false;
  Timer since_start_;
  double next_draw_s_;  // on that timer
};

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_PROGRESS_H_
