#include "cli/run/run_memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/report/output.h"
#include "cli/run/run_options.h"

namespace varve::cli {
namespace {

constexpr size_t kPrintedSamples = 8;

}  // namespace

MemorySample SampleOf(const Cache& cache, int64_t tokens) {
  const CacheFigures figures = FiguresOf(cache, tokens);
  MemorySample sample;
  sample.sequences = 1;
  sample.tokens = tokens;
  sample.bytes = figures.bytes;
  sample.bytes_f16 = figures.bytes_f16;
  sample.rungs = cache.Stats().rungs;
  return sample;
}

void MemoryTrack::Add(const MemorySample& sample) {
  peak_bytes_ = std::max(peak_bytes_, sample.bytes);
  sum_bytes_ += static_cast<double>(sample.bytes);
  sum_bytes_f16_ += static_cast<double>(sample.bytes_f16);
  last_ = sample;
  last_is_kept_ = added_++ % stride_ == 0;
  if (!last_is_kept_) return;
  if (samples_.size() == kMaxSamples) {
    // Every second one goes; this one would be the next of those that stay.
    for (size_t i = 0; 2 * i < samples_.size(); ++i) samples_[i] = samples_[2 * i];
    samples_.resize(kMaxSamples / 2);
    stride_ *= 2;
  }
  samples_.push_back(sample);
}

double MemoryTrack::mean_ratio() const { return sum_bytes_ > 0 ? sum_bytes_f16_ / sum_bytes_ : 0; }

void MemoryTrack::Print(std::FILE* out) const {
  if (samples_.empty()) return;
  TextTable table({">seconds", ">sequences", ">tokens", ">cache", ">f16"});
  const size_t count = std::min(samples_.size(), kPrintedSamples);
  for (size_t i = 0; i < count; ++i) {
    const size_t index = count == 1 ? 0 : i * (samples_.size() - 1) / (count - 1);
    const MemorySample& sample = samples_[index];
    table.AddRow({fmt::format("{:.1f}", sample.seconds), fmt::format("{}", sample.sequences),
                  fmt::format("{}", sample.tokens), HumanBytes(static_cast<double>(sample.bytes)),
                  HumanBytes(static_cast<double>(sample.bytes_f16))});
  }
  WriteNote(table.Render(UseColour(out)), out);
}

void MemoryTrack::AddRows(nlohmann::ordered_json* rows) const {
  for (const MemorySample& sample : samples_) {
    rows->push_back({{"role", "memory"},
                     {"seconds", sample.seconds},
                     {"sequences", sample.sequences},
                     {"tokens", sample.tokens},
                     {"cache_bytes", sample.bytes},
                     {"cache_bytes_f16", sample.bytes_f16}});
  }
}

nlohmann::ordered_json MemoryTrack::ByState() const {
  using Json = nlohmann::ordered_json;
  // What is young lies on top, as in a page's life.
  using Key = std::pair<int, std::string>;
  std::map<Key, size_t> index;
  const auto key = [](const RungBytes& rung) {
    return Key(-static_cast<int>(rung.state), rung.rung);
  };
  std::vector<MemorySample> shown = samples_;
  if (added_ > 0 && !last_is_kept_) shown.push_back(last_);
  for (const MemorySample& sample : shown) {
    for (const RungBytes& rung : sample.rungs) index[key(rung)] = 0;
  }
  Json series = Json::array();
  for (auto& [of, place] : index) {
    place = series.size();
    const auto state = static_cast<PageState>(-of.first);
    series.push_back({{"rung", of.second}, {"state", PageStateName(state)}});
  }
  Json samples = Json::array();
  for (const MemorySample& sample : shown) {
    std::vector<uint64_t> bytes(index.size());
    for (const RungBytes& rung : sample.rungs) bytes[index[key(rung)]] += rung.bytes;
    samples.push_back({{"tokens", sample.tokens},
                       {"f16_bytes", sample.bytes_f16},
                       {"held_bytes", sample.bytes},
                       {"bytes", bytes}});
  }
  return {{"series", std::move(series)}, {"samples", std::move(samples)}};
}

}  // namespace varve::cli
