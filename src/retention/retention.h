// Retention: which pages of one layer stay, are demoted to a cheaper rung, or go.
//
// A pure function of page statistics: it knows no pages, no memory and no threads. Layers decide
// for themselves, so that their order is irrelevant. The budget is in bytes: what the layer's
// tokens would take in f16 divided by the ratio, or a share of budget=. Pages that touch the first
// `sink` or the last `recent` tokens, and the page that still grows, are the floor: never dropped.
// What else is done is up to the policy (policy_table.h).
//
// Where what must stay exceeds the budget, the decision says so.

#ifndef VARVE_RETENTION_RETENTION_H_
#define VARVE_RETENTION_RETENTION_H_

#include <cstdint>
#include <span>
#include <vector>

namespace varve {

struct RetentionPolicy;

// One way to store a page, from the one it has when full down to the cheapest.
struct RetentionLevel {
  uint64_t bytes = 0;     // of a whole page, as held
  double distortion = 0;  // expected squared error of a row relative to its energy, 0 … 1
};

struct RetentionRule {
  const RetentionPolicy* policy = nullptr;  // a row of the table; never null in a plan's rule
  double ratio = 3.5;
  uint64_t budget_bytes = 0;  // of the whole sequence; 0: the ratio decides
  int64_t sink_tokens = 32;
  int64_t recent_tokens = 256;
  int64_t trigger_tokens = 512;
  int64_t every_tokens = 16;
  double ema = 0.9;
  // Of demote: levels[0] is a page as the plan seals it. Descending bytes. Empty otherwise.
  std::vector<RetentionLevel> levels;
  // Of demote: false where pages in the last level meet the ratio by themselves.
  bool may_drop = true;

  bool operator==(const RetentionRule&) const = default;
};
inline bool operator==(const RetentionLevel& a, const RetentionLevel& b) {
  return a.bytes == b.bytes && a.distortion == b.distortion;
}

// The first position >= `position` at which decisions are made: a multiple of `every` from the
// trigger on.
int64_t NextDecisionPosition(const RetentionRule& rule, int64_t position);

struct PageStat {
  int64_t first_position = 0;
  int64_t end_position = 0;  // exclusive
  int live_rows = 0;
  bool complete = true;      // false: the page that still grows
  bool keeps_level = false;  // may be dropped, not demoted
  int level = 0;             // index into RetentionRule::levels
  uint64_t bytes = 0;        // as held
  double worth = 0;          // what the policy ranks by
};

struct LayerState {
  std::span<const PageStat> pages;  // ascending positions
  int64_t next_position = 0;        // = tokens seen
  uint64_t f16_row_bytes = 0;       // of one token in this layer
  // Pages that will be begun before the next decision takes effect.
  uint64_t upcoming_bytes = 0;
  uint64_t target_bytes = 0;  // for the layer, the decision's own included
};

inline constexpr int kDropPage = -1;

// Whether a page is never dropped.
bool InFloor(const RetentionRule& rule, const LayerState& state, const PageStat& page);

struct TokenSpan {
  int64_t start = 0;
  int64_t length = 0;
  bool operator==(const TokenSpan&) const = default;
};

struct RetentionDecision {
  // The level that each page is to have: its present one, a lower one, or kDropPage.
  std::vector<int> levels;
  std::vector<TokenSpan> kept;  // the pages that stay, neighbours merged
  int64_t kept_tokens = 0;
  int64_t dropped_tokens = 0;
  int64_t floor_tokens = 0;
  uint64_t bytes_after = 0;  // pages that stay, upcoming ones and the decision itself
  uint64_t floor_bytes = 0;  // of the pages that the policy could not touch
  uint64_t target_bytes = 0;
  bool floors_bind = false;  // what must stay exceeds the target

  uint64_t own_bytes() const { return kept.size() * sizeof(TokenSpan); }
  bool changes = false;  // some page is to go or to be demoted

  // Parts of all tokens seen: what the target asks for, what the floors raise it to, what whole
  // pages make of it.
  double target_keep = 0;
  double effective_keep = 0;
  double kept_part = 0;
};

RetentionDecision DecideRetention(const RetentionRule& rule, const LayerState& state);

}  // namespace varve

#endif  // VARVE_RETENTION_RETENTION_H_
