#include "pages/page_table.h"

#include <algorithm>
#include <tuple>

namespace varve {

// --- schedule ---

namespace {

// -1 is the stage of open pages.
size_t NextStage(const PageSchedule::Span& page) {
  return static_cast<size_t>(int64_t{page.stage} + 1);
}

}  // namespace

void PageSchedule::AddEvents(const Span& page, size_t entry, int64_t from, int64_t to,
                             std::vector<PageEvent>* events) const {
  int64_t gone = kNoEvent;
  if (!InWindowForEver(page)) gone = std::max(page.end_position + window_tokens, from + 1);
  const size_t first_new = events->size();
  const size_t num_stages = IsExact(page.first_position) ? 0 : from_age.size();
  for (size_t stage = NextStage(page); stage < num_stages; ++stage) {
    const int64_t position = std::max(page.end_position + from_age[stage], from + 1);
    if (position > to || position >= gone) break;
    // Of stages that are due at once, the last one.
    if (events->size() > first_new && events->back().position == position) events->pop_back();
    events->push_back({position, entry, static_cast<int>(stage), false});
  }
  if (gone <= to) events->push_back({gone, entry, 0, true});
}

int64_t PageSchedule::FirstEvent(const Span& page) const {
  int64_t event = kNoEvent;
  const size_t next = NextStage(page);
  if (!IsExact(page.first_position) && next < from_age.size() && from_age[next] < kNever)
    event = page.end_position + from_age[next];
  if (!InWindowForEver(page)) event = std::min(event, page.end_position + window_tokens);
  return event;
}

// --- growth ---

bool PageTable::LastIsOpen() const {
  if (entries_.empty()) return false;
  const TableEntry& last = entries_.back();
  return last.stage < 0 && last.rows < schedule_->page_tokens && last.page->tokens_per_row == 1 &&
         last.page->HasRungs(schedule_->open_rung, schedule_->open_rung);
}

bool PageTable::CanGrow(int64_t next_position) const {
  return LastIsOpen() && entries_.back().EndPosition() == next_position;
}

int PageTable::RoomAt(int64_t next_position) const {
  return CanGrow(next_position) ? schedule_->page_tokens - entries_.back().rows : 0;
}

void PageTable::Reserve(size_t more) {
  const size_t wanted = entries_.size() + more;
  if (wanted > entries_.capacity())
    entries_.reserve(std::max({size_t{8}, wanted, 2 * entries_.capacity()}));
}

void PageTable::Add(TableEntry entry) {
  live_rows_ += entry.live.Count();
  entries_.push_back(std::move(entry));
  event_known_ = false;  // the page before is complete now
}

void PageTable::AddRows(size_t index, int count) {
  TableEntry& entry = entries_[index];
  entry.live.Fill(entry.rows, entry.rows + count, true);
  entry.rows += count;
  live_rows_ += count;
  if (entry.rows == schedule_->page_tokens) event_known_ = false;
}

void PageTable::RollBack(size_t size, int rows) {
  while (entries_.size() > size) {
    live_rows_ -= entries_.back().live.Count();
    entries_.pop_back();
  }
  if (!entries_.empty()) {
    TableEntry& last = entries_.back();
    const int before = last.live.Count();
    last.live.Fill(rows, schedule_->page_tokens, false);
    live_rows_ -= before - last.live.Count();
    last.rows = rows;
  }
  event_known_ = false;
}

// --- changes ---

void PageTable::Replace(size_t index, PageRef page) {
  entries_[index].page = std::move(page);
  entries_[index].prepared = PageRef();
}

void PageTable::Demote(size_t index, PageRef page, int stage) {
  Replace(index, std::move(page));
  entries_[index].stage = stage;
  event_known_ = false;
}

void PageTable::Kill(int64_t begin, int64_t end) {
  CountEdit();
  for (TableEntry& entry : entries_) {
    const Page& page = *entry.page;
    if (entry.EndPosition() <= begin || page.first_position >= end) continue;
    const auto row_at = [&](int64_t position) {
      return static_cast<int>(std::clamp<int64_t>(
          (position - page.first_position) / page.tokens_per_row, 0, entry.rows));
    };
    const int before = entry.live.Count();
    entry.live.Fill(begin <= page.first_position ? 0 : row_at(begin), row_at(end), false);
    live_rows_ -= before - entry.live.Count();
  }
  DropIf([](const TableEntry& entry) { return entry.live.Count() == 0; });
  event_known_ = false;
}

void PageTable::Truncate(int64_t position) {
  Kill(position, PageSchedule::kNoEvent);
  if (entries_.empty() || entries_.back().EndPosition() <= position) return;
  TableEntry& last = entries_.back();
  last.rows = static_cast<int>((position - last.page->first_position) / last.page->tokens_per_row);
  last.prepared = PageRef();
  // Exact rows may grow again; a step copies the page if someone else still needs it.
  if (last.page->HasRungs(schedule_->open_rung, schedule_->open_rung)) last.stage = last.wish = -1;
}

void PageTable::Assign(std::vector<TableEntry> entries) {
  entries_ = std::move(entries);
  live_rows_ = 0;
  for (const TableEntry& entry : entries_) live_rows_ += entry.live.Count();
  event_known_ = false;
}

// --- events ---

int64_t PageTable::NextEvent() const {
  if (event_known_) return next_event_;
  next_event_ = PageSchedule::kNoEvent;
  for (size_t i = 0; i < entries_.size() && !held_; ++i) {
    if (IsComplete(i))
      next_event_ = std::min(next_event_, schedule_->FirstEvent(SpanOf(entries_[i])));
  }
  event_known_ = true;
  return next_event_;
}

std::vector<PageEvent> PageTable::Events(int64_t from, int64_t to) const {
  std::vector<PageEvent> events;
  if (NextEvent() > to) return events;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (IsComplete(i)) schedule_->AddEvents(SpanOf(entries_[i]), i, from, to, &events);
  }
  // What leaves the window goes before what is demoted at the same moment.
  std::sort(events.begin(), events.end(), [](const PageEvent& a, const PageEvent& b) {
    return std::tuple(a.position, !a.drop, a.entry) < std::tuple(b.position, !b.drop, b.entry);
  });
  return events;
}

}  // namespace varve
