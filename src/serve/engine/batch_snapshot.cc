// BatchEngine: what it shows of itself.

#include "serve/engine/batch_engine.h"

namespace varve::serve {
namespace {

// The pages of a sequence in order, as they are in the first layer.
std::vector<PageRun> RunsOf(const Cache& cache, SequenceId sequence) {
  std::vector<PageRun> runs;
  const Result<SequenceInfo> info = cache.Describe(sequence, 0);
  if (!info.ok()) return runs;
  for (const PageForm& form : info->forms) {
    const std::string rung = form.k == form.v ? form.k : form.k + "/" + form.v;
    const bool is_news =
        runs.empty() || runs.back().state != form.state || runs.back().rung != rung;
    if (is_news) runs.push_back({0, form.state, rung});
    ++runs.back().pages;
  }
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
    view.pages = RunsOf(*cache_, running->sequence);
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
    view.pages = RunsOf(*cache_, path.sequence);
    snapshot.conversations.push_back(std::move(view));
  }
  return snapshot;
}

}  // namespace varve::serve
