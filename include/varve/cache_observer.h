// Observers: a program's own eyes on attention and on what retention policies (evict=) decide.
//
// A cache calls them on the thread that called the cache, before that call returns. The data is
// valid during the call only. An observer must not call the cache. It is not owned: it must outlive
// the cache that it is given to (CacheOptions).

#ifndef VARVE_CACHE_OBSERVER_H_
#define VARVE_CACHE_OBSERVER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/export.h"
#include "varve/sequence_id.h"

namespace varve {

// One page of a sequence's table in one layer, as seen by an observer or by Describe.
struct PageSpan {
  int64_t first_position = 0;  // token span that the page stands for
  int64_t num_positions = 0;
  int num_rows = 0;       // rows stored
  int num_live_rows = 0;  // rows that attention still sees
};

// The exact attention mass of every page, from the log-sum-exp that attention keeps anyway.
struct AttentionMass {
  int layer = 0;
  SequenceId sequence;
  int64_t first_position = 0;  // of query 0; the others follow
  int num_queries = 0;
  int num_heads = 0;                // query heads
  std::span<const PageSpan> pages;  // the table as it was read
  // [num_queries, num_heads, pages.size()] f32. Each (query, head) row sums to 1; it is all zeros
  // for a query that sees nothing.
  const float* mass = nullptr;
};

// Told about every Attend of a cache, one request at a time, in pieces of at most 1024 queries.
class VARVE_API AttentionObserver {
 public:
  virtual ~AttentionObserver() = default;
  virtual void OnAttention(const AttentionMass& mass) = 0;
};

// What a retention policy has done to one page.
enum class PageFate { kKept, kDemoted, kDropped };

struct PageDecision {
  PageSpan page;
  double score = 0;  // what the policy ranks by: mean attention mass per query and head, or its own
  PageFate fate = PageFate::kKept;
  std::string rung;  // that the page has now; empty if it was dropped
};

struct RetentionEvent {
  SequenceId sequence;
  int layer = 0;
  int64_t next_position = 0;
  std::vector<PageDecision> pages;  // the table as it was before, ascending
  uint64_t target_bytes = 0;        // of the layer
  uint64_t held_bytes = 0;          // after
  bool floors_bind = false;         // what must stay exceeds the target
};

// Told when a decision is carried out.
class VARVE_API RetentionObserver {
 public:
  virtual ~RetentionObserver() = default;
  virtual void OnRetention(const RetentionEvent& event) = 0;
};

// Gets the lines of a plan with log_stats=1: one at the end of every step in which a policy dropped
// or demoted something, or packed pages were installed. On the calling thread.
class VARVE_API LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void OnLine(std::string_view line) = 0;  // without a newline
};

}  // namespace varve

#endif  // VARVE_CACHE_OBSERVER_H_
