// RetentionPolicy and the table of policies: what evict= may name, what each needs, how it ranks
// pages and what it chooses. The grammar takes its words from here; the cache asks what a policy
// needs and never which one it is. A new policy is a row and its functions in policy_table.cc.
//
//   h2o, tova, snapkv   the pages with most attention mass stay: smoothed, of the last queries, or
//                       as it was when the prompt ended
//   window, random      the youngest pages stay, or any
//   demote   the highest level at which all pages together fit is the lowest that any page gets:
//            so the result is never worse than that rung for all. Pages stay above it as far as
//            there is room: of their steps down the one that costs least attention per byte saved
//            is taken until the rest fits. Cost of a level = (mass of the page + mean mass)^2 *
//            distortion: what a page contributes to the output is proportional to its mass, and
//            distortion is a squared error relative to the page's rows. The mean stands for what
//            nobody has asked for yet: a page without any mass is not free. Pages are dropped,
//            those of least cost first, only where the last level for all is not enough.
//
// Pure functions; rows live for the whole process; thread-safe.

#ifndef VARVE_RETENTION_POLICY_TABLE_H_
#define VARVE_RETENTION_POLICY_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "retention/retention.h"

namespace varve {

// What a policy may rank a page by.
struct PageView {
  int layer = 0;
  int64_t first_position = 0;
  double smooth = 0;   // attention mass, of the page's PageScore
  double last = 0;     // in the last bucket
  double frozen = -1;  // when the prompt ended; < 0: none
};

struct RetentionPolicy {
  std::string_view name;
  bool needs_mass = false;        // attention mass is collected for its layers
  bool needs_prompt_end = false;  // decides only once the prompt has ended, by its mass then
  bool uses_levels = false;       // demotes pages: RetentionRule::levels must be there
  double (*worth)(const PageView& page) = nullptr;
  // Sets the levels of `candidates`, pages that may be dropped or demoted, so that they take at
  // most `room` bytes if they can. `levels` has the present ones.
  void (*choose)(const RetentionRule& rule, const LayerState& state,
                 const std::vector<size_t>& candidates, uint64_t room,
                 std::vector<int>* levels) = nullptr;
};

const RetentionPolicy* FindPolicy(std::string_view name);  // null if there is none
std::vector<std::string_view> PolicyNames();

}  // namespace varve

#endif  // VARVE_RETENTION_POLICY_TABLE_H_
