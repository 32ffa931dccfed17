#include "cache/ageing.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "pages/strip_reader.h"

namespace varve {

// Every page but one at the end of the table that can still grow.
bool Ageing::Completed(const LayerTable& table, const TableEntry& entry) const {
  return &entry != &table.entries.back() || entry.stage >= 0 || !entry.HasRoom(shape_.page_tokens);
}

int Ageing::DueStage(const LayerPlan& plan, const TableEntry& entry, int64_t next_position) const {
  const int64_t age = next_position - entry.EndPosition();
  int stage = entry.stage;  // never back up the ladder
  for (int s = stage + 1; s < static_cast<int>(plan.stages.size()); ++s) {
    if (plan.stages[s].from_age <= age) stage = s;
  }
  return stage;
}

bool Ageing::OutOfWindow(const LayerPlan& plan, const TableEntry& entry,
                         int64_t next_position) const {
  return plan.window_tokens > 0 && entry.page->first_position >= plan.sink_tokens &&
         next_position - entry.EndPosition() >= plan.window_tokens;
}

int64_t Ageing::NextEvent(const LayerPlan& plan, const LayerTable& table) const {
  int64_t event = LayerTable::kNoEvent;
  if (table.unfolded) return event;
  for (const TableEntry& entry : table.entries) {
    if (!Completed(table, entry)) continue;
    const int64_t end = entry.EndPosition();
    if (entry.stage + 1 < static_cast<int>(plan.stages.size())) {
      event = std::min(event, end + plan.stages[entry.stage + 1].from_age);
    }
    if (plan.window_tokens > 0 && entry.page->first_position >= plan.sink_tokens) {
      event = std::min(event, end + plan.window_tokens);
    }
  }
  return event;
}

void Ageing::Apply(const LayerPlan& plan, LayerTable& table, int64_t next_position) {
  counters_.dropped += DropEntries(*store_, table, [&](const TableEntry& entry) {
    return Completed(table, entry) && OutOfWindow(plan, entry, next_position);
  });
  for (TableEntry& entry : table.entries) {
    if (!Completed(table, entry)) continue;
    const int due = DueStage(plan, entry, next_position);
    if (due == entry.stage) continue;
    if (Sink(entry, plan.stages[due])) entry.stage = due;
  }
  table.next_event = NextEvent(plan, table);
}

bool Ageing::SinkTo(const LayerPlan& plan, int stage, TableEntry& entry) {
  if (!Sink(entry, plan.stages[static_cast<size_t>(stage)])) return false;
  entry.stage = stage;
  return true;
}

bool Ageing::Sink(TableEntry& entry, const LayerPlan::Stage& stage) {
  Page* page = entry.page;
  if (page->key_rung == stage.k && page->value_rung == stage.v) {
    if (page->state < PageState::kSealed) store_->SetState(page, PageState::kSealed);
    return true;
  }
  Page* successor = page->successor;
  if (successor != nullptr && successor->key_rung == stage.k && successor->value_rung == stage.v) {
    store_->AddRef(successor);
    ++counters_.adopted;
  } else {
    // Bytes that fail their check are no matter of ageing: whoever asks for the page is told.
    if (page->unread != nullptr && !store_->Read({&page, 1}, executor_).ok()) return false;
    successor = Encode(*page, stage);
    if (successor == nullptr) return false;
    ++(page->state >= PageState::kSealed ? counters_.demoted : counters_.sealed);
    if (page->successor != nullptr) page->successor->predecessor = nullptr;
    page->successor = successor;
    successor->predecessor = page;
  }
  entry.page = successor;
  store_->Release(page);
  return true;
}

Page* Ageing::Encode(const Page& from, const LayerPlan::Stage& stage) {
  Result<Page*> made =
      store_->Make(from.layer, from.first_position, PageState::kSealed, *stage.k, *stage.v);
  if (!made.ok()) return nullptr;
  Page* to = *made;
  to->rows = from.rows;
  to->tokens_per_row = from.tokens_per_row;
  std::atomic<uint64_t> nonfinite{0};
  std::atomic<bool> restored{true};
  const int heads = shape_.num_kv_heads;
  executor_->ParallelFor(2 * static_cast<size_t>(heads), [&](size_t task, int worker) {
    StageClock clock(stages_->For(worker));
    const int head = static_cast<int>(task) / 2;
    const Part part = task % 2 == 0 ? Part::kKey : Part::kValue;
    const bool key = part == Part::kKey;
    const Rung* old_rung = key ? from.key_rung : from.value_rung;
    const Rung* new_rung = key ? to->key_rung : to->value_rung;
    StripReader reader(shape_);
    const std::byte* source = reader.Get(from, part, head);
    if (!reader.status().ok()) {
      restored = false;
      return;
    }
    std::byte* target = key ? to->KeyStrip(head) : to->ValueStrip(head);
    if (old_rung == new_rung) {
      std::memcpy(target, source, key ? from.key_strip_bytes : from.value_strip_bytes);
      return;
    }
    const StripShape shape =
        key ? store_->KeyShape(from.layer, head) : store_->ValueShape(from.layer, head);
    std::vector<float> rows(static_cast<size_t>(from.rows) * shape.dim);
    old_rung->Decode(part, shape, source, 0, from.rows, rows.data());
    nonfinite += new_rung->Encode(part, shape, rows.data(), from.rows, target);
    clock.Lap(&StageTimes::encode_us);
    clock.Count(&StageTimes::rows_encoded, static_cast<uint64_t>(from.rows));
  });
  if (!restored) {
    ++counters_.not_restored;
    store_->Release(to);
    return nullptr;
  }
  counters_.nonfinite_values += nonfinite;
  return to;
}

void Ageing::AddExtra(const LayerPlan::Stage& stage, uint64_t old_bytes, Extra* extra) const {
  const uint64_t new_bytes = MostSlotBytes(store_->PageBytes(*stage.k, *stage.v));
  extra->transient = std::max(extra->transient, new_bytes);
  if (new_bytes > old_bytes) extra->growth += new_bytes - old_bytes;
}

void Ageing::CountExtra(const LayerPlan& plan, const LayerTable& table, int64_t next_position,
                        std::unordered_set<const Page*>& seen, Extra* extra) const {
  for (const TableEntry& entry : table.entries) {
    if (!Completed(table, entry)) continue;
    const int due = DueStage(plan, entry, next_position);
    if (due == entry.stage || !seen.insert(entry.page).second) continue;
    const LayerPlan::Stage& stage = plan.stages[due];
    if (entry.page->key_rung == stage.k && entry.page->value_rung == stage.v) continue;
    // Another sequence may keep the old page.
    AddExtra(stage, entry.page->refs > 1 ? 0 : LeastSlotBytes(entry.page->bytes), extra);
  }
}

}  // namespace varve
