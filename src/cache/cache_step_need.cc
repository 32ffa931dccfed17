// What a step will take: pages, copies, bytes to read, and the forms that fall due inside it.

#include <algorithm>
#include <unordered_set>

#include "base/align.h"
#include "cache/cache_impl.h"

namespace varve {
namespace {

uint64_t MostBytesToRead(const Page& unread) {
  return unread.IsPacked() ? PackedArena::MostBytes(unread.HeldBytes())
                           : MostSlotBytes(unread.bytes);
}

}  // namespace

LayerNeed CacheImpl::NeedOf(const Sequence& sequence, int layer, int tokens,
                            std::unordered_set<const Page*>* seen) const {
  const LayerPlan& plan = layer_plans_[static_cast<size_t>(layer)];
  const LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  const uint64_t open_bytes = MostSlotBytes(store_.PageBytes(*plan.open_rung, *plan.open_rung));
  LayerNeed need;
  need.room = std::min(tokens, table.RoomAt(sequence.next_position));
  need.new_pages = CeilDiv(tokens - need.room, shape_.page_tokens);
  if (need.room > 0) {
    const Page& last = *table.back().page;
    need.copies = last.refs > 1;
    if (need.copies) need.bytes += open_bytes;
    if (last.IsPacked()) need.bytes += open_bytes;
  }
  need.bytes += static_cast<uint64_t>(need.new_pages) * open_bytes;
  if (seen == nullptr) return need;  // nobody counts
  if (store_.num_unread() > 0) {
    // The step will ask for all of them.
    for (const TableEntry& entry : table.entries()) {
      if (entry.page->unread() != nullptr && seen->insert(entry.page.get()).second)
        need.bytes += MostBytesToRead(*entry.page);
    }
  }
  if (!table.held()) AddForms(sequence, layer, tokens, seen, &need);
  return need;
}

void CacheImpl::AddForms(const Sequence& sequence, int layer, int tokens,
                         std::unordered_set<const Page*>* seen, LayerNeed* need) const {
  const LayerPlan& plan = layer_plans_[static_cast<size_t>(layer)];
  const LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  const PageSchedule& schedule = table.schedule();
  const int64_t begin = sequence.next_position;
  const int64_t end = begin + tokens;
  const size_t open_payload = store_.PageBytes(*plan.open_rung, *plan.open_rung);
  const auto add = [&](const PageSchedule::Span& span, const Page* page) {
    std::vector<PageEvent> events;
    schedule.AddEvents(span, 0, begin, end, &events);
    uint64_t old_bytes = LeastSlotBytes(page != nullptr ? page->bytes : open_payload);
    // Another sequence may keep the old page.
    if (page != nullptr && page->refs > 1) old_bytes = 0;
    for (const PageEvent& event : events) {
      if (event.drop) continue;
      const LayerPlan::Stage& stage = plan.stages[static_cast<size_t>(event.stage)];
      if (page != nullptr && page->HasRungs(stage.k, stage.v)) continue;
      if (page == nullptr && stage.k == plan.open_rung && stage.v == plan.open_rung) continue;
      const size_t payload = store_.PageBytes(*stage.k, *stage.v);
      const uint64_t new_bytes = MostSlotBytes(payload);
      const uint64_t freed = event.position == end ? old_bytes : 0;
      need->transient = std::max(need->transient, new_bytes);
      if (new_bytes > freed) need->growth += new_bytes - freed;
      old_bytes = LeastSlotBytes(payload);
    }
  };
  for (size_t i = 0; table.NextEvent() <= end && i < table.size(); ++i) {
    const TableEntry& entry = table.entries()[i];
    if (table.IsComplete(i) && (entry.page->refs == 1 || seen->insert(entry.page.get()).second))
      add({entry.page->first_position, entry.EndPosition(), entry.stage}, entry.page.get());
  }
  // Pages that the step itself fills.
  const int64_t first = need->room > 0 ? table.back().page->first_position : begin;
  for (int64_t page = first; page + shape_.page_tokens <= end; page += shape_.page_tokens)
    add({page, page + shape_.page_tokens, -1}, nullptr);
}

uint64_t CacheImpl::BytesFor(std::span<const StepEntry> entries) const {
  uint64_t bytes = 0;
  uint64_t transient = 0;
  std::unordered_set<const Page*> seen;
  for (const StepEntry& entry : entries) {
    const Sequence& sequence = *sequences_.at(entry.sequence.value);
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      const LayerNeed need = NeedOf(sequence, layer, entry.num_tokens, &seen);
      bytes += need.bytes + need.growth;
      transient = std::max(transient, need.transient);
    }
  }
  return bytes + transient;
}

Result<int> CacheImpl::MaxStepTokens(SequenceId id) const {
  VARVE_ASSIGN_OR_RETURN(auto sequence, Find(id));
  auto most = static_cast<int>(retention_.TokensToNextDecision(*sequence, kMaxStepTokens));
  if (!store_.pool().has_cap()) return most;
  // Under a cap as many as there is room for, roughly: exact rows and their sealed forms lie side
  // by side while the step lasts.
  while (most > 1) {
    const StepEntry entry{id, most};
    if (store_.pool().HasRoom(BytesFor({&entry, 1}))) break;
    most /= 2;
  }
  return most;
}

Status CacheImpl::CheckRoom(std::span<const StepEntry> entries) {
  if (!store_.pool().has_cap()) return Status();
  const uint64_t wanted = BytesFor(entries);
  Status room = store_.pool().CheckRoom(wanted);
  if (room.ok() || !packing_.active()) return room;
  // What workers have packed meanwhile, and pages that are restored beside their packed form, make
  // room for new ones.
  packing_.MakeRoomForStep();
  return store_.pool().CheckRoom(wanted);
}

}  // namespace varve
