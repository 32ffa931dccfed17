// What pages of a retention trace have become, over time: the content of the report's pictures of a
// trace, for all layers with a policy and for their mean, and the sums per layer.

#ifndef VARVE_CLI_REPORT_TRACE_GRID_H_
#define VARVE_CLI_REPORT_TRACE_GRID_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/retention_trace.h"

namespace varve::cli {

// One layer that had a plan; bytes are those of its last one.
struct LayerSummary {
  int layer = 0;
  int64_t plans = 0;
  int64_t dropped = 0;  // pages
  int64_t demoted = 0;
  int64_t floors_bound = 0;  // plans
  uint64_t held_bytes = 0;
  uint64_t target_bytes = 0;
  uint64_t f16_bytes = 0;  // of all tokens seen by then

  double ratio() const {
    return held_bytes == 0 ? 0 : static_cast<double>(f16_bytes) / static_cast<double>(held_bytes);
  }
};
// Ascending; layers without a plan are not there.
std::vector<LayerSummary> SummariseLayers(const RetentionTrace& trace);

// Bits per value of a rung as a trace names it: "q8_0/q4_0" is the mean of K and V, "" is 0, a name
// that is not in this build 16.
double RungBits(const std::string& rung);

// A page over consecutive moments in the same state.
struct TraceCell {
  int64_t first = 0;
  int32_t length = 0;
  size_t begin_row = 0;
  size_t end_row = 0;  // exclusive
  double bits = 0;     // per value, mean over layers; 0 in the row in which the page is dropped
  uint8_t rung = 0;    // of a single layer; 0 where dropped
  float score = 0;     // the last one
};
struct TraceGrid {
  std::vector<int64_t> steps;    // [rows], the position of each moment
  std::vector<TraceCell> cells;  // pages that are held; and, of a single layer, drops
  // [rows]: sums over the layers
  std::vector<double> held_bytes;
  std::vector<double> target_bytes;
  std::vector<double> f16_bytes;
};
inline constexpr int kAllLayers = -1;
// The picture's content for a layer, or for the mean of all layers that had a plan.
TraceGrid MakeTraceGrid(const RetentionTrace& trace, int layer);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_TRACE_GRID_H_
