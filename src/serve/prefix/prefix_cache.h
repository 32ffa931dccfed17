// PrefixCache: pages of conversations that have been computed, kept for whoever begins the same
// way.
//
// A tree of page keys (page_keys.h): a path from the root is a prefix of some conversation, a node
// stands for one page of it, in all layers. The bytes are pages of the Cache itself: every leaf
// holds a sequence with the whole path, and sequences share the pages of their common nodes. So a
// prefix is stored once, in whatever rung the plan has put it, and taking it is a Fork, which
// copies no page.
//
// Room is made page by page, from the leaves: a page without those before it is worth nothing. The
// page with the least value goes first, where value = cost × chance ÷ bytes:
//   cost    microseconds that computing the page took; later pages attend to more and cost more
//   chance  of being asked for again: uses, each of them counting half after half_life_s
//   bytes   what the page holds
// LRU, which looks at the last use alone, is there to be compared with (EvictionOrder::kLru).
//
// Pages that nobody has used for a while are put to rest (Cache::Rest), a few at a time, and may
// leave for a tier (prefix_idle.cc). A page rests only when no path that it is on is in use, and
// then in all of them: so there are never two forms of it for long.
//
// Only where every page is a function of the tokens before it: a plan with evict=, window= or fold=
// drops or merges pages by what comes later, so that a shorter prefix cannot be cut out of a longer
// one (Cacheable). Not thread-safe: belongs to the engine's thread, as the Cache does.

#ifndef VARVE_SERVE_PREFIX_PREFIX_CACHE_H_
#define VARVE_SERVE_PREFIX_PREFIX_CACHE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "serve/prefix/page_keys.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve::serve {

enum class EvictionOrder { kValue, kLru };

struct PrefixOptions {
  EvictionOrder order = EvictionOrder::kValue;
  double half_life_s = 600;
  double page_bytes = 1;  // of one page in all layers, by the plan
  double idle_s = 0;      // without use, until pages are put to rest; 0: never
  bool packs = false;     // the plan has pack=: what workers have done is taken over, too
  double spill_s = 0;     // without use, until FindToSpill has a path; 0: never
  // Before a page is given up for want of room: a sequence that has it, its number and its key.
  std::function<void(SequenceId, size_t, const PageKey&)> before_eviction = {};
};

struct PrefixStats {
  uint64_t queries = 0;      // pages that were asked for,
  uint64_t hits = 0;         // and those that were there
  uint64_t pages = 0;        // in the tree now
  uint64_t leaves = 0;       // sequences that hold them
  uint64_t pages_added = 0;  // since creation
  uint64_t pages_evicted = 0;
  uint64_t pages_rested = 0;
  uint64_t pages_spilled = 0;  // left because a tier has them
};

// kUnimplemented names the clause because of which prefixes of this plan cannot be shared.
Status Cacheable(const Plan& plan);

class PrefixNode;

// One conversation in the tree, for people who look at it.
struct PrefixPath {
  int64_t num_pages = 0;
  int64_t shared_pages = 0;  // of those, with other conversations
  double uses = 0;
  bool pinned = false;
  SequenceId sequence;  // the cache's own; has all of its pages
};

class PrefixCache {
 public:
  // `cache` is not owned and must outlive this.
  PrefixCache(Cache& cache, const PrefixOptions& options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // How many of the pages are there, in a row from the first.
  size_t Find(std::span<const PageKey> keys) const;

  // A sequence with the longest prefix of `keys` that there is, the caller's to free; none where
  // there is no page. The last node is pinned until Unpin. Counts a use of every page.
  struct Hit {
    SequenceId sequence;
    size_t num_pages = 0;
    PrefixNode* pin = nullptr;
  };
  Result<std::optional<Hit>> Take(std::span<const PageKey> keys, double now_s);

  // Keeps the first keys.size() pages of `source`, which must have them; shares them. cost_us is of
  // each of those that are new. The last node is pinned; `old_pin`, if any, is given back.
  Result<PrefixNode*> Keep(SequenceId source, std::span<const PageKey> keys, double cost_us,
                           double now_s, PrefixNode* old_pin);
  // Pins the longest prefix that there is; null where there is none.
  PrefixNode* Pin(std::span<const PageKey> keys);
  void Unpin(PrefixNode* node);
  // Somebody has needed the node until now.
  void Touch(PrefixNode& node, double now_s);

  // Gives up the page of least value; false if all that is left is in use. Its memory is free at
  // once.
  Result<bool> EvictOne(double now_s);
  // Pages that EvictOne can give up one after the other: those without use since `time_s`, and
  // those of paths to which nobody has come back. Counts no further than `most`.
  size_t NumUnusedSince(double time_s, size_t most) const;
  // Gives up the pages of a path, from its end, as far as nobody else has or uses them.
  Status Forget(std::span<const PageKey> keys);
  Status Clear();

  // --- what nobody uses (prefix_idle.cc) ---

  // Puts pages to rest that have not been used for idle_s, up to max_pages of them; how many it has
  // looked at. One that finds no memory is tried again a second later.
  size_t RestIdle(double now_s, size_t max_pages);
  // A path of which nobody has used the last pages for spill_s.
  struct IdlePath {
    PrefixNode* leaf = nullptr;
    SequenceId sequence;
    std::vector<PageKey> keys;  // of all its pages
    size_t first_page = 0;      // from here on they are idle, and of no other path
    size_t next_page = 0;       // of ContinueSpill; else first_page
  };
  std::optional<IdlePath> FindToSpill(double now_s);
  // All paths, from their first page on; those that were used last first.
  std::vector<IdlePath> AllPaths() const;
  // Gives up the pages of the path from first_page on.
  Status Spill(const IdlePath& path);
  // Pages before this one have been handed to the tiers.
  static void ContinueSpill(const IdlePath& path, size_t next_page);
  // It is not known yet what the tiers have: FindToSpill has the same path again in a moment.
  void AwaitSpill(double now_s);
  // All that a tier did not have have been handed over: again from the first, not before some
  // seconds, more each time.
  static void PostponeSpill(const IdlePath& path, double now_s);
  // When there may be something to put to rest or to spill; infinity: not before the next use.
  double NextIdleWork() const { return std::min(next_rest_s_, next_spill_s_); }

  PrefixStats stats() const;
  std::vector<PrefixPath> Paths(double now_s) const;

 private:
  PrefixNode* FindNode(std::span<const PageKey> keys, size_t* num_pages) const;
  // Whether a page that no other path has was used more than once.
  bool WasTakenUp(const PrefixNode& leaf) const;
  std::vector<PageKey> KeysOf(const PrefixNode& leaf) const;
  static void AddPins(PrefixNode& node, int count);
  void LookAgainAt(double time_s);
  bool RestNode(PrefixNode& node);
  void TakePacked(double now_s);
  double Value(const PrefixNode& node, double now_s) const;
  double Uses(const PrefixNode& node, double now_s) const;
  void Use(PrefixNode& node, double now_s);
  Status RemoveLeaf(PrefixNode* leaf);
  void SetSequence(PrefixNode& node, std::optional<SequenceId> sequence);
  // A sequence with exactly the first num_pages pages of `source`.
  Result<SequenceId> ForkPages(SequenceId source, size_t num_pages);

  Cache& cache_;
  PrefixOptions options_;
  int64_t page_tokens_;
  std::unique_ptr<PrefixNode> root_;
  std::set<PrefixNode*> leaves_;  // that hold a sequence
  PrefixStats stats_;
  double next_rest_s_ = std::numeric_limits<double>::infinity();
  double next_spill_s_ = std::numeric_limits<double>::infinity();
  double take_packed_s_ = std::numeric_limits<double>::infinity();
  int takes_left_ = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_PREFIX_PREFIX_CACHE_H_
