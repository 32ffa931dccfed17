#include "retention/retention.h"

#include <algorithm>

#include "base/align.h"
#include "retention/policy_table.h"

namespace varve {
namespace {

int64_t TokensOf(const PageStat& page) { return page.end_position - page.first_position; }

uint64_t BytesAfter(const RetentionRule& rule, const LayerState& state,
                    const RetentionDecision& decision) {
  uint64_t bytes = state.upcoming_bytes + decision.own_bytes();
  for (size_t i = 0; i < state.pages.size(); ++i) {
    const int level = decision.levels[i];
    if (level == kDropPage) continue;
    bytes += level == state.pages[i].level ? state.pages[i].bytes
                                           : rule.levels[static_cast<size_t>(level)].bytes;
  }
  return bytes;
}

void Summarize(const RetentionRule& rule, const LayerState& state, RetentionDecision* decision) {
  for (size_t i = 0; i < state.pages.size(); ++i) {
    const PageStat& page = state.pages[i];
    if (decision->levels[i] == kDropPage) {
      decision->dropped_tokens += TokensOf(page);
      continue;
    }
    decision->kept_tokens += TokensOf(page);
    if (!decision->kept.empty() &&
        decision->kept.back().start + decision->kept.back().length == page.first_position) {
      decision->kept.back().length += TokensOf(page);
    } else {
      decision->kept.push_back({page.first_position, TokensOf(page)});
    }
  }
  decision->bytes_after = BytesAfter(rule, state, *decision);
  const double seen = static_cast<double>(std::max<int64_t>(1, state.next_position));
  const double row_bytes = static_cast<double>(std::max<uint64_t>(1, state.f16_row_bytes));
  decision->target_keep = std::min(1.0, static_cast<double>(state.target_bytes) / row_bytes / seen);
  decision->effective_keep =
      std::max(decision->target_keep, static_cast<double>(decision->floor_tokens) / seen);
  decision->kept_part = static_cast<double>(decision->kept_tokens) / seen;
}

}  // namespace

bool InFloor(const RetentionRule& rule, const LayerState& state, const PageStat& page) {
  return !page.complete || page.first_position < rule.sink_tokens ||
         page.end_position > state.next_position - rule.recent_tokens;
}

int64_t NextDecisionPosition(const RetentionRule& rule, int64_t position) {
  const int64_t from = std::max(position, rule.trigger_tokens);
  return AlignUp(from, rule.every_tokens);
}

RetentionDecision DecideRetention(const RetentionRule& rule, const LayerState& state) {
  RetentionDecision decision;
  decision.target_bytes = state.target_bytes;
  std::vector<size_t> candidates;
  uint64_t floor_spans = 0;
  int64_t floor_end = -1;
  for (size_t i = 0; i < state.pages.size(); ++i) {
    const PageStat& page = state.pages[i];
    decision.levels.push_back(page.level);
    const bool in_floor = InFloor(rule, state, page);
    if (in_floor) decision.floor_tokens += TokensOf(page);
    const bool can_drop = !in_floor && rule.may_drop;
    const bool can_demote = rule.policy->uses_levels && page.complete && !page.keeps_level;
    if (can_drop || can_demote) {
      candidates.push_back(i);
      continue;
    }
    decision.floor_bytes += page.bytes;
    floor_spans += page.first_position != floor_end ? 1 : 0;
    floor_end = page.end_position;
  }
  const uint64_t fixed =
      decision.floor_bytes + state.upcoming_bytes + floor_spans * sizeof(TokenSpan);
  // A page that is kept adds one span at most.
  const uint64_t spans = candidates.size() * sizeof(TokenSpan);
  const uint64_t room = fixed + spans > state.target_bytes ? 0 : state.target_bytes - fixed - spans;
  rule.policy->choose(rule, state, candidates, room, &decision.levels);
  for (size_t i = 0; i < state.pages.size(); ++i) {
    decision.changes |= decision.levels[i] != state.pages[i].level;
  }
  Summarize(rule, state, &decision);
  decision.floors_bind = decision.bytes_after > state.target_bytes;
  return decision;
}

}  // namespace varve
