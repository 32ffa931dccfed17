#include "cache/ageing.h"

#include <algorithm>
#include <utility>

namespace varve {
namespace {

// A search of the nearest centroids takes a hundred times as long as rounding.
bool IsSlowToEncode(const LayerPlan::Stage& stage) {
  return stage.k->descriptor().needs_codebook() || stage.v->descriptor().needs_codebook();
}

}  // namespace

PageSchedule ScheduleOf(const LayerPlan& plan, int page_tokens) {
  PageSchedule schedule;
  schedule.page_tokens = page_tokens;
  schedule.open_rung = plan.open_rung;
  for (const LayerPlan::Stage& stage : plan.stages) schedule.from_age.push_back(stage.from_age);
  schedule.exact_tokens = plan.exact_tokens;
  schedule.window_tokens = plan.window_tokens;
  schedule.sink_tokens = plan.sink_tokens;
  return schedule;
}

Ageing::Counters& Ageing::Counters::operator+=(const Counters& other) {
  sealed += other.sealed;
  demoted += other.demoted;
  adopted += other.adopted;
  dropped += other.dropped;
  not_restored += other.not_restored;
  return *this;
}

bool Ageing::Apply(const LayerPlan& plan, int64_t next_position, PageTable& table,
                   Counters* counters) {
  const std::vector<PageEvent> events = table.Events(next_position - 1, next_position);
  if (events.empty()) return true;
  // Events are in the order of entries, those that drop a page first.
  std::vector<size_t> dropped;
  std::vector<Wanted> wanted;
  for (const PageEvent& event : events) {
    if (event.drop) {
      dropped.push_back(event.entry);
    } else {
      const auto before = std::lower_bound(dropped.begin(), dropped.end(), event.entry);
      wanted.push_back({event.entry - static_cast<size_t>(before - dropped.begin()), event.stage});
    }
  }
  size_t index = 0;
  counters->dropped += table.DropIf([&](const TableEntry&) {
    return std::binary_search(dropped.begin(), dropped.end(), index++);
  });
  return DemoteAll(plan, wanted, table, counters);
}

bool Ageing::Demote(const LayerPlan& plan, size_t index, int stage, PageTable& table) {
  const Wanted wanted{index, stage};
  return DemoteAll(plan, {&wanted, 1}, table, &counters_);
}

bool Ageing::Rest(const LayerPlan& plan, int64_t begin, int64_t end, PageTable& table,
                  Counters* counters) {
  if (plan.rest_stage < 0) return true;
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < table.size(); ++i) {
    const TableEntry& entry = table.entries()[i];
    const int64_t first = entry.page->first_position;
    const bool is_inside = first >= begin && entry.EndPosition() <= end && table.IsComplete(i);
    if (is_inside && entry.stage < plan.rest_stage && !table.schedule().IsExact(first))
      wanted.push_back({i, plan.rest_stage});
  }
  return DemoteAll(plan, wanted, table, counters);
}

bool Ageing::DemoteAll(const LayerPlan& plan, std::span<const Wanted> wanted, PageTable& table,
                       Counters* counters) {
  bool all = true;
  for (size_t begin = 0; begin < wanted.size(); begin += encode_batch_) {
    std::vector<EncodeJob> jobs;
    std::vector<std::pair<Wanted, PageRef>> made;  // as jobs
    const auto batch = wanted.subspan(begin, std::min(encode_batch_, wanted.size() - begin));
    jobs.reserve(batch.size());
    made.reserve(batch.size());
    for (const Wanted& want : batch) {
      const LayerPlan::Stage& stage = plan.stages[static_cast<size_t>(want.stage)];
      const TableEntry& entry = table.entries()[want.index];
      if (PageRef form = FindForm(entry, stage, counters)) {
        table.Demote(want.index, std::move(form), want.stage);
        continue;
      }
      PageRef form = MakeForm(entry.page.get(), stage);
      all = all && form;
      if (!form) continue;
      jobs.push_back({entry.page.get(), form.get(), Status()});
      made.emplace_back(want, std::move(form));
    }
    if (!jobs.empty()) backend_->Encode(jobs);
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (!jobs[i].status.ok()) {
        ++counters->not_restored;
        all = false;
        continue;
      }
      auto& [want, form] = made[i];
      Page* from = table.entries()[want.index].page.get();
      ++(from->IsSealed() ? counters->demoted : counters->sealed);
      PageStore::SetSuccessor(from, form.get());
      table.Demote(want.index, std::move(form), want.stage);
    }
  }
  return all;
}

PageRef Ageing::FindForm(const TableEntry& entry, const LayerPlan::Stage& stage,
                         Counters* counters) {
  Page* page = entry.page.get();
  if (page->HasRungs(stage.k, stage.v)) {
    if (!page->IsSealed()) store_->SetLife(page, PageState::kSealed);
    return entry.page;
  }
  if (entry.prepared && entry.prepared->HasRungs(stage.k, stage.v)) {
    ++(page->IsSealed() ? counters->demoted : counters->sealed);
    return entry.prepared;
  }
  Page* successor = page->successor;
  if (successor == nullptr || !successor->HasRungs(stage.k, stage.v)) return PageRef();
  ++counters->adopted;
  return PageRef(successor);
}

PageRef Ageing::MakeForm(Page* page, const LayerPlan::Stage& stage) {
  // Bytes that fail their check are not ageing's concern: whoever asks for the page is told.
  if (page->unread() != nullptr && !store_->Read({&page, 1}, executor_).ok()) return PageRef();
  Result<PageRef> made =
      store_->Make(page->layer, page->first_position, PageState::kSealed, *stage.k, *stage.v);
  if (!made.ok()) return PageRef();
  (*made)->rows = page->rows;
  (*made)->tokens_per_row = page->tokens_per_row;
  return std::move(*made);
}

void Ageing::Prepare(const LayerPlan& plan, int layer, int num_layers, int64_t next_position,
                     PageTable& table) {
  const int64_t due = table.NextEvent();
  // A page falls due every page_tokens: the turns of one must be over when the next begins.
  const int64_t ahead = std::min<int64_t>(kMaxAheadTokens, table.schedule().page_tokens);
  const int64_t turn = ahead - ahead * layer / num_layers;
  if (due == PageSchedule::kNoEvent || next_position < due - turn) return;
  for (const PageEvent& event : table.Events(next_position, due)) {
    const TableEntry& entry = table.entries()[event.entry];
    const LayerPlan::Stage& stage = plan.stages[static_cast<size_t>(event.stage)];
    if (event.drop || entry.prepared || !IsSlowToEncode(stage)) continue;
    Page* page = entry.page.get();
    if (page->HasRungs(stage.k, stage.v) || page->successor != nullptr) continue;
    PageRef form = MakeForm(page, stage);
    if (!form) return;
    EncodeJob job{page, form.get(), Status()};
    backend_->Encode({&job, 1});
    if (!job.status.ok()) return;
    PageStore::SetSuccessor(page, form.get());
    table.SetPrepared(event.entry, std::move(form));
  }
}

}  // namespace varve
