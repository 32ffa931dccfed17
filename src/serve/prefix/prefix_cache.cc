#include "serve/prefix/prefix_cache.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "serve/prefix/prefix_node.h"

namespace varve::serve {

Status Cacheable(const Plan& plan) {
  for (const LayerRule& rule : plan.rules) {
    const char* clause = rule.evict           ? "evict="
                         : rule.window_tokens ? "window="
                         : rule.fold          ? "fold="
                                              : nullptr;
    if (clause == nullptr) continue;
    return Unimplemented(fmt::format(
        "prefixes are not shared with {}: which pages stay depends on what comes later", clause));
  }
  return Status();
}

PrefixCache::PrefixCache(Cache& cache, const PrefixOptions& options)
    : cache_(cache),
      options_(options),
      page_tokens_(cache.shape().page_tokens),
      root_(std::make_unique<PrefixNode>()) {}

PrefixCache::~PrefixCache() = default;

PrefixNode* PrefixCache::FindNode(std::span<const PageKey> keys, size_t* num_pages) const {
  PrefixNode* node = root_.get();
  *num_pages = 0;
  for (const PageKey& key : keys) {
    const auto child = node->children.find(key);
    if (child == node->children.end()) break;
    node = child->second.get();
    ++*num_pages;
  }
  return node;
}

size_t PrefixCache::Find(std::span<const PageKey> keys) const {
  size_t num_pages = 0;
  FindNode(keys, &num_pages);
  return num_pages;
}

double PrefixCache::Uses(const PrefixNode& node, double now_s) const {
  return node.uses * std::exp2((node.last_use_s - now_s) / options_.half_life_s);
}

void PrefixCache::Use(PrefixNode& node, double now_s) {
  node.uses = Uses(node, now_s) + 1;
  node.last_use_s = now_s;
}

double PrefixCache::Value(const PrefixNode& node, double now_s) const {
  if (options_.order == EvictionOrder::kLru) return node.last_use_s;
  return node.cost_us * Uses(node, now_s) / options_.page_bytes;
}

void PrefixCache::SetSequence(PrefixNode& node, std::optional<SequenceId> sequence) {
  node.sequence = sequence;
  if (sequence) {
    leaves_.insert(&node);
  } else {
    leaves_.erase(&node);
  }
}

PrefixStats PrefixCache::stats() const {
  PrefixStats stats = stats_;
  stats.leaves = leaves_.size();
  return stats;
}

Result<SequenceId> PrefixCache::ForkPages(SequenceId source, size_t num_pages) {
  VARVE_ASSIGN_OR_RETURN(const SequenceId fork, cache_.Fork(source));
  const Status cut = cache_.Truncate(fork, static_cast<int64_t>(num_pages) * page_tokens_);
  if (cut.ok()) return fork;
  static_cast<void>(cache_.Free(fork));  // the cut's error is the one to tell
  return cut;
}

Result<std::optional<PrefixCache::Hit>> PrefixCache::Take(std::span<const PageKey> keys,
                                                          double now_s) {
  size_t num_pages = 0;
  PrefixNode* node = FindNode(keys, &num_pages);
  stats_.queries += keys.size();
  stats_.hits += num_pages;
  if (num_pages == 0) return std::optional<Hit>();
  const PrefixNode* leaf = node;
  while (!leaf->sequence) leaf = leaf->children.begin()->second.get();
  VARVE_ASSIGN_OR_RETURN(const SequenceId fork, ForkPages(*leaf->sequence, num_pages));
  for (PrefixNode* used = node; used != root_.get(); used = used->parent) Use(*used, now_s);
  Touch(*node, now_s);
  AddPins(*node, 1);
  return std::optional(Hit{fork, num_pages, node});
}

Result<PrefixNode*> PrefixCache::Keep(SequenceId source, std::span<const PageKey> keys,
                                      double cost_us, double now_s, PrefixNode* old_pin) {
  size_t num_pages = 0;
  PrefixNode* node = FindNode(keys, &num_pages);
  if (num_pages < keys.size()) {
    VARVE_ASSIGN_OR_RETURN(const SequenceId kept, ForkPages(source, keys.size()));
    // The new sequence has the pages of the old leaf, too.
    if (node->sequence) {
      VARVE_RETURN_IF_ERROR(cache_.Free(*node->sequence));
      SetSequence(*node, std::nullopt);
    }
    for (size_t i = num_pages; i < keys.size(); ++i) {
      auto child = std::make_unique<PrefixNode>();
      child->parent = node;
      child->key = keys[i];
      child->depth = i + 1;
      child->cost_us = cost_us;
      Use(*child, now_s);
      node = (node->children[keys[i]] = std::move(child)).get();
      ++stats_.pages;
      ++stats_.pages_added;
    }
    SetSequence(*node, kept);
    // The source may have pages of its own in place of those that were here.
    for (PrefixNode* old = node; old != root_.get(); old = old->parent) old->rested = false;
  }
  Touch(*node, now_s);
  if (node != root_.get()) AddPins(*node, 1);
  if (old_pin != nullptr) Unpin(old_pin);
  return node == root_.get() ? nullptr : node;
}

PrefixNode* PrefixCache::Pin(std::span<const PageKey> keys) {
  size_t num_pages = 0;
  PrefixNode* node = FindNode(keys, &num_pages);
  if (num_pages == 0) return nullptr;
  AddPins(*node, 1);
  return node;
}

void PrefixCache::Unpin(PrefixNode* node) {
  AddPins(*node, -1);
  LookAgainAt(0);
}

void PrefixCache::AddPins(PrefixNode& node, int count) {
  for (PrefixNode* pinned = &node; pinned != nullptr; pinned = pinned->parent)
    pinned->pins += count;
}

Status PrefixCache::RemoveLeaf(PrefixNode* leaf) {
  PrefixNode* parent = leaf->parent;
  const SequenceId sequence = *leaf->sequence;
  if (parent == root_.get() || parent->children.size() > 1) {
    VARVE_RETURN_IF_ERROR(cache_.Free(sequence));
  } else {
    VARVE_RETURN_IF_ERROR(
        cache_.Truncate(sequence, static_cast<int64_t>(parent->depth) * page_tokens_));
    SetSequence(*parent, sequence);
  }
  leaves_.erase(leaf);
  parent->children.erase(PageKey(leaf->key));
  --stats_.pages;
  return Status();
}

Result<bool> PrefixCache::EvictOne(double now_s) {
  PrefixNode* least = nullptr;
  for (PrefixNode* leaf : leaves_) {
    if (leaf->pins > 0) continue;
    if (least == nullptr || Value(*leaf, now_s) < Value(*least, now_s)) least = leaf;
  }
  if (least == nullptr) return false;
  if (options_.before_eviction)
    options_.before_eviction(*least->sequence, least->depth - 1, least->key);
  VARVE_RETURN_IF_ERROR(RemoveLeaf(least));
  ++stats_.pages_evicted;
  return true;
}

bool PrefixCache::WasTakenUp(const PrefixNode& leaf) const {
  for (const PrefixNode* node = &leaf; node != root_.get() && node->children.size() <= 1;
       node = node->parent) {
    if (node->uses > 1) return true;
  }
  return false;
}

size_t PrefixCache::NumUnusedSince(double time_s, size_t most) const {
  std::set<const PrefixNode*> counted;
  for (const PrefixNode* leaf : leaves_) {
    bool is_left = !WasTakenUp(*leaf);
    for (const PrefixNode* node = leaf; node != root_.get(); node = node->parent) {
      if (counted.size() >= most) return most;
      is_left = is_left && node->children.size() <= 1;
      // What is further up was touched as lately, or is pinned, too.
      if (node->pins > 0 || (node->touched_s >= time_s && !is_left)) break;
      if (!counted.insert(node).second) break;
    }
  }
  return counted.size();
}

Status PrefixCache::Forget(std::span<const PageKey> keys) {
  size_t num_pages = 0;
  PrefixNode* node = FindNode(keys, &num_pages);
  while (node != root_.get() && node->sequence && node->pins == 0) {
    PrefixNode* parent = node->parent;
    VARVE_RETURN_IF_ERROR(RemoveLeaf(node));
    ++stats_.pages_evicted;
    node = parent;
  }
  return Status();
}

Status PrefixCache::Clear() {
  for (;;) {
    VARVE_ASSIGN_OR_RETURN(const bool evicted, EvictOne(0));
    if (!evicted) return Status();
  }
}

std::vector<PrefixPath> PrefixCache::Paths(double now_s) const {
  std::vector<PrefixPath> paths;
  for (const PrefixNode* leaf : leaves_) {
    PrefixPath path{.num_pages = static_cast<int64_t>(leaf->depth),
                    .shared_pages = 0,
                    .uses = Uses(*leaf, now_s),
                    .pinned = leaf->pins > 0,
                    .sequence = *leaf->sequence};
    const PrefixNode* node = leaf->parent;
    while (node != root_.get() && node->children.size() == 1) node = node->parent;
    path.shared_pages = static_cast<int64_t>(node->depth);
    paths.push_back(path);
  }
  return paths;
}

}  // namespace varve::serve
