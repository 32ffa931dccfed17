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
// Only where every page is a function of the tokens before it: a plan with evict=, window= or fold=
// drops or merges pages by what comes later, so that a shorter prefix cannot be cut out of a longer
// one (Cacheable). Not thread-safe: belongs to the engine's thread, as the Cache does.

#ifndef VARVE_SERVE_PREFIX_PREFIX_CACHE_H_
#define VARVE_SERVE_PREFIX_PREFIX_CACHE_H_

#include <cstdint>
#include <map>
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
};

struct PrefixStats {
  uint64_t queries = 0;      // pages that were asked for,
  uint64_t hits = 0;         // and those that were there
  uint64_t pages = 0;        // in the tree now
  uint64_t leaves = 0;       // sequences that hold them
  uint64_t pages_added = 0;  // since creation
  uint64_t pages_evicted = 0;
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

  // Gives up the page of least value; false if all that is left is in use. Its memory is free at
  // once.
  Result<bool> EvictOne(double now_s);
  // Gives up the pages of a path, from its end, as far as nobody else has or uses them.
  Status Forget(std::span<const PageKey> keys);
  Status Clear();

  PrefixStats stats() const;
  std::vector<PrefixPath> Paths(double now_s) const;

 private:
  PrefixNode* FindNode(std::span<const PageKey> keys, size_t* num_pages) const;
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
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_PREFIX_PREFIX_CACHE_H_
