#include "cache/retention_driver.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/stopwatch.h"
#include "cache/retention_bound.h"
#include "retention/policy_table.h"

namespace varve {
namespace {

std::string RungText(const Page& page) {
  const std::string key(page.rung(Part::kKey).name());
  const std::string value(page.rung(Part::kValue).name());
  return key == value ? key : key + "/" + value;
}

PageSpan SpanOf(const TableEntry& entry) {
  return {entry.page->first_position, entry.EndPosition() - entry.page->first_position, entry.rows,
          entry.live.Count()};
}

}  // namespace

RetentionDriver::RetentionDriver(const CacheShape& shape, const std::vector<LayerPlan>& plans,
                                 const SequenceMap& sequences, PageStore* store, Ageing* ageing,
                                 RetentionObserver* observer)
    : shape_(shape),
      plans_(plans),
      sequences_(sequences),
      store_(store),
      ageing_(ageing),
      observer_(observer),
      row_bytes_(2 * static_cast<uint64_t>(shape.num_kv_heads) * (shape.key_dim + shape.value_dim)),
      last_decisions_(plans.size()) {
  for (const LayerPlan& plan : plans) {
    needs_mass_.push_back(plan.retention && plan.retention->policy->needs_mass);
    if (plan.retention) ++num_layers_;
    if (plan.retention && plan.retention->budget_bytes > 0) ++budget_layers_;
  }
  counts_.layers = num_layers_;
  if (num_layers_ == 0 || budget_layers_ > 0) return;
  double target = 0;  // of the f16 bytes of a layer
  for (const LayerPlan& plan : plans) target += plan.retention ? 1 / plan.retention->ratio : 0;
  target_ratio_ = num_layers_ / target;
}

int64_t RetentionDriver::TokensToNextDecision(const Sequence& sequence, int64_t most) const {
  for (size_t layer = 0; layer < plans_.size(); ++layer) {
    const LayerPlan& plan = plans_[layer];
    if (!plan.retention || sequence.layers[layer].held()) continue;
    if (plan.retention->policy->needs_prompt_end && !sequence.prompt_ended) continue;
    const int64_t next = NextDecisionPosition(*plan.retention, sequence.next_position + 1);
    most = std::min(most, next - sequence.next_position);
  }
  return most;
}

void RetentionDriver::Collect(const AttentionMass& told, const PageTable& table,
                              int64_t step_position, int step_tokens, StepMass* into) {
  if (into->mass.empty()) {
    into->first_position = step_position;
    for (const TableEntry& entry : table.entries())
      into->pages.push_back(entry.page->first_position);
    into->mass.assign(static_cast<size_t>(step_tokens) * into->pages.size(), -1.0f);
  }
  // Where the pages that were read are among all: both ascend.
  const size_t read = told.pages.size();
  std::vector<size_t> at(read);
  for (size_t page = 0, all = 0; page < read; ++page) {
    while (into->pages[all] != told.pages[page].first_position) ++all;
    at[page] = all;
  }
  const float scale = 1.0f / static_cast<float>(told.num_heads);
  for (int query = 0; query < told.num_queries; ++query) {
    const int64_t row = told.first_position + query - step_position;
    if (row < 0 || row >= step_tokens) continue;  // asked again for an older position
    float* out = into->mass.data() + static_cast<size_t>(row) * into->pages.size();
    std::fill_n(out, into->pages.size(), 0.0f);
    for (int head = 0; head < told.num_heads; ++head) {
      const float* in = told.mass + (static_cast<size_t>(query) * told.num_heads + head) * read;
      for (size_t page = 0; page < read; ++page) out[at[page]] += in[page];
    }
    for (size_t page = 0; page < into->pages.size(); ++page) out[page] *= scale;
  }
}

void RetentionDriver::Commit(int layer, LayerTable& table, const StepMass& mass) {
  if (mass.mass.empty()) return;
  const Stopwatch watch(&counts_.plan_us);
  const RetentionRule& rule = *plans_[static_cast<size_t>(layer)].retention;
  const size_t tokens = mass.mass.size() / mass.pages.size();
  for (size_t token = 0; token < tokens; ++token) {
    const float* of_token = mass.mass.data() + token * mass.pages.size();
    const int64_t position = mass.first_position + static_cast<int64_t>(token);
    const bool bucket_ends = (position + 1) % rule.every_tokens == 0;
    for (size_t i = 0, all = 0; i < table.size(); ++i) {
      const int64_t first = table.entries()[i].page->first_position;
      if (first > position) break;  // made by a later token
      while (mass.pages[all] != first) ++all;
      // Not asked is negative; rows that hold a NaN make their query's masses NaN.
      if (of_token[all] >= 0) table.score(i).Add(of_token[all]);
      if (bucket_ends) table.score(i).FinishBucket(rule.ema);
    }
  }
}

uint64_t RetentionDriver::LayerBytes(const LayerTable& table) const {
  uint64_t bytes = 0;
  for (const TableEntry& entry : table.entries()) bytes += SlotBytes(entry.page->bytes);
  return bytes;
}

uint64_t RetentionDriver::HeldBytes(const LayerTable& table) const {
  uint64_t bytes = 0;
  for (const TableEntry& entry : table.entries()) bytes += entry.page->HeldBytes();
  return bytes;
}

int RetentionDriver::AgreedStage(int layer, const Page& page) const {
  int agreed = std::numeric_limits<int>::max();
  for (const auto& [id, sequence] : sequences_) {
    const std::vector<TableEntry>& entries = sequence->layers[static_cast<size_t>(layer)].entries();
    const auto entry = std::lower_bound(entries.begin(), entries.end(), page.first_position,
                                        [](const TableEntry& candidate, int64_t position) {
                                          return candidate.page->first_position < position;
                                        });
    if (entry != entries.end() && entry->page.get() == &page) {
      agreed = std::min(agreed, std::max(entry->stage, entry->wish));
    }
  }
  return agreed;
}

uint64_t RetentionDriver::TargetBytes(const Sequence& sequence, int layer) const {
  const RetentionRule& rule = *plans_[static_cast<size_t>(layer)].retention;
  const auto seen = static_cast<double>(sequence.tokens_seen());
  if (rule.budget_bytes == 0) {
    return static_cast<uint64_t>(seen * static_cast<double>(row_bytes_) / rule.ratio);
  }
  // The layers without a budget take what they take, and what they begin until the next decision.
  uint64_t others = 0;
  for (int other = 0; other < shape_.num_layers; ++other) {
    const auto index = static_cast<size_t>(other);
    if (plans_[index].retention && plans_[index].retention->budget_bytes > 0) continue;
    const LayerTable& table = sequence.layers[index];
    others += LayerBytes(table) + table.decision_bytes +
              UpcomingBytes(sequence, other, rule.every_tokens);
  }
  if (others >= rule.budget_bytes) return 0;
  return (rule.budget_bytes - others) / static_cast<uint64_t>(budget_layers_);
}

uint64_t RetentionDriver::UpcomingBytes(const Sequence& sequence, int layer, int64_t tokens) const {
  const LayerPlan& plan = plans_[static_cast<size_t>(layer)];
  const LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  // Where the next page begins: behind the one that still grows. After a cut inside a sealed page
  // that is no multiple of the page size.
  const int64_t first = sequence.next_position + table.RoomAt(sequence.next_position);
  const int64_t until = sequence.next_position + tokens;
  if (first >= until) return 0;
  const auto begun = static_cast<uint64_t>((until - 1 - first) / shape_.page_tokens + 1);
  return begun * SlotBytes(store_->PageBytes(*plan.open_rung, *plan.open_rung));
}

std::vector<PageStat> RetentionDriver::StatsOf(int layer, int64_t next_position,
                                               const LayerTable& table) const {
  const LayerPlan& plan = plans_[static_cast<size_t>(layer)];
  std::vector<PageStat> stats;
  stats.reserve(table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const TableEntry& entry = table.entries()[i];
    PageStat stat;
    stat.first_position = entry.page->first_position;
    stat.end_position = entry.EndPosition();
    stat.live_rows = entry.live.Count();
    stat.complete = table.IsComplete(i);
    stat.keeps_level = table.schedule().IsExact(stat.first_position) ||
                       next_position - stat.end_position < plan.stages.front().from_age;
    const int level = std::max(0, entry.stage - plan.first_demotion + 1);
    stat.level = std::max(level, entry.wish - plan.first_demotion + 1);
    stat.bytes = stat.level == level
                     ? SlotBytes(entry.page->bytes)
                     : plan.retention->levels[static_cast<size_t>(stat.level)].bytes;
    stat.worth = plan.retention->policy->worth({layer, stat.first_position, entry.score.smooth(),
                                                entry.score.last(), entry.score.frozen()});
    stats.push_back(stat);
  }
  return stats;
}

void RetentionDriver::Decide(Sequence& sequence, int layer) {
  const RetentionRule& rule = *plans_[static_cast<size_t>(layer)].retention;
  LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  const std::vector<PageStat> pages = StatsOf(layer, sequence.next_position, table);
  LayerState state;
  state.pages = pages;
  state.next_position = sequence.next_position;
  state.f16_row_bytes = row_bytes_;
  state.upcoming_bytes = UpcomingBytes(sequence, layer, rule.every_tokens);
  state.target_bytes = TargetBytes(sequence, layer);
  RetentionDecision decision = DecideRetention(rule, state);
  const double seen = static_cast<double>(std::max<int64_t>(1, sequence.next_position));
  last_decisions_[static_cast<size_t>(layer)] = {
      decision.target_keep, decision.effective_keep, decision.kept_part,
      static_cast<double>(decision.floor_tokens) / seen, true};
  table.pending = LayerTable::Pending{std::move(decision), sequence.next_position, table.edits()};
}

void RetentionDriver::DecideWhereDue(Sequence& sequence) {
  const Stopwatch watch(&counts_.plan_us);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    const LayerPlan& plan = plans_[static_cast<size_t>(layer)];
    if (!plan.retention || sequence.layers[static_cast<size_t>(layer)].held()) continue;
    if (NextDecisionPosition(*plan.retention, sequence.next_position) != sequence.next_position)
      continue;
    // What it ranks by is known at the end of the prompt only.
    if (plan.retention->policy->needs_prompt_end && !sequence.prompt_ended) continue;
    Decide(sequence, layer);
  }
}

void RetentionDriver::EndPrompt(Sequence& sequence) {
  sequence.prompt_ended = true;
  if (!active()) return;
  const Stopwatch watch(&counts_.plan_us);
  const auto waits_for_it = [this](int layer) {
    const LayerPlan& plan = plans_[static_cast<size_t>(layer)];
    return plan.retention && plan.retention->policy->needs_prompt_end;
  };
  // All layers know what they rank by before a decision takes memory, which there may not be.
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
    for (size_t i = 0; waits_for_it(layer) && i < table.size(); ++i) table.score(i).Freeze();
  }
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    if (waits_for_it(layer) &&
        sequence.next_position >= plans_[static_cast<size_t>(layer)].retention->trigger_tokens)
      Decide(sequence, layer);
  }
}

void RetentionDriver::ApplyDecisions(SequenceId id, Sequence& sequence) {
  if (!active()) return;
  const Stopwatch watch(&counts_.plan_us);
  uint64_t before = counts_.tokens_evicted;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
    if (!table.pending) continue;
    if (table.PendingFits(sequence.next_position)) {
      ApplyDecision(id, layer, sequence.next_position, table);
    } else {
      ++counts_.plans_stale;
    }
    table.pending.reset();
  }
  if (counts_.tokens_evicted != before)
    counts_.tokens_evicted_last = counts_.tokens_evicted - before;
}

void RetentionDriver::ApplyDecision(SequenceId id, int layer, int64_t next_position,
                                    LayerTable& table) {
  const LayerPlan& layer_plan = plans_[static_cast<size_t>(layer)];
  const RetentionDecision& decision = table.pending->decision;
  ++counts_.plans;
  if (decision.floors_bind) ++counts_.plans_bound;
  table.decision_bytes = decision.own_bytes();
  const bool waits = std::any_of(table.entries().begin(), table.entries().end(),
                                 [](const TableEntry& entry) { return entry.wish > entry.stage; });
  if (!decision.changes && !waits && observer_ == nullptr) return;

  std::vector<PageDecision> decisions;
  if (observer_ != nullptr) {
    const std::vector<PageStat> stats = StatsOf(layer, next_position, table);
    for (size_t i = 0; i < table.size(); ++i)
      decisions.push_back({SpanOf(table.entries()[i]), stats[i].worth, PageFate::kKept, {}});
  }
  // What goes before what is demoted: under a cap, the one makes room for the other.
  size_t index = 0;
  const uint64_t dropped =
      table.DropIf([&](const TableEntry&) { return decision.levels[index++] == kDropPage; });
  index = 0;
  for (size_t i = 0; i < decision.levels.size(); ++i) {
    const int level = decision.levels[i];
    if (level == kDropPage) {
      if (observer_ != nullptr) decisions[i].fate = PageFate::kDropped;
      continue;
    }
    const TableEntry& entry = table.entries()[index];
    if (level > 0)
      table.SetWish(index, std::max(entry.wish, layer_plan.first_demotion + level - 1));
    const int stage = entry.page->refs == 1 ? entry.wish : AgreedStage(layer, *entry.page);
    if (stage > entry.stage && ageing_->Demote(layer_plan, index, stage, table)) {
      ++counts_.pages_demoted;
      if (observer_ != nullptr) decisions[i].fate = PageFate::kDemoted;
    }
    if (observer_ != nullptr) decisions[i].rung = RungText(*entry.page);
    ++index;
  }
  ageing_->CountDropped(dropped);
  counts_.pages_evicted += dropped;
  counts_.tokens_evicted += static_cast<uint64_t>(decision.dropped_tokens);
  if (observer_ == nullptr) return;
  RetentionEvent event{id,
                       layer,
                       next_position,
                       std::move(decisions),
                       decision.target_bytes,
                       LayerBytes(table),
                       decision.floors_bind};
  observer_->OnRetention(event);
}

void RetentionDriver::CountStep(const Sequence& sequence) {
  if (counts_.plans == 0) return;
  for (size_t layer = 0; layer < plans_.size(); ++layer) {
    if (!plans_[layer].retention) continue;
    const LayerTable& table = sequence.layers[layer];
    run_f16_bytes_ += static_cast<double>(sequence.tokens_seen()) * static_cast<double>(row_bytes_);
    run_held_bytes_ += static_cast<double>(HeldBytes(table) + table.decision_bytes);
  }
}

void RetentionDriver::AddTo(const Sequence& sequence, RetentionTotals* totals) const {
  for (size_t layer = 0; layer < plans_.size(); ++layer) {
    if (!plans_[layer].retention) continue;
    const LayerTable& table = sequence.layers[layer];
    totals->f16_bytes += static_cast<uint64_t>(sequence.tokens_seen()) * row_bytes_;
    totals->held_bytes += HeldBytes(table) + table.decision_bytes;
    totals->plan_bytes += table.decision_bytes;
    totals->seen += sequence.tokens_seen();
    totals->floor_bytes +=
        RetentionFloorBytes(plans_[layer], *store_, shape_.page_tokens, sequence.tokens_seen());
    for (const TableEntry& entry : table.entries()) totals->live += entry.live_tokens();
  }
}

RetentionStats RetentionDriver::Stats(const RetentionTotals& totals) const {
  RetentionStats stats = counts_;
  stats.plan_bytes = totals.plan_bytes;
  if (totals.held_bytes > 0) {
    stats.lossy_ratio =
        static_cast<double>(totals.f16_bytes) / static_cast<double>(totals.held_bytes);
  }
  if (totals.seen > 0)
    stats.keep_ratio = static_cast<double>(totals.live) / static_cast<double>(totals.seen);
  stats.target_ratio = target_ratio_;
  if (totals.floor_bytes > 0) {
    stats.ratio_bound =
        static_cast<double>(totals.f16_bytes) / static_cast<double>(totals.floor_bytes);
  }
  if (run_held_bytes_ > 0) stats.lossy_ratio_run = run_f16_bytes_ / run_held_bytes_;
  double made = 0;
  RetentionStats means;
  means.target_keep = means.effective_keep = means.kept_part = means.floor_keep = 0;
  for (const LastDecision& last : last_decisions_) {
    if (!last.made) continue;
    ++made;
    means.target_keep += last.target_keep;
    means.effective_keep += last.effective_keep;
    means.kept_part += last.kept_part;
    means.floor_keep += last.floor_keep;
  }
  if (made == 0) return stats;
  stats.target_keep = means.target_keep / made;
  stats.effective_keep = means.effective_keep / made;
  stats.kept_part = means.kept_part / made;
  stats.floor_keep = means.floor_keep / made;
  return stats;
}

}  // namespace varve
