// BatchEngine: what it shows of itself.

#include <algorithm>

#include "serve/engine/batch_engine.h"

namespace varve::serve {
namespace {

// The pages of a sequence in order: what never leaves the open rung, what is sealed, what is open.
std::vector<PageRun> RunsOf(const Result<PlanCost>& cost) {
  std::vector<PageRun> runs;
  if (!cost.ok() || cost->ranges.empty()) return runs;
  for (const StageCost& stage : cost->ranges.front().stages) {
    if (stage.pages == 0 || stage.state == "dropped") continue;
    runs.push_back(
        {stage.pages, stage.state, stage.k == stage.v ? stage.k : stage.k + "/" + stage.v});
  }
  const auto order = [](const PageRun& run) {
    return run.state == "exact" ? 0 : run.state == "sealed" ? 1 : run.state == "open" ? 2 : 3;
  };
  std::stable_sort(runs.begin(), runs.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return runs;
}

}  // namespace

EngineSnapshot BatchEngine::Snapshot() const {
  EngineSnapshot snapshot;
  snapshot.counters = counters_;
  snapshot.shares_prefixes = prefixes_ != nullptr;
  snapshot.prefix_note = prefix_note_;
  snapshot.bytes_held = BytesHeld();
  snapshot.bytes_budget = options_.cache_bytes;
  snapshot.waiting = waiting_.size();
  snapshot.num_slots = options_.num_slots;
  snapshot.context = context_;
  snapshot.page_tokens = cache_->shape().page_tokens;
  snapshot.plan = PrintPlan(options_.plan);
  snapshot.uptime_s = Now();
  snapshot.cache = cache_->Stats();
  for (const auto& running : running_) {
    ConversationView view;
    view.slot = running->slot();
    view.is_reading = running->is_reading();
    view.id = running->queued().arrival;
    view.prompt_tokens = running->prompt_tokens();
    view.cached_tokens = running->cached_tokens;
    view.tokens_fed = running->fed;
    view.generated = static_cast<int64_t>(running->tokens().size()) - running->prompt_tokens();
    view.limit = running->limit();
    view.shared_pages = running->cached_tokens / snapshot.page_tokens;
    if (running->fed > 0) view.pages = RunsOf(estimate_.Cost(running->fed));
    snapshot.conversations.push_back(std::move(view));
  }
  if (prefixes_ == nullptr) return snapshot;
  snapshot.prefix = prefixes_->stats();
  if (tiers_ != nullptr) snapshot.tiers = tiers_->stats();
  for (const PrefixPath& path : prefixes_->Paths(Now())) {
    if (path.pinned) continue;
    ConversationView view;
    view.tokens_fed = path.num_pages * snapshot.page_tokens;
    view.shared_pages = path.shared_pages;
    view.uses = path.uses;
    view.pages = RunsOf(estimate_.Cost(view.tokens_fed));
    snapshot.conversations.push_back(std::move(view));
  }
  return snapshot;
}

}  // namespace varve::serve
