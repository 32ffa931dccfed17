// Where each layer of a cache stands: which tokens were kept, demoted, dropped or folded.

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "cli/report/trace_document.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// What a trace says about the pages of one layer, by their first position.
struct LayerHistory {
  std::set<int64_t> demoted;
  const RetentionTrace::Event* last = nullptr;
};

std::map<int, LayerHistory> HistoryOf(const RetentionTrace& trace) {
  std::map<int, LayerHistory> layers;
  for (const RetentionTrace::Event& event : trace.events) {
    LayerHistory& layer = layers[event.layer];
    layer.last = &event;
    for (const RetentionTrace::Page& page : event.pages) {
      if (page.fate == PageFate::kDemoted) layer.demoted.insert(page.first);
    }
  }
  return layers;
}

// Spans of one layer, neighbours of one fate joined; what is left out was dropped.
class SpanList {
 public:
  void Add(int64_t begin, int64_t end, const std::string& fate, const std::string& rung) {
    begin = std::max(begin, end_);
    if (begin >= end) return;
    if (begin > end_) Push(end_, begin, "dropped", "");
    Push(begin, end, fate, rung);
  }
  Json Finish(int64_t end_tokens) {
    if (end_ < end_tokens) Push(end_, end_tokens, "dropped", "");
    return std::move(spans_);
  }

 private:
  void Push(int64_t begin, int64_t end, const std::string& fate, const std::string& rung) {
    end_ = end;
    if (!spans_.empty() && spans_.back()["fate"] == fate && spans_.back()["rung"] == rung) {
      spans_.back()["end"] = end;
      return;
    }
    spans_.push_back({{"begin", begin}, {"end", end}, {"fate", fate}, {"rung", rung}});
  }

  Json spans_ = Json::array();
  int64_t end_ = 0;
};

std::string RungOf(const RetentionTrace& trace, const LayerHistory& layer, int64_t first) {
  if (layer.last == nullptr) return "";
  for (const RetentionTrace::Page& page : layer.last->pages) {
    if (page.first == first) return trace.rungs[page.rung];
  }
  return "";
}

Json Frame(int page_tokens, int64_t prompt_tokens, int64_t end_tokens, Json layers) {
  return {{"page_tokens", page_tokens},
          {"prompt_tokens", prompt_tokens},
          {"end_tokens", end_tokens},
          {"layers", std::move(layers)}};
}

}  // namespace

Json SpansJson(const RetentionTrace& trace) {
  std::map<int, LayerHistory> history = HistoryOf(trace);
  Json layers = Json::array();
  for (int number = 0; number < trace.num_layers; ++number) {
    const LayerHistory& layer = history[number];
    SpanList spans;
    int64_t seen = 0;
    if (layer.last != nullptr) {
      for (const RetentionTrace::Page& page : layer.last->pages) {
        seen = page.first + page.length;
        if (page.fate == PageFate::kDropped) continue;
        const bool demoted = layer.demoted.contains(page.first);
        spans.Add(page.first, seen, demoted ? "demoted" : "kept", trace.rungs[page.rung]);
      }
    }
    // What came behind the last decision is still there.
    spans.Add(seen, trace.end_position, "kept", "");
    layers.push_back({{"layer", number}, {"spans", spans.Finish(trace.end_position)}});
  }
  return Frame(trace.page_tokens, trace.prompt_tokens, trace.end_position, std::move(layers));
}

Result<Json> SpansJson(const Cache& cache, SequenceId sequence, const RetentionTrace& trace) {
  std::map<int, LayerHistory> history = HistoryOf(trace);
  VARVE_ASSIGN_OR_RETURN(const int64_t end, cache.NextPosition(sequence));
  Json layers = Json::array();
  for (int number = 0; number < cache.shape().num_layers; ++number) {
    const LayerHistory& layer = history[number];
    VARVE_ASSIGN_OR_RETURN(const SequenceInfo info, cache.Describe(sequence, number));
    SpanList spans;
    for (const PageSpan& page : info.pages) {
      const char* fate = page.num_positions > page.num_rows            ? "folded"
                         : layer.demoted.contains(page.first_position) ? "demoted"
                                                                       : "kept";
      spans.Add(page.first_position, page.first_position + page.num_positions, fate,
                RungOf(trace, layer, page.first_position));
    }
    layers.push_back({{"layer", number}, {"spans", spans.Finish(end)}});
  }
  return Frame(cache.shape().page_tokens, trace.prompt_tokens, end, std::move(layers));
}

bool HasFates(const Json& spans) {
  for (const Json& layer : spans["layers"]) {
    for (const Json& span : layer["spans"]) {
      if (span["fate"] != "kept") return true;
    }
  }
  return false;
}

}  // namespace varve::cli
