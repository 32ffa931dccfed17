// The trace of `varve run --trace`: what the policies of a plan decided, plan by plan and page by
// page, as a file of JSON lines and as a report.
//
// The first line of a file describes the run, every further line is one plan of one layer:
//
//   {"varve_trace": 1, "plan": "h2o", "model": …, "num_layers": 10, "page_tokens": 64,
//    "prompt_tokens": 900, "end_position": 1155, "f16_row_bytes": 512}
//   {"step": 528, "layer": 2, "target_bytes": 77238, "held_bytes": 65536, "floors_bind": false,
//    "pages": [{"first": 0, "length": 64, "score": 0.31, "fate": "kept", "rung": "f16"}, …]}
//
// `step` is the position that the next token had; `pages` is the table as it was before, with the
// rung that a page has afterwards ("" where it was dropped).

#ifndef VARVE_CLI_REPORT_RETENTION_TRACE_H_
#define VARVE_CLI_REPORT_RETENTION_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "varve/cache.h"
#include "varve/status.h"

namespace varve::cli {

// A value; a page takes 24 bytes, so that long runs fit.
struct RetentionTrace {
  struct Page {
    int64_t first = 0;
    int32_t length = 0;
    float score = 0;
    PageFate fate = PageFate::kKept;
    uint8_t rung = 0;  // index into `rungs`
  };
  struct Event {
    int64_t step = 0;
    int layer = 0;
    uint64_t target_bytes = 0;
    uint64_t held_bytes = 0;
    bool floors_bind = false;
    std::vector<Page> pages;  // ascending
  };

  std::string plan;  // as typed
  std::string model;
  int num_layers = 0;
  int page_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t end_position = 0;
  uint64_t f16_row_bytes = 0;             // of one token in one layer
  std::vector<std::string> rungs = {""};  // the first one is that of a dropped page
  std::vector<Event> events;              // in the order of time

  // The index of a rung, which joins `rungs` if it is new.
  uint8_t RungIndex(std::string_view rung);
};

// Collects the events of one cache. Must outlive it.
class TraceRecorder : public RetentionObserver {
 public:
  void OnRetention(const RetentionEvent& event) override;
  // From here on the events of one sequence alone; without it, of all.
  void Follow(SequenceId sequence) { followed_ = sequence; }
  RetentionTrace& trace() { return trace_; }

 private:
  RetentionTrace trace_;
  std::optional<SequenceId> followed_;
};

// Fills in what a trace says about its cache; plan, model and prompt are the caller's.
Status DescribeTrace(const Cache& cache, SequenceId sequence, RetentionTrace* trace);

// The lines of the file, and back. Reading refuses what is out of range, with the line's number.
std::string PrintTrace(const RetentionTrace& trace);
Result<RetentionTrace> ParseTrace(std::string_view text);

// True if the file begins as a trace does.
bool IsTraceFile(const std::string& path);

// The report (report_page.h) if the path ends in ".html", else the lines.
Status WriteTrace(const std::string& path, const RetentionTrace& trace);

struct InspectTraceOptions {
  std::string path;
  std::string picture;  // HTML file, or empty
  std::string json;     // file, "-", or empty
};
// `varve inspect TRACE`: a row per layer; returns the exit code.
int InspectTrace(const InspectTraceOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_RETENTION_TRACE_H_
