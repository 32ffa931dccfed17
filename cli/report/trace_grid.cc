#include "cli/report/trace_grid.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace varve::cli {
namespace {

constexpr int kTypicalDim = 128;
constexpr int kTypicalPageTokens = 64;

double BitsOf(const std::string& rung) {
  Result<double> bytes = RungBytesPerRow(rung, Part::kKey, kTypicalDim, kTypicalPageTokens);
  return bytes.ok() ? *bytes * 8 / kTypicalDim : 16.0;
}

std::vector<double> BitsOfRungs(const RetentionTrace& trace) {
  std::vector<double> bits;
  for (const std::string& rung : trace.rungs) bits.push_back(RungBits(rung));
  return bits;
}

// A page as one layer has it.
struct HeldPage {
  int32_t length = 0;
  uint8_t rung = 0;  // 0: dropped at this moment
  float score = 0;
};
using LayerPages = std::map<int64_t, HeldPage>;  // by first position

// The events of each moment; a moment has at most one event of a layer.
std::vector<std::vector<const RetentionTrace::Event*>> CutMoments(const RetentionTrace& trace) {
  std::vector<std::vector<const RetentionTrace::Event*>> moments;
  std::set<int> layers;
  for (const RetentionTrace::Event& event : trace.events) {
    if (moments.empty() || moments.back().front()->step != event.step ||
        layers.contains(event.layer)) {
      moments.emplace_back();
      layers.clear();
    }
    moments.back().push_back(&event);
    layers.insert(event.layer);
  }
  return moments;
}

class GridBuilder {
 public:
  GridBuilder(const RetentionTrace& trace, int layer)
      : trace_(trace), layer_(layer), bits_(BitsOfRungs(trace)) {
    for (const RetentionTrace::Event& event : trace.events) {
      if (layer == kAllLayers || event.layer == layer) pages_[event.layer];
    }
  }

  TraceGrid Build() {
    for (const auto& events : CutMoments(trace_)) {
      grid_.steps.push_back(events.front()->step);
      for (auto& [layer, pages] : pages_) {
        std::erase_if(pages, [](const auto& page) { return page.second.rung == 0; });
      }
      for (const RetentionTrace::Event* event : events) Take(*event);
      AddRow();
    }
    return std::move(grid_);
  }

 private:
  void Take(const RetentionTrace::Event& event) {
    const auto found = pages_.find(event.layer);
    if (found == pages_.end()) return;
    found->second.clear();
    for (const RetentionTrace::Page& page : event.pages) {
      const bool dropped = page.fate == PageFate::kDropped;
      found->second[page.first] = {page.length, dropped ? uint8_t{0} : page.rung, page.score};
    }
    held_[event.layer] = static_cast<double>(event.held_bytes);
    target_[event.layer] = static_cast<double>(event.target_bytes);
  }

  // The pages of this moment join those of the moment before where nothing has changed.
  void AddRow() {
    const size_t row = grid_.steps.size() - 1;
    const bool is_single = layer_ != kAllLayers;
    std::map<int64_t, TraceCell> now;
    for (const auto& [layer, pages] : pages_) {
      for (const auto& [first, page] : pages) {
        TraceCell& cell = now[first];
        cell.first = first;
        cell.length = std::max(cell.length, page.length);
        cell.bits += bits_[page.rung] / static_cast<double>(pages_.size());
        cell.score += page.score / static_cast<float>(pages_.size());
        if (is_single) cell.rung = page.rung;
      }
    }
    std::map<int64_t, size_t> open;
    for (auto& [first, cell] : now) {
      if (!is_single && cell.bits <= 0) continue;
      const auto before = open_.find(first);
      TraceCell* same = before == open_.end() ? nullptr : &grid_.cells[before->second];
      if (same != nullptr && same->length == cell.length && same->rung == cell.rung &&
          std::lround(4 * same->bits) == std::lround(4 * cell.bits)) {
        same->end_row = row + 1;
        same->score = cell.score;
        open[first] = before->second;
        continue;
      }
      cell.begin_row = row;
      cell.end_row = row + 1;
      open[first] = grid_.cells.size();
      grid_.cells.push_back(cell);
    }
    open_ = std::move(open);
    const auto sum = [](const std::map<int, double>& values) {
      double total = 0;
      for (const auto& [layer, value] : values) total += value;
      return total;
    };
    grid_.held_bytes.push_back(sum(held_));
    grid_.target_bytes.push_back(sum(target_));
    grid_.f16_bytes.push_back(static_cast<double>(grid_.steps.back()) *
                              static_cast<double>(trace_.f16_row_bytes * held_.size()));
  }

  const RetentionTrace& trace_;
  const int layer_;
  const std::vector<double> bits_;       // [rungs]
  std::map<int, LayerPages> pages_;      // by layer
  std::map<int, double> held_, target_;  // by layer, of its last event
  std::map<int64_t, size_t> open_;       // first position to cell, of the last row
  TraceGrid grid_;
};

}  // namespace

double RungBits(const std::string& rung) {
  if (rung.empty()) return 0;
  const size_t slash = rung.find('/');
  if (slash == std::string::npos) return BitsOf(rung);
  return (BitsOf(rung.substr(0, slash)) + BitsOf(rung.substr(slash + 1))) / 2;
}

std::vector<LayerSummary> SummariseLayers(const RetentionTrace& trace) {
  std::map<int, LayerSummary> layers;
  for (const RetentionTrace::Event& event : trace.events) {
    LayerSummary& layer = layers[event.layer];
    layer.layer = event.layer;
    ++layer.plans;
    layer.floors_bound += event.floors_bind ? 1 : 0;
    for (const RetentionTrace::Page& page : event.pages) {
      layer.dropped += page.fate == PageFate::kDropped ? 1 : 0;
      layer.demoted += page.fate == PageFate::kDemoted ? 1 : 0;
    }
    layer.held_bytes = event.held_bytes;
    layer.target_bytes = event.target_bytes;
    layer.f16_bytes = static_cast<uint64_t>(event.step) * trace.f16_row_bytes;
  }
  std::vector<LayerSummary> list;
  for (const auto& [number, layer] : layers) list.push_back(layer);
  return list;
}

TraceGrid MakeTraceGrid(const RetentionTrace& trace, int layer) {
  return GridBuilder(trace, layer).Build();
}

}  // namespace varve::cli
