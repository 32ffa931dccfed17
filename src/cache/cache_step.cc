// The step protocol: BeginStep reserves or changes nothing, Append and Attend work layer by layer
// (Attend: cache_attend.cc), EndStep commits; any error in between rolls back.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "cache/cache_impl.h"

namespace varve {
namespace {

std::string Name(SequenceId id) { return "sequence " + std::to_string(id.value); }

// `count` rows from `first` on.
RowsView Slice(const RowsView& rows, int first, int count, int dim, int kv_heads) {
  const ptrdiff_t head_stride = rows.head_stride != 0 ? rows.head_stride : dim;
  RowsView slice = rows;
  slice.head_stride = head_stride;
  slice.token_stride = rows.token_stride != 0 ? rows.token_stride : head_stride * kv_heads;
  slice.data = static_cast<const std::byte*>(rows.data) +
               first * slice.token_stride * static_cast<ptrdiff_t>(DTypeBytes(rows.dtype));
  slice.num_tokens = count;
  return slice;
}

}  // namespace

// --- begin and roll back ---

Status CacheImpl::CheckEntries(std::span<const StepEntry> entries) const {
  if (entries.empty()) return InvalidArgument("BeginStep: no sequence given");
  std::unordered_set<uint64_t> seen;
  for (const StepEntry& entry : entries) {
    VARVE_ASSIGN_OR_RETURN(auto sequence, Find(entry.sequence));
    const int64_t most = retention_.TokensToNextDecision(*sequence, kMaxStepTokens);
    if (!seen.insert(entry.sequence.value).second) {
      return InvalidArgument("BeginStep: " + Name(entry.sequence) + " is given twice");
    }
    if (entry.num_tokens < 1 || entry.num_tokens > most) {
      return InvalidArgument("BeginStep: " + Name(entry.sequence) + ": num_tokens " +
                             std::to_string(entry.num_tokens) + " is outside 1 … " +
                             std::to_string(most) + " (MaxStepTokens)");
    }
  }
  return Status();
}

Status CacheImpl::ReserveLayer(Sequence& sequence, int layer, int tokens, StepLayer* step) {
  LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  const Rung& open = *layer_plans_[static_cast<size_t>(layer)].open_rung;
  const LayerNeed need = NeedOf(sequence, layer, tokens, nullptr);
  step->size_before = table.size();
  step->rows_before = table.empty() ? 0 : table.back().rows;
  table.Reserve(static_cast<size_t>(need.new_pages));
  if (need.room > 0) VARVE_RETURN_IF_ERROR(ReopenLast(table, layer, step));
  const int64_t first = sequence.next_position + need.room;
  for (int page = 0; page < need.new_pages; ++page) {
    TableEntry entry;
    VARVE_ASSIGN_OR_RETURN(entry.page, store_.Make(layer, first + page * shape_.page_tokens,
                                                   PageState::kFilling, open, open));
    table.Add(std::move(entry));
  }
  return Status();
}

// The last page takes rows again: as it stands, or as a copy where others share it.
Status CacheImpl::ReopenLast(LayerTable& table, int layer, StepLayer* step) {
  const size_t last = table.size() - 1;
  Page* page = table.back().page.get();
  VARVE_RETURN_IF_ERROR(store_.Read({&page, 1}, executor_));
  // Cut by Truncate, and packed before or since.
  VARVE_RETURN_IF_ERROR(packing_.UnpackForGood(page));
  if (page->refs > 1) {
    const Rung& open = *layer_plans_[static_cast<size_t>(layer)].open_rung;
    VARVE_ASSIGN_OR_RETURN(
        PageRef copy, store_.Make(layer, page->first_position, PageState::kFilling, open, open));
    VARVE_RETURN_IF_ERROR(store_.CopyContent(*page, copy.get()));
    copy->rows = table.back().rows;
    step->original = table.back().page;
    table.Replace(last, std::move(copy));
  } else {
    step->life_before = page->life;
    store_.SetLife(page, PageState::kFilling);
    page->pack_tried = false;
    PageStore::Detach(page);
    page->rows = table.back().rows;
    table.SetPrepared(last, PageRef());
  }
  step->grows = true;
  return Status();
}

void CacheImpl::RollBackLayer(LayerTable& table, StepLayer& step) {
  table.RollBack(step.size_before, step.rows_before);
  if (!step.grows) return;
  if (step.original) {
    table.Replace(step.size_before - 1, std::move(step.original));
  } else {
    Page* page = table.back().page.get();
    page->rows = step.rows_before;
    store_.SetLife(page, step.life_before);
  }
}

Status CacheImpl::BeginStep(std::span<const StepEntry> entries) {
  if (step_open_) return FailedPrecondition("BeginStep: a step is open; end or abort it first");
  VARVE_RETURN_IF_ERROR(CheckEntries(entries));
  // What the policies have decided comes first, also if the step then finds no room: it may be what
  // makes room.
  for (const StepEntry& entry : entries)
    retention_.ApplyDecisions(entry.sequence, *sequences_.at(entry.sequence.value));
  VARVE_RETURN_IF_ERROR(CheckRoom(entries));
  step_.clear();
  step_.reserve(entries.size());
  for (const StepEntry& entry : entries) {
    StepSequence& step = step_.emplace_back();
    step.id = entry.sequence;
    step.sequence = sequences_.at(entry.sequence.value).get();
    step.tokens = entry.num_tokens;
    step.layers.reserve(static_cast<size_t>(shape_.num_layers));
  }
  step_open_ = true;
  return InStep([this] {
    for (StepSequence& step : step_) {
      for (int layer = 0; layer < shape_.num_layers; ++layer) {
        VARVE_RETURN_IF_ERROR(
            ReserveLayer(*step.sequence, layer, step.tokens, &step.layers.emplace_back()));
      }
    }
    return Status();
  });
}

StepSequence* CacheImpl::FindInStep(SequenceId id) {
  for (StepSequence& step : step_) {
    if (step_open_ && step.id == id) return &step;
  }
  return nullptr;
}

Status CacheImpl::InStep(const std::function<Status()>& work) {
  try {
    Status status = work();
    if (!status.ok()) AbortStep();
    return status;
  } catch (...) {
    AbortStep();
    throw;
  }
}

void CacheImpl::AbortStep() {
  if (!step_open_) return;
  for (StepSequence& step : step_) {
    for (size_t layer = 0; layer < step.layers.size(); ++layer)
      RollBackLayer(step.sequence->layers[layer], step.layers[layer]);
  }
  step_.clear();
  step_open_ = false;
  if (packing_.active()) packing_.Collect();
}

// --- append ---

Status CacheImpl::CheckRows(int layer, const StepSequence& step, const RowsView& keys,
                            const RowsView& values) const {
  if (layer < 0 || layer >= shape_.num_layers) {
    return InvalidArgument("Append: layer " + std::to_string(layer) + " is outside 0 … " +
                           std::to_string(shape_.num_layers - 1));
  }
  if (keys.data == nullptr || values.data == nullptr) {
    return InvalidArgument(std::string("Append: ") + (keys.data == nullptr ? "keys" : "values") +
                           ".data is null");
  }
  if (keys.num_tokens != values.num_tokens) {
    return InvalidArgument("Append: keys.num_tokens " + std::to_string(keys.num_tokens) +
                           " != values.num_tokens " + std::to_string(values.num_tokens));
  }
  const int left = step.tokens - step.layers[static_cast<size_t>(layer)].appended;
  if (keys.num_tokens < 1 || keys.num_tokens > left) {
    return InvalidArgument("Append: " + Name(step.id) + ", layer " + std::to_string(layer) +
                           ": num_tokens " + std::to_string(keys.num_tokens) + " is outside 1 … " +
                           std::to_string(left) + " (left in this step)");
  }
  return Status();
}

Status CacheImpl::AppendRows(int layer, SequenceId id, const RowsView& keys,
                             const RowsView& values) {
  StepSequence* step = FindInStep(id);
  if (step == nullptr) {
    VARVE_RETURN_IF_ERROR(Find(id).status());
    return FailedPrecondition("Append: " + Name(id) + " is not part of this step");
  }
  VARVE_RETURN_IF_ERROR(CheckRows(layer, *step, keys, values));

  LayerTable& table = step->sequence->layers[static_cast<size_t>(layer)];
  StepLayer& step_layer = step->layers[static_cast<size_t>(layer)];
  // The page that grows, then the new ones: the first that is not full.
  size_t index = step_layer.grows ? step_layer.size_before - 1 : step_layer.size_before;
  while (table.entries()[index].rows == shape_.page_tokens) ++index;
  std::vector<AppendJob> jobs;
  for (int done = 0; done < keys.num_tokens; ++index) {
    const TableEntry& entry = table.entries()[index];
    const int count = std::min(keys.num_tokens - done, shape_.page_tokens - entry.rows);
    jobs.push_back({entry.page.get(), entry.rows,
                    Slice(keys, done, count, shape_.key_dim, shape_.num_kv_heads),
                    Slice(values, done, count, shape_.value_dim, shape_.num_kv_heads)});
    table.AddRows(index, count);
    entry.page->rows = entry.rows;
    done += count;
  }
  VARVE_RETURN_IF_ERROR(backend_->Append(layer, jobs));
  step_layer.appended += keys.num_tokens;
  return Status();
}

// --- end ---

Status CacheImpl::AgeInStep(StepSequence& step, int layer) {
  StepLayer& step_layer = step.layers[static_cast<size_t>(layer)];
  if (step_layer.aged) return Status();
  const LayerPlan& plan = layer_plans_[static_cast<size_t>(layer)];
  const LayerTable& table = step.sequence->layers[static_cast<size_t>(layer)];
  const int64_t begin = step.sequence->next_position;
  const int64_t last = begin + step.tokens - 1;
  step_layer.aged = true;
  int64_t position = std::max(table.NextEvent(), begin + 1);
  if (position > last) return Status();
  PageTable seen = table;
  step_layer.forms.push_back({begin, table.entries()});
  while (position <= last) {
    const bool all = ageing_.Apply(plan, position, seen, &step_layer.counters);
    VARVE_RETURN_IF_ERROR(ReadIn(seen));  // adopted pages may be in a file still
    step_layer.forms.push_back({position, seen.entries()});
    // Without memory the rest waits for the step's end.
    if (!all) break;
    position = std::max(seen.NextEvent(), position + 1);
  }
  return Status();
}

void CacheImpl::CommitLayer(StepSequence& step, int layer) {
  StepLayer& step_layer = step.layers[static_cast<size_t>(layer)];
  LayerTable& table = step.sequence->layers[static_cast<size_t>(layer)];
  const size_t first = step_layer.grows ? step_layer.size_before - 1 : step_layer.size_before;
  for (size_t i = first; i < table.size(); ++i) {
    Page* page = table.entries()[i].page.get();
    if (page->life == PageState::kFilling && page->rows == shape_.page_tokens)
      store_.SetLife(page, PageState::kFull);
  }
  if (!step_layer.forms.empty()) table.Assign(std::move(step_layer.forms.back().pages));
  step_layer.forms.clear();
  step_layer.original = PageRef();
  ageing_.Count(step_layer.counters);
  retention_.Commit(layer, table, step_layer.mass);
}

Status CacheImpl::CompleteStep() {
  for (StepSequence& step : step_) {
    for (size_t layer = 0; layer < step.layers.size(); ++layer) {
      if (step.layers[layer].appended == step.tokens) continue;
      return FailedPrecondition("EndStep: " + Name(step.id) + ", layer " + std::to_string(layer) +
                                ": " + std::to_string(step.layers[layer].appended) + " of " +
                                std::to_string(step.tokens) + " rows appended; step rolled back");
    }
    for (int layer = 0; layer < shape_.num_layers; ++layer)
      VARVE_RETURN_IF_ERROR(AgeInStep(step, layer));
  }
  return Status();
}

Status CacheImpl::EndStep() {
  if (!step_open_) return FailedPrecondition("EndStep: no step is open");
  VARVE_RETURN_IF_ERROR(InStep([this] { return CompleteStep(); }));
  // Committed from here on: nothing that follows may fail the call.
  for (StepSequence& step : step_) {
    step.sequence->next_position += step.tokens;
    for (int layer = 0; layer < shape_.num_layers; ++layer) CommitLayer(step, layer);
  }
  step_open_ = false;
  for (StepSequence& step : step_) {
    AgeAtEnd(step);
    IfMemoryLasts([&] {
      if (!retention_.active()) return;
      retention_.DecideWhereDue(*step.sequence);
      retention_.CountStep(*step.sequence);
    });
    IfMemoryLasts([&] {
      if (packing_.active()) packing_.Advance(*step.sequence, step.tokens);
    });
  }
  // Exact pages of a long step were many, and all are free at once: no such step follows soon.
  const bool long_step = std::any_of(step_.begin(), step_.end(), [this](const StepSequence& step) {
    return step.tokens > shape_.page_tokens;
  });
  if (long_step) store_.pool().DropWarm();
  step_.clear();
  if (packing_.active()) packing_.EndStep();
  if (!retention_.active() || retention_.has_acted()) run_footprint_ += FootprintNow();
  IfMemoryLasts([this] { LogStep(); });
  return Status();
}

void CacheImpl::AgeAtEnd(StepSequence& step) {
  Sequence& sequence = *step.sequence;
  Ageing::Counters counters;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    IfMemoryLasts([&] {
      AgeLayer(sequence, layer, &counters);
      if (step.tokens > 1) return;
      const auto index = static_cast<size_t>(layer);
      ageing_.Prepare(layer_plans_[index], layer, shape_.num_layers, sequence.next_position,
                      sequence.layers[index]);
    });
  }
  ageing_.Count(counters);
}

void CacheImpl::AgeLayer(Sequence& sequence, int layer, Ageing::Counters* counters) {
  LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  if (table.NextEvent() > sequence.next_position) return;
  ageing_.Apply(layer_plans_[static_cast<size_t>(layer)], sequence.next_position, table, counters);
}

}  // namespace varve
