#include "retention/policy_table.h"

#include <algorithm>
#include <optional>
#include <queue>

#include "base/random.h"

namespace varve {
namespace {

double SmoothMass(const PageView& page) { return page.smooth; }
double LastMass(const PageView& page) { return page.last; }
double FrozenMass(const PageView& page) { return page.frozen >= 0 ? page.frozen : page.smooth; }
double Youth(const PageView& page) { return static_cast<double>(page.first_position); }
// The same for a page of a layer, however often it is asked for.
double Chance(const PageView& page) {
  const uint64_t seed =
      static_cast<uint64_t>(page.first_position) * 1024 + static_cast<uint64_t>(page.layer);
  return static_cast<double>(SplitMix64(seed).Next() >> 11);
}

// Pages in descending worth, ties in favour of the younger one.
std::vector<size_t> ByWorth(std::span<const PageStat> pages,
                            const std::vector<size_t>& candidates) {
  std::vector<size_t> order = candidates;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return pages[a].worth != pages[b].worth ? pages[a].worth > pages[b].worth : a > b;
  });
  return order;
}

void FillByWorth(const RetentionRule&, const LayerState& state,
                 const std::vector<size_t>& candidates, uint64_t room, std::vector<int>* levels) {
  for (size_t index : ByWorth(state.pages, candidates)) {
    const PageStat& page = state.pages[index];
    const bool fits = page.bytes <= room;
    (*levels)[index] = fits ? page.level : kDropPage;
    if (fits) room -= page.bytes;
  }
}

// One step of a page down the ladder.
struct Step {
  double cost_per_byte = 0;
  size_t page = 0;
  int to = 0;
  uint64_t saved = 0;

  // The queue's top is the cheapest; of equal ones the oldest page.
  bool operator<(const Step& other) const {
    return cost_per_byte != other.cost_per_byte ? cost_per_byte > other.cost_per_byte
                                                : page > other.page;
  }
};

// The candidates of one layer on their way down.
class Demotion {
 public:
  Demotion(const RetentionRule& rule, const LayerState& state,
           const std::vector<size_t>& candidates, std::vector<int>* levels)
      : rule_(rule), state_(state), candidates_(candidates), levels_(*levels) {
    double mean = 0;
    for (size_t index : candidates) mean += state.pages[index].worth;
    mean /= static_cast<double>(std::max<size_t>(1, candidates.size()));
    bytes_.resize(state.pages.size());
    weight_.resize(state.pages.size());
    for (size_t index : candidates) {
      const double mass = state.pages[index].worth + mean;
      weight_[index] = mass * mass;
      bytes_[index] = state.pages[index].bytes;
      total_ += bytes_[index];
    }
  }

  // The highest level that makes all pages fit if none is above it, else the last.
  int UniformLevel(uint64_t room) const {
    const int last = static_cast<int>(rule_.levels.size()) - 1;
    for (int level = 0; level < last; ++level) {
      uint64_t bytes = 0;
      for (size_t index : candidates_) bytes += std::min(bytes_[index], BytesAt(index, level));
      if (bytes <= room) return level;
    }
    return last;
  }

  // Lowers pages, none below the level, until they fit.
  void LowerTo(int lowest, uint64_t room) {
    std::priority_queue<Step> steps;
    for (size_t index : candidates_) PushStep(index, lowest, &steps);
    while (total_ > room && !steps.empty()) {
      const Step step = steps.top();
      steps.pop();
      levels_[step.page] = step.to;
      bytes_[step.page] -= step.saved;
      total_ -= step.saved;
      PushStep(step.page, lowest, &steps);
    }
  }

  void Drop(uint64_t room) {
    std::vector<size_t> order;
    for (size_t index : candidates_) {
      if (!InFloor(rule_, state_, state_.pages[index])) order.push_back(index);
    }
    const auto cost = [&](size_t index) {
      return weight_[index] * (1 - DistortionAt(levels_[index])) /
             static_cast<double>(std::max<uint64_t>(1, bytes_[index]));
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return cost(a) < cost(b); });
    for (size_t index : order) {
      if (total_ <= room) return;
      levels_[index] = kDropPage;
      total_ -= bytes_[index];
    }
  }

 private:
  double DistortionAt(int level) const {
    return rule_.levels[static_cast<size_t>(level)].distortion;
  }
  uint64_t BytesAt(size_t index, int level) const {
    const PageStat& page = state_.pages[index];
    return page.keeps_level || !page.complete || level <= page.level
               ? page.bytes
               : rule_.levels[static_cast<size_t>(level)].bytes;
  }

  // The page's step of least cost per byte to a level above or at `lowest`, if it has one.
  void PushStep(size_t index, int lowest, std::priority_queue<Step>* steps) const {
    const PageStat& page = state_.pages[index];
    if (page.keeps_level || !page.complete) return;
    const double now = DistortionAt(levels_[index]);
    std::optional<Step> best;
    for (int to = levels_[index] + 1; to <= lowest; ++to) {
      const uint64_t bytes = rule_.levels[static_cast<size_t>(to)].bytes;
      if (bytes >= bytes_[index]) continue;
      const uint64_t saved = bytes_[index] - bytes;
      const double cost = weight_[index] * (DistortionAt(to) - now) / static_cast<double>(saved);
      if (!best || cost <= best->cost_per_byte) best = Step{cost, index, to, saved};
    }
    if (best) steps->push(*best);
  }

  const RetentionRule& rule_;
  const LayerState& state_;
  const std::vector<size_t>& candidates_;
  std::vector<int>& levels_;
  std::vector<uint64_t> bytes_;  // by page, as of now
  std::vector<double> weight_;   // by page
  uint64_t total_ = 0;           // of the candidates
};

void Demote(const RetentionRule& rule, const LayerState& state,
            const std::vector<size_t>& candidates, uint64_t room, std::vector<int>* levels) {
  Demotion demotion(rule, state, candidates, levels);
  demotion.LowerTo(demotion.UniformLevel(room), room);
  if (rule.may_drop) demotion.Drop(room);
}

constexpr RetentionPolicy kPolicies[] = {
    {.name = "h2o", .needs_mass = true, .worth = SmoothMass, .choose = FillByWorth},
    {.name = "window", .worth = Youth, .choose = FillByWorth},
    {.name = "random", .worth = Chance, .choose = FillByWorth},
    {.name = "tova", .needs_mass = true, .worth = LastMass, .choose = FillByWorth},
    {.name = "snapkv",
     .needs_mass = true,
     .needs_prompt_end = true,
     .worth = FrozenMass,
     .choose = FillByWorth},
    {.name = "demote",
     .needs_mass = true,
     .uses_levels = true,
     .worth = SmoothMass,
     .choose = Demote},
};

}  // namespace

const RetentionPolicy* FindPolicy(std::string_view name) {
  const auto* found = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                   [&](const RetentionPolicy& row) { return row.name == name; });
  return found == std::end(kPolicies) ? nullptr : found;
}

std::vector<std::string_view> PolicyNames() {
  std::vector<std::string_view> names;
  for (const RetentionPolicy& policy : kPolicies) names.push_back(policy.name);
  return names;
}

}  // namespace varve
