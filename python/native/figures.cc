#include "figures.h"

#include <string>
#include <variant>

namespace py = pybind11;

namespace varve::python {
namespace {

py::list RungList(const std::vector<RungBytes>& rungs) {
  py::list list;
  for (const RungBytes& rung : rungs) {
    py::dict entry;
    entry["rung"] = rung.rung;
    entry["state"] = PageStateName(rung.state);
    entry["pages"] = rung.pages;
    entry["bytes"] = rung.bytes;
    list.append(entry);
  }
  return list;
}

py::dict StageDict(const StageCost& stage) {
  py::dict dict;
  dict["state"] = stage.state;
  dict["age"] = stage.age;
  dict["k"] = stage.k;
  dict["v"] = stage.v;
  dict["pages"] = stage.pages;
  dict["tokens"] = stage.tokens;
  dict["layer_bytes"] = stage.layer_bytes;
  dict["layer_payload"] = stage.layer_payload;
  return dict;
}

py::dict RangeDict(const RangeCost& range) {
  py::dict dict;
  dict["first_layer"] = range.first_layer;
  dict["last_layer"] = range.last_layer;
  py::list stages;
  for (const StageCost& stage : range.stages) stages.append(StageDict(stage));
  dict["stages"] = stages;
  dict["bytes"] = range.bytes;
  dict["payload"] = range.payload;
  dict["policy_bytes"] = range.policy_bytes;
  dict["has_budget"] = range.has_budget;
  return dict;
}

py::dict FallbackDict(const FallbackUse& use) {
  py::dict dict;
  dict["first_layer"] = use.first_layer;
  dict["last_layer"] = use.last_layer;
  dict["part"] = use.part == Part::kKey ? "k" : "v";
  dict["asked"] = use.asked;
  dict["used"] = use.used;
  dict["reason"] = use.reason;
  return dict;
}

py::list Texts(const std::vector<std::string>& texts) {
  py::list list;
  for (const std::string& text : texts) list.append(text);
  return list;
}

}  // namespace

py::dict StatsDict(const CacheStats& stats) {
  py::dict dict;
  dict["bytes_used"] = stats.bytes_used;
  dict["bytes_held"] = stats.bytes_held;
  dict["bytes_tables"] = stats.bytes_tables;
  dict["bytes_scratch"] = stats.bytes_scratch;
  dict["bytes_f16"] = stats.bytes_f16;
  dict["bytes_f16_seen"] = stats.bytes_f16_seen;
  dict["bytes_codebooks"] = stats.bytes_codebooks;
  dict["bytes_compressors"] = stats.bytes_compressors;
  dict["pages"] = stats.pages;
  dict["sequences"] = stats.sequences;
  dict["pages_sealed"] = stats.pages_sealed;
  dict["pages_demoted"] = stats.pages_demoted;
  dict["pages_dropped"] = stats.pages_dropped;
  dict["rungs"] = RungList(stats.rungs);
  return dict;
}

py::object PropertyValue(const Property& property) {
  return std::visit([](const auto& value) { return py::cast(value); }, property.value);
}

py::dict PropertiesDict(const std::vector<Property>& properties) {
  py::dict dict;
  for (const Property& property : properties) {
    dict[py::str(property.name)] = PropertyValue(property);
  }
  return dict;
}

py::dict CostDict(const PlanCost& cost) {
  py::dict dict;
  dict["bytes"] = cost.bytes;
  dict["payload"] = cost.payload;
  dict["bytes_f16"] = cost.bytes_f16;
  dict["idle_bytes"] = cost.idle_bytes;
  dict["page_tokens"] = cost.page_tokens;
  dict["codebook_bytes"] = cost.codebook_bytes;
  dict["compressor_bytes"] = cost.compressor_bytes;
  py::list ranges;
  for (const RangeCost& range : cost.ranges) ranges.append(RangeDict(range));
  dict["ranges"] = ranges;
  py::list fallbacks;
  for (const FallbackUse& use : cost.fallbacks) fallbacks.append(FallbackDict(use));
  dict["fallbacks"] = fallbacks;
  dict["notes"] = Texts(cost.notes);
  return dict;
}

py::dict FileInfoDict(const CacheFileInfo& info) {
  py::dict dict;
  dict["version"] = info.version;
  dict["shape"] = info.shape;
  dict["plan"] = info.plan;
  dict["model_fingerprint"] = info.model_fingerprint;
  dict["model_name"] = info.model_name;
  py::list sequences;
  for (const CacheFileInfo::Sequence& sequence : info.sequences) {
    py::dict entry;
    entry["next_position"] = sequence.next_position;
    entry["num_tokens"] = sequence.num_tokens;
    entry["live_rows"] = sequence.live_rows;
    entry["tokens_seen"] = sequence.tokens_seen;
    sequences.append(entry);
  }
  dict["sequences"] = sequences;
  dict["pages"] = info.pages;
  dict["pages_shared"] = info.pages_shared;
  dict["rungs"] = RungList(info.rungs);
  dict["file_bytes"] = info.file_bytes;
  dict["page_bytes"] = info.page_bytes;
  dict["bytes_f16"] = info.bytes_f16;
  dict["bytes_f16_seen"] = info.bytes_f16_seen;
  return dict;
}

}  // namespace varve::python
