// PrefixCache: pages that nobody has used for a while are put to rest, and leave for a tier.

#include <algorithm>
#include <limits>
#include <utility>

#include "serve/prefix/prefix_cache.h"
#include "serve/prefix/prefix_node.h"

namespace varve::serve {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRetrySeconds = 1;
constexpr double kAwaitSeconds = 0.02;  // for an answer of the tiers
constexpr int kMaxSpillTries = 6;       // the pause doubles up to here: a minute
// Workers pack for some seconds: what they have done is taken over so often, a second apart.
constexpr int kTakesOfPacked = 3;

void AddLeaves(const PrefixNode& node, std::vector<SequenceId>* sequences) {
  if (node.sequence) sequences->push_back(*node.sequence);
  for (const auto& [key, child] : node.children) AddLeaves(*child, sequences);
}

}  // namespace

void PrefixCache::LookAgainAt(double time_s) {
  if (options_.idle_s > 0) next_rest_s_ = std::min(next_rest_s_, time_s);
  if (options_.spill_s > 0) next_spill_s_ = std::min(next_spill_s_, time_s);
}

void PrefixCache::Touch(PrefixNode& node, double now_s) {
  for (PrefixNode* touched = &node; touched != nullptr; touched = touched->parent)
    touched->touched_s = std::max(touched->touched_s, now_s);
  if (options_.idle_s > 0) next_rest_s_ = std::min(next_rest_s_, now_s + options_.idle_s);
  if (options_.spill_s > 0) next_spill_s_ = std::min(next_spill_s_, now_s + options_.spill_s);
}

bool PrefixCache::RestNode(PrefixNode& node) {
  const auto end = static_cast<int64_t>(node.depth) * page_tokens_;
  std::vector<SequenceId> sequences;
  AddLeaves(node, &sequences);
  int64_t changed = 0;
  for (const SequenceId sequence : sequences) {
    const Result<int64_t> rested = cache_.Rest(sequence, end - page_tokens_, end);
    if (!rested.ok()) return false;
    changed += *rested;
  }
  node.rested = true;
  if (changed > 0) ++stats_.pages_rested;
  return true;
}

size_t PrefixCache::RestIdle(double now_s, size_t max_pages) {
  if (now_s < next_rest_s_) return 0;
  size_t done = 0;
  double next = kNever;
  for (PrefixNode* leaf : leaves_) {
    // Up the path as far as it is idle. What is pinned comes back with its Unpin.
    for (PrefixNode* node = leaf; node != root_.get() && node->pins == 0; node = node->parent) {
      if (node->rested) continue;
      double due = node->touched_s + options_.idle_s;
      if (due <= now_s && done == max_pages) due = now_s;
      if (due <= now_s && done < max_pages) {
        if (RestNode(*node)) {
          ++done;
          continue;
        }
        due = now_s + kRetrySeconds;
      }
      next = std::min(next, due);
      break;
    }
  }
  if (options_.packs && done > 0) {
    takes_left_ = kTakesOfPacked;
    take_packed_s_ = now_s + kRetrySeconds;
  }
  if (now_s >= take_packed_s_) TakePacked(now_s);
  next_rest_s_ = std::min(next, take_packed_s_);
  return done;
}

void PrefixCache::TakePacked(double now_s) {
  for (const PrefixNode* leaf : leaves_) {
    // Packing has no errors that anybody waits for.
    static_cast<void>(cache_.Rest(*leaf->sequence, 0, 0));
  }
  take_packed_s_ = --takes_left_ > 0 ? now_s + kRetrySeconds : kNever;
}

std::optional<PrefixCache::IdlePath> PrefixCache::FindToSpill(double now_s) {
  if (now_s < next_spill_s_) return std::nullopt;
  const double before_s = now_s - options_.spill_s;
  const auto is_idle = [&](const PrefixNode& node) {
    return node.pins == 0 && node.touched_s <= before_s;
  };
  next_spill_s_ = kNever;
  for (PrefixNode* leaf : leaves_) {
    if (leaf->pins > 0) continue;
    const double due = std::max(leaf->touched_s + options_.spill_s, leaf->spill_after_s);
    if (due > now_s) {
      next_spill_s_ = std::min(next_spill_s_, due);
      continue;
    }
    next_spill_s_ = now_s;  // there may be more
    IdlePath path{.leaf = leaf, .sequence = *leaf->sequence, .keys = KeysOf(*leaf)};
    const PrefixNode* first = leaf;
    while (first->parent != root_.get() && first->parent->children.size() == 1 &&
           is_idle(*first->parent)) {
      first = first->parent;
    }
    path.first_page = first->depth - 1;
    path.next_page = std::max(path.first_page, leaf->spill_page);
    return path;
  }
  return std::nullopt;
}

std::vector<PageKey> PrefixCache::KeysOf(const PrefixNode& leaf) const {
  std::vector<PageKey> keys(leaf.depth);
  for (const PrefixNode* node = &leaf; node != root_.get(); node = node->parent)
    keys[node->depth - 1] = node->key;
  return keys;
}

std::vector<PrefixCache::IdlePath> PrefixCache::AllPaths() const {
  std::vector<IdlePath> paths;
  for (PrefixNode* leaf : leaves_)
    paths.push_back({.leaf = leaf, .sequence = *leaf->sequence, .keys = KeysOf(*leaf)});
  std::sort(paths.begin(), paths.end(), [](const IdlePath& a, const IdlePath& b) {
    return a.leaf->touched_s > b.leaf->touched_s;
  });
  return paths;
}

Status PrefixCache::Spill(const IdlePath& path) {
  PrefixNode* node = path.leaf;
  while (node != root_.get() && node->depth > path.first_page) {
    PrefixNode* parent = node->parent;
    VARVE_RETURN_IF_ERROR(RemoveLeaf(node));
    ++stats_.pages_spilled;
    node = parent;
  }
  return Status();
}

void PrefixCache::ContinueSpill(const IdlePath& path, size_t next_page) {
  path.leaf->spill_page = next_page;
}

void PrefixCache::AwaitSpill(double now_s) { next_spill_s_ = now_s + kAwaitSeconds; }

void PrefixCache::PostponeSpill(const IdlePath& path, double now_s) {
  path.leaf->spill_page = 0;
  path.leaf->spill_after_s =
      now_s + kRetrySeconds * static_cast<double>(1 << path.leaf->spill_tries);
  path.leaf->spill_tries = std::min(path.leaf->spill_tries + 1, kMaxSpillTries);
}

}  // namespace varve::serve
