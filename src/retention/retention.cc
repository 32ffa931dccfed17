#include "retention/retention.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <string>

#include "base/random.h"

namespace varve {
namespace {

struct PolicyName {
  std::string_view name;
  RetentionPolicy policy;
};
constexpr PolicyName kPolicies[] = {
    {"h2o", RetentionPolicy::kH2o},       {"window", RetentionPolicy::kWindow},
    {"random", RetentionPolicy::kRandom}, {"tova", RetentionPolicy::kTova},
    {"snapkv", RetentionPolicy::kSnapKv}, {"demote", RetentionPolicy::kDemote},
};

bool InFloor(const RetentionRule& rule, const PageStat& page, int64_t next_position) {
  return !page.complete || page.first_position < rule.sink_tokens ||
         page.end_position > next_position - rule.recent_tokens;
}

int64_t TokensOf(const PageStat& page) { return page.end_position - page.first_position; }

// Pages in descending worth, ties in favour of the younger one.
std::vector<size_t> ByWorth(std::span<const PageStat> pages,
                            const std::vector<size_t>& candidates) {
  std::vector<size_t> order = candidates;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return pages[a].worth != pages[b].worth ? pages[a].worth > pages[b].worth : a > b;
  });
  return order;
}

void FillByWorth(const LayerState& state, const std::vector<size_t>& candidates, uint64_t room,
                 std::vector<int>* levels) {
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

Step NextStep(const RetentionRule& rule, double mass, size_t index, int level, uint64_t bytes) {
  const double cost = mass * mass;
  const double now = rule.levels[static_cast<size_t>(level)].distortion;
  Step step{cost * (1 - now) / static_cast<double>(std::max<uint64_t>(bytes, 1)), index, kDropPage,
            bytes};
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
    steps.push(NextStep(rule, mass[index], index, state.pages[index].level, bytes[index]));
  }
  while (total > room && !steps.empty()) {
    const Step step = steps.top();
    steps.pop();
    (*levels)[step.page] = step.to;
    bytes[step.page] -= step.saved;
    total -= step.saved;
    if (step.to == kDropPage) continue;
    steps.push(NextStep(rule, mass[step.page], step.page, step.to, bytes[step.page]));
  }
}

uint64_t PlannedBytes(const RetentionRule& rule, const LayerState& state,
                      const RetentionPlan& plan) {
  uint64_t bytes = state.upcoming_bytes + plan.plan_bytes();
  for (size_t i = 0; i < state.pages.size(); ++i) {
    const int level = plan.levels[i];
    if (level == kDropPage) continue;
    bytes += level == state.pages[i].level ? state.pages[i].bytes
                                           : rule.levels[static_cast<size_t>(level)].bytes;
  }
  return bytes;
}

void Summarize(const RetentionRule& rule, const LayerState& state, RetentionPlan* plan) {
  for (size_t i = 0; i < state.pages.size(); ++i) {
    const PageStat& page = state.pages[i];
    if (plan->levels[i] == kDropPage) {
      plan->dropped_tokens += TokensOf(page);
      continue;
    }
    plan->kept_tokens += TokensOf(page);
    if (!plan->kept.empty() &&
        plan->kept.back().start + plan->kept.back().length == page.first_position) {
      plan->kept.back().length += TokensOf(page);
    } else {
      plan->kept.push_back({page.first_position, TokensOf(page)});
    }
  }
  plan->planned_bytes = PlannedBytes(rule, state, *plan);
  const double seen = static_cast<double>(std::max<int64_t>(1, state.next_position));
  const double row_bytes = static_cast<double>(std::max<uint64_t>(1, state.f16_row_bytes));
  plan->target_keep = std::min(1.0, static_cast<double>(state.target_bytes) / row_bytes / seen);
  plan->effective_keep =
      std::max(plan->target_keep, static_cast<double>(plan->floor_tokens) / seen);
  plan->kept_part = static_cast<double>(plan->kept_tokens) / seen;
}

}  // namespace

Result<RetentionPolicy> ParseRetentionPolicy(std::string_view name) {
  std::string known;
  for (const PolicyName& entry : kPolicies) {
    if (entry.name == name) return entry.policy;
    known += " " + std::string(entry.name);
  }
  return InvalidArgument("evict \"" + std::string(name) + "\": unknown policy; known:" + known);
}

bool NeedsMass(RetentionPolicy policy) {
  return policy != RetentionPolicy::kWindow && policy != RetentionPolicy::kRandom;
}

int64_t NextPlanPosition(const RetentionRule& rule, int64_t position) {
  const int64_t from = std::max(position, rule.trigger_tokens);
  return (from + rule.every_tokens - 1) / rule.every_tokens * rule.every_tokens;
}

double PageWorth(RetentionPolicy policy, int layer, const PageStat& page, double smooth,
                 double last, double frozen) {
  switch (policy) {
    case RetentionPolicy::kH2o:
    case RetentionPolicy::kDemote:
      return smooth;
    case RetentionPolicy::kTova:
      return last;
    case RetentionPolicy::kSnapKv:
      return frozen >= 0 ? frozen : smooth;
    case RetentionPolicy::kWindow:
      return static_cast<double>(page.first_position);
    case RetentionPolicy::kRandom:
      return static_cast<double>(SplitMix64(static_cast<uint64_t>(page.first_position) * 1024 +
                                            static_cast<uint64_t>(layer))
                                     .Next() >>
                                 11);
  }
  return 0;
}

RetentionPlan PlanRetention(const RetentionRule& rule, const LayerState& state) {
  RetentionPlan plan;
  plan.target_bytes = state.target_bytes;
  std::vector<size_t> candidates;
  uint64_t floor_spans = 0;
  int64_t floor_end = -1;
  for (size_t i = 0; i < state.pages.size(); ++i) {
    const PageStat& page = state.pages[i];
    plan.levels.push_back(page.level);
    if (InFloor(rule, page, state.next_position)) {
      plan.floor_bytes += page.bytes;
      plan.floor_tokens += TokensOf(page);
      floor_spans += page.first_position != floor_end ? 1 : 0;
      floor_end = page.end_position;
    } else {
      candidates.push_back(i);
    }
  }
  const uint64_t fixed = plan.floor_bytes + state.upcoming_bytes + floor_spans * sizeof(TokenSpan);
  plan.floors_bind = fixed > state.target_bytes;
  // A page that is kept adds one span at most.
  const uint64_t spans = candidates.size() * sizeof(TokenSpan);
  const uint64_t room = fixed + spans > state.target_bytes ? 0 : state.target_bytes - fixed - spans;
  if (rule.policy == RetentionPolicy::kDemote) {
    Demote(rule, state, candidates, room, &plan.levels);
  } else {
    FillByWorth(state, candidates, room, &plan.levels);
  }
  for (size_t i = 0; i < state.pages.size(); ++i) {
    plan.changes |= plan.levels[i] != state.pages[i].level;
  }
  Summarize(rule, state, &plan);
  return plan;
}

}  // namespace varve
