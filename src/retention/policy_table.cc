#include "retention/policy_table.h"

#include <algorithm>
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

// One step of a page down the ladder, or off it.
struct Step {
  double cost_per_byte = 0;
  size_t page = 0;
  int to = kDropPage;
  uint64_t saved = 0;

  // The queue's top is the cheapest; of equal ones the oldest page.
  bool operator<(const Step& other) const {
    return cost_per_byte != other.cost_per_byte ? cost_per_byte > other.cost_per_byte
                                                : page > other.page;
  }
};

Step NextStep(const RetentionRule& rule, double mass, size_t index, const PageStat& page, int level,
              uint64_t bytes) {
  const double cost = mass * mass;
  const double now = rule.levels[static_cast<size_t>(level)].distortion;
  Step step{cost * (1 - now) / static_cast<double>(std::max<uint64_t>(bytes, 1)), index, kDropPage,
            bytes};
  if (page.exact) return step;
  for (size_t to = static_cast<size_t>(level) + 1; to < rule.levels.size(); ++to) {
    if (rule.levels[to].bytes >= bytes) continue;
    const uint64_t saved = bytes - rule.levels[to].bytes;
    const double per_byte = cost * (rule.levels[to].distortion - now) / static_cast<double>(saved);
    if (per_byte <= step.cost_per_byte) step = {per_byte, index, static_cast<int>(to), saved};
  }
  return step;
}

void Demote(const RetentionRule& rule, const LayerState& state,
            const std::vector<size_t>& candidates, uint64_t room, std::vector<int>* levels) {
  std::priority_queue<Step> steps;
  std::vector<uint64_t> bytes(state.pages.size());
  std::vector<double> mass(state.pages.size());
  uint64_t total = 0;
  double mean = 0;
  for (size_t index : candidates) {
    mean += state.pages[index].worth / static_cast<double>(candidates.size());
  }
  for (size_t index : candidates) {
    bytes[index] = state.pages[index].bytes;
    mass[index] = state.pages[index].worth + mean;
    total += bytes[index];
    steps.push(NextStep(rule, mass[index], index, state.pages[index], state.pages[index].level,
                        bytes[index]));
  }
  while (total > room && !steps.empty()) {
    const Step step = steps.top();
    steps.pop();
    (*levels)[step.page] = step.to;
    bytes[step.page] -= step.saved;
    total -= step.saved;
    if (step.to == kDropPage) continue;
    steps.push(NextStep(rule, mass[step.page], step.page, state.pages[step.page], step.to,
                        bytes[step.page]));
  }
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
