// PrefixNode: one page of a prefix, in the tree of a PrefixCache, which owns and guards it. Leaves
// have a sequence, other nodes have children.

#ifndef VARVE_SERVE_PREFIX_PREFIX_NODE_H_
#define VARVE_SERVE_PREFIX_PREFIX_NODE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>

#include "serve/prefix/page_keys.h"
#include "varve/sequence_id.h"

namespace varve::serve {

class PrefixNode {
 public:
  PrefixNode* parent = nullptr;
  PageKey key;
  size_t depth = 0;  // pages up to the end of this one; 0: the root
  std::map<PageKey, std::unique_ptr<PrefixNode>> children;
  std::optional<SequenceId> sequence;  // of a leaf: all pages of its path
  int pins = 0;                        // of this node and of all below it
  double cost_us = 0;
  double uses = 0;  // as of last_use_s
  double last_use_s = 0;
  // When this node or one below it was last taken, kept or given back: never earlier than that of
  // a child. So what is idle is the ends of paths.
  double touched_s = 0;
  bool rested = false;  // in all sequences below
  // Of a leaf that is to leave for a tier: from which page on those that are missing there are
  // handed over next; when to try again, and how often that was.
  size_t spill_page = 0;
  double spill_after_s = 0;
  int spill_tries = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_PREFIX_PREFIX_NODE_H_
