#include "cli/report/trace_document.h"

#include <cmath>

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// To three digits: scores are for the eye, and a long trace has many.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 2);
  return std::round(value / unit) * unit;
}

Json ViewJson(const RetentionTrace& trace, int layer) {
  const TraceGrid grid = MakeTraceGrid(trace, layer);
  Json cells = Json::array();
  for (const TraceCell& cell : grid.cells) {
    cells.push_back({cell.first, cell.length, cell.begin_row, cell.end_row, cell.rung,
                     std::round(cell.bits * 100) / 100, Rounded(cell.score)});
  }
  return {{"layer", layer == kAllLayers ? Json(nullptr) : Json(layer)},
          {"steps", grid.steps},
          {"held_bytes", grid.held_bytes},
          {"target_bytes", grid.target_bytes},
          {"f16_bytes", grid.f16_bytes},
          {"cells", std::move(cells)}};
}

}  // namespace

Json LayerRow(const LayerSummary& layer) {
  return {{"layer", layer.layer},
          {"plans", layer.plans},
          {"dropped_pages", layer.dropped},
          {"demoted_pages", layer.demoted},
          {"held_bytes", layer.held_bytes},
          {"target_bytes", layer.target_bytes},
          {"f16_bytes", layer.f16_bytes},
          {"ratio", layer.ratio()},
          {"floors_bound", layer.floors_bound}};
}

Json TraceJson(const RetentionTrace& trace) {
  Json layers = Json::array();
  Json views = Json::array();
  for (const LayerSummary& layer : SummariseLayers(trace)) {
    if (views.empty()) views.push_back(ViewJson(trace, kAllLayers));
    layers.push_back(LayerRow(layer));
    views.push_back(ViewJson(trace, layer.layer));
  }
  return {{"page_tokens", trace.page_tokens}, {"prompt_tokens", trace.prompt_tokens},
          {"end_tokens", trace.end_position}, {"rungs", trace.rungs},
          {"layers", std::move(layers)},      {"views", std::move(views)}};
}

Json TraceDocument(const RetentionTrace& trace) {
  Json one = {{"plan", trace.plan}, {"spans", SpansJson(trace)}, {"trace", TraceJson(trace)}};
  return {{"kind", "trace"},
          {"schema", 1},
          {"version", VARVE_VERSION},
          {"model", {{"name", trace.model}, {"layers", trace.num_layers}}},
          {"tokens", trace.end_position},
          {"prompt_tokens", trace.prompt_tokens},
          {"cases", Json::array({std::move(one)})}};
}

}  // namespace varve::cli
