// The step protocol: BeginStep reserves or changes nothing, Append and Attend work layer by layer,
// EndStep commits; any error in between rolls back.

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>

#include "cache/cache_impl.h"

namespace varve {
namespace {

// From how many rows on Append spreads the KV heads over threads.
constexpr int kParallelAppendTokens = 8;

// Queries that one pass of attention takes at most.
constexpr int kPassQueries = 1024;

// Far beyond any position, far from overflow.
constexpr int64_t kLongestWindow = int64_t{1} << 60;

std::string Name(SequenceId id) { return "sequence " + std::to_string(id.value); }

uint64_t MostBytesToRead(const Page& unread) {
  return unread.IsPacked() ? PackedArena::MostBytes(unread.HeldBytes())
                           : MostSlotBytes(unread.bytes);
}

}  // namespace

// True if the last page of the layer can take the next token as it stands or as a copy.
bool CacheImpl::CanGrow(int layer, const Sequence& sequence) const {
  const LayerTable& table = sequence.layers[layer];
  if (table.entries.empty()) return false;
  const TableEntry& last = table.entries.back();
  const Rung* open = layer_plans_[layer].open_rung;
  return last.stage < 0 && last.HasRoom(shape_.page_tokens) && last.page->key_rung == open &&
         last.page->value_rung == open && last.EndPosition() == sequence.next_position;
}

Result<int> CacheImpl::MaxStepTokens(SequenceId id) const {
  VARVE_ASSIGN_OR_RETURN(auto found, Find(id));
  const Sequence& sequence = *found;
  int64_t most = shape_.page_tokens;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    const LayerTable& table = sequence.layers[layer];
    if (CanGrow(layer, sequence))
      most = std::min<int64_t>(most, shape_.page_tokens - table.entries.back().rows);
    if (table.next_event != LayerTable::kNoEvent) {
      // An event that is overdue (memory was short) waits for the end of the step.
      most =
          std::min<int64_t>(most, std::max<int64_t>(1, table.next_event - sequence.next_position));
    }
  }
  return static_cast<int>(retention_.TokensToNextPlan(sequence, most));
}

Status CacheImpl::CheckEntries(std::span<const StepEntry> entries) const {
  if (entries.empty()) return InvalidArgument("BeginStep: no sequence given");
  std::unordered_set<uint64_t> seen;
  for (const StepEntry& entry : entries) {
    VARVE_ASSIGN_OR_RETURN(int most, MaxStepTokens(entry.sequence));
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

Status CacheImpl::CheckRoom(std::span<const StepEntry> entries) {
  if (options_.max_bytes == 0) return Status();
  uint64_t bytes = 0;
  Ageing::Extra extra;
  std::unordered_set<const Page*> seen;
  std::unordered_set<const Page*> unread;
  for (const StepEntry& entry : entries) {
    const Sequence& sequence = *sequences_.at(entry.sequence.value);
    const int64_t next_position = sequence.next_position + entry.num_tokens;
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      const LayerPlan& plan = layer_plans_[layer];
      const LayerTable& table = sequence.layers[layer];
      const size_t open_payload = store_.PageBytes(*plan.open_rung, *plan.open_rung);
      const uint64_t open_bytes = MostSlotBytes(open_payload);
      if (store_.num_unread() > 0) {
        // The step will ask for all of them.
        for (const TableEntry& page : table.entries) {
          if (page.page->unread != nullptr && unread.insert(page.page).second)
            bytes += MostBytesToRead(*page.page);
        }
      }
      const bool grows = CanGrow(layer, sequence);
      if (!grows || table.entries.back().page->refs > 1) bytes += open_bytes;
      if (grows && table.entries.back().page->IsPacked()) bytes += open_bytes;
      if (table.next_event <= next_position) {
        ageing_.CountExtra(plan, table, next_position, seen, &extra);
      }
      // The page that this step fills may be sealed at its end, too.
      const int rows = (grows ? table.entries.back().rows : 0) + entry.num_tokens;
      const LayerPlan::Stage& first = plan.stages.front();
      if (rows == shape_.page_tokens && first.from_age == 0 && !table.unfolded &&
          (first.k != plan.open_rung || first.v != plan.open_rung)) {
        ageing_.AddExtra(first, LeastSlotBytes(open_payload), &extra);
      }
    }
  }
  const uint64_t wanted = bytes + extra.growth + extra.transient;
  Status room = store_.pool().CheckRoom(wanted);
  if (room.ok() || !packing_.active()) return room;
  // What workers have packed meanwhile, and pages that are restored beside their packed form, make
  // room for new ones.
  packing_.MakeRoomForStep();
  return store_.pool().CheckRoom(wanted);
}

Status CacheImpl::ReserveLayer(Sequence& sequence, int layer, StepSequence::Layer& undo) {
  LayerTable& table = sequence.layers[layer];
  const Rung& open = *layer_plans_[layer].open_rung;
  if (!CanGrow(layer, sequence)) {
    // Room in the table first: nothing may throw once the page exists.
    if (table.entries.size() == table.entries.capacity()) {
      table.entries.reserve(std::max<size_t>(8, 2 * table.entries.capacity()));
    }
    Result<Page*> page =
        store_.Make(layer, sequence.next_position, PageState::kFilling, open, open);
    if (!page.ok()) return page.status();
    table.entries.emplace_back().page = *page;
    undo.new_entry = true;
    return Status();
  }
  TableEntry& last = table.entries.back();
  VARVE_RETURN_IF_ERROR(store_.Read({&last.page, 1}, executor_));
  undo.rows_before = last.rows;
  // Cut by Truncate, and packed before or since.
  VARVE_RETURN_IF_ERROR(packing_.UnpackForGood(last.page));
  if (last.page->refs > 1) {
    // Copy on write.
    VARVE_ASSIGN_OR_RETURN(
        auto copy, store_.Make(layer, last.page->first_position, PageState::kFilling, open, open));
    store_.CopyContent(*last.page, copy);
    undo.original = last.page;
    last.page = copy;
  } else {
    undo.state_before = last.page->state;
    store_.SetState(last.page, PageState::kFilling);
    last.page->pack_tried = false;
  }
  store_.Detach(last.page);
  last.page->rows = last.rows;
  return Status();
}

Status CacheImpl::BeginStep(std::span<const StepEntry> entries) {
  if (step_open_) return FailedPrecondition("BeginStep: a step is open; end or abort it first");
  VARVE_RETURN_IF_ERROR(CheckEntries(entries));
  // What the policies have decided comes first, also if the step then finds no room: it may be what
  // makes room.
  for (const StepEntry& entry : entries)
    retention_.ApplyPlans(entry.sequence, *sequences_.at(entry.sequence.value));
  VARVE_RETURN_IF_ERROR(CheckRoom(entries));
  step_open_ = true;
  step_.clear();
  // Also if the heap gives out on the way: what was reserved is rolled back.
  struct RollBack {
    CacheImpl* cache;
    ~RollBack() {
      if (cache != nullptr) cache->AbortStep();
    }
  } roll_back{this};
  for (const StepEntry& entry : entries) {
    StepSequence& step = step_.emplace_back();
    step.id = entry.sequence;
    step.sequence = sequences_.at(entry.sequence.value).get();
    step.tokens = entry.num_tokens;
    step.layers.reserve(shape_.num_layers);
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      StepSequence::Layer undo;
      Status status = ReserveLayer(*step.sequence, layer, undo);
      if (!status.ok()) return Fail(std::move(status));
      step.layers.push_back(undo);  // only what was reserved is ever rolled back
    }
  }
  roll_back.cache = nullptr;
  return Status();
}

CacheImpl::StepSequence* CacheImpl::FindInStep(SequenceId id) {
  for (StepSequence& step : step_) {
    if (step_open_ && step.id == id) return &step;
  }
  return nullptr;
}

Status CacheImpl::Fail(Status status) {
  AbortStep();
  return status;
}

void CacheImpl::AbortStep() {
  if (!step_open_) return;
  for (StepSequence& step : step_) {
    for (size_t layer = 0; layer < step.layers.size(); ++layer) {
      const StepSequence::Layer& undo = step.layers[layer];
      LayerTable& table = step.sequence->layers[layer];
      TableEntry& last = table.entries.back();
      table.live_rows -= undo.appended;
      if (undo.new_entry) {
        store_.Release(last.page);
        table.entries.pop_back();
        continue;
      }
      last.rows = undo.rows_before;
      last.live.Fill(undo.rows_before, shape_.page_tokens, false);
      if (undo.original != nullptr) {
        store_.Release(last.page);
        last.page = undo.original;
      } else {
        last.page->rows = undo.rows_before;
        store_.SetState(last.page, undo.state_before);
      }
    }
  }
  if (packing_.active()) packing_.Collect();
  step_.clear();
  step_open_ = false;
}

Status CacheImpl::CheckRows(int layer, const StepSequence* step, const RowsView& keys,
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
  const int left = step->tokens - step->layers[layer].appended;
  if (keys.num_tokens < 1 || keys.num_tokens > left) {
    return InvalidArgument("Append: " + Name(step->id) + ", layer " + std::to_string(layer) +
                           ": num_tokens " + std::to_string(keys.num_tokens) + " is outside 1 … " +
                           std::to_string(left) + " (left in this step)");
  }
  return Status();
}

Status CacheImpl::Append(int layer, SequenceId id, const RowsView& keys, const RowsView& values) {
  if (!step_open_) return FailedPrecondition("Append: no step is open");
  StepSequence* step = FindInStep(id);
  if (step == nullptr) {
    Result<Sequence*> found = Find(id);
    return Fail(found.ok() ? FailedPrecondition("Append: " + Name(id) + " is not part of this step")
                           : found.status());
  }
  Status checked = CheckRows(layer, step, keys, values);
  if (!checked.ok()) return Fail(std::move(checked));

  LayerTable& table = step->sequence->layers[layer];
  TableEntry& entry = table.entries.back();
  const Page& page = *entry.page;
  const auto write = [&](size_t head, int worker) {
    StageClock clock(stages_.For(worker));
    const auto part = [&](Part which, const RowsView& rows, const StripShape& shape,
                          const Rung& rung, std::byte* strip) {
      const ptrdiff_t head_stride = rows.head_stride != 0 ? rows.head_stride : shape.dim;
      const ptrdiff_t token_stride =
          rows.token_stride != 0 ? rows.token_stride : head_stride * shape_.num_kv_heads;
      rung.WriteRows(which, shape, strip, entry.rows, rows.num_tokens,
                     rows.data + static_cast<ptrdiff_t>(head) * head_stride, token_stride);
    };
    const int h = static_cast<int>(head);
    part(Part::kKey, keys, store_.KeyShape(layer, h), *page.key_rung, page.KeyStrip(h));
    part(Part::kValue, values, store_.ValueShape(layer, h), *page.value_rung, page.ValueStrip(h));
    clock.Lap(&StageTimes::append_us);
    clock.Count(&StageTimes::rows_appended, 2 * static_cast<uint64_t>(keys.num_tokens));
  };
  const size_t heads = static_cast<size_t>(shape_.num_kv_heads);
  if (keys.num_tokens >= kParallelAppendTokens) {
    executor_->ParallelFor(heads, write);
  } else {
    for (size_t head = 0; head < heads; ++head) write(head, 0);
  }
  entry.live.Fill(entry.rows, entry.rows + keys.num_tokens, true);
  entry.rows += keys.num_tokens;
  entry.page->rows = entry.rows;
  table.live_rows += keys.num_tokens;
  step->layers[layer].appended += keys.num_tokens;
  return Status();
}

Status CacheImpl::CheckRequests(int layer, std::span<const AttendRequest> requests,
                                const AttendOptions& options,
                                std::vector<AttentionRequest>* checked) {
  if (layer < 0 || layer >= shape_.num_layers) {
    return InvalidArgument("Attend: layer " + std::to_string(layer) + " is outside 0 … " +
                           std::to_string(shape_.num_layers - 1));
  }
  if (!std::isfinite(options.scale)) {
    return InvalidArgument("Attend: scale " + std::to_string(options.scale) + " is not finite");
  }
  if (!std::isfinite(options.soft_cap) || options.soft_cap < 0) {
    return InvalidArgument("Attend: soft_cap " + std::to_string(options.soft_cap) +
                           " is not a finite number >= 0");
  }
  if (options.window < 0) {
    return InvalidArgument("Attend: window " + std::to_string(options.window) + " < 0");
  }
  for (const AttendRequest& request : requests) {
    VARVE_ASSIGN_OR_RETURN(auto found, Find(request.sequence));
    const StepSequence* step = FindInStep(request.sequence);
    if (request.queries == nullptr || request.output == nullptr) {
      return InvalidArgument("Attend: " + Name(request.sequence) + ": " +
                             (request.queries == nullptr ? "queries" : "output") + " is null");
    }
    const int64_t end = found->next_position + (step != nullptr ? step->tokens : 0);
    int64_t most = step != nullptr ? step->tokens : std::max<int64_t>(1, end);
    if (!options.causal) most = 1 << 20;
    if (request.num_queries < 1 || request.num_queries > most) {
      return InvalidArgument("Attend: " + Name(request.sequence) + ": num_queries " +
                             std::to_string(request.num_queries) + " is outside 1 … " +
                             std::to_string(most));
    }
    if (step != nullptr && step->layers[layer].appended != step->tokens) {
      return FailedPrecondition("Attend: " + Name(request.sequence) + ", layer " +
                                std::to_string(layer) + ": " +
                                std::to_string(step->layers[layer].appended) + " of " +
                                std::to_string(step->tokens) + " rows appended");
    }
    checked->push_back({&request, &found->layers[layer], end - request.num_queries});
  }
  return Status();
}

class CacheImpl::MassTap final : public AttentionObserver {
 public:
  explicit MassTap(CacheImpl* cache) : cache_(cache) {}
  void OnAttention(const AttentionMass& mass) override {
    if (cache_->options_.observer != nullptr) cache_->options_.observer->OnAttention(mass);
    StepSequence* step = cache_->FindInStep(mass.sequence);
    if (step == nullptr || !cache_->retention_.NeedsMass(mass.layer)) return;
    RetentionDriver::Collect(mass, step->sequence->next_position, step->tokens,
                             &step->layers[static_cast<size_t>(mass.layer)].mass);
  }

 private:
  CacheImpl* cache_;
};

Status CacheImpl::Attend(int layer, std::span<const AttendRequest> requests,
                         const AttendOptions& options) {
  std::vector<AttentionRequest> checked;
  Status status = CheckRequests(layer, requests, options, &checked);
  for (const AttentionRequest& request : checked) {
    if (status.ok()) status = ReadIn(*request.table);
  }
  if (!status.ok()) return Fail(std::move(status));
  AttendOptions bounded = options;
  bounded.window = std::min(options.window, kLongestWindow);
  // Long requests go in pieces, so that work buffers have a bound. A row's result does not depend
  // on the rows beside it.
  std::vector<AttendRequest> pieces;
  std::vector<AttentionRequest> pass;
  pieces.reserve(requests.size());
  for (const AttentionRequest& whole : checked) {
    for (int first = 0; first < whole.request->num_queries; first += kPassQueries) {
      pieces.push_back(Piece(*whole.request, first));
    }
  }
  if (packing_.active()) {
    std::vector<const Sequence*> sequences;
    for (const AttendRequest& request : requests) sequences.push_back(*Find(request.sequence));
    status = packing_.Prepare(layer, sequences);
    if (!status.ok()) return Fail(std::move(status));
  }
  size_t next = 0;
  MassTap tap(this);
  AttentionObserver* observer = retention_.NeedsMass(layer) ? &tap : options_.observer;
  const auto run = [&] {
    if (status.ok()) status = attention_.Run(layer, layer_spaces_[layer], pass, bounded, observer);
    pass.clear();
  };
  int queries = 0;
  for (const AttentionRequest& whole : checked) {
    for (int first = 0; first < whole.request->num_queries; first += kPassQueries) {
      const AttendRequest& piece = pieces[next++];
      if (!pass.empty() && queries + piece.num_queries > kPassQueries) {
        run();
        queries = 0;
      }
      pass.push_back({&piece, whole.table, whole.first_query_position + first});
      queries += piece.num_queries;
    }
  }
  run();
  if (packing_.active()) packing_.Finish(layer);
  return status.ok() ? Status() : Fail(std::move(status));
}

// At most kPassQueries queries of a request, from `first` on.
AttendRequest CacheImpl::Piece(const AttendRequest& whole, int first) const {
  const ptrdiff_t heads = static_cast<ptrdiff_t>(shape_.num_kv_heads) * shape_.group_size;
  const auto stride = [heads](ptrdiff_t token_stride, ptrdiff_t head_stride, int dim) {
    return token_stride != 0 ? token_stride : heads * (head_stride != 0 ? head_stride : dim);
  };
  AttendRequest piece = whole;
  piece.num_queries = std::min(whole.num_queries - first, kPassQueries);
  piece.queries +=
      first * stride(whole.query_token_stride, whole.query_head_stride, shape_.key_dim);
  piece.output +=
      first * stride(whole.output_token_stride, whole.output_head_stride, shape_.value_dim);
  if (whole.log_sum_exp != nullptr) piece.log_sum_exp += first * heads;
  return piece;
}

Status CacheImpl::EndStep() {
  if (!step_open_) return FailedPrecondition("EndStep: no step is open");
  for (const StepSequence& step : step_) {
    for (size_t layer = 0; layer < step.layers.size(); ++layer) {
      if (step.layers[layer].appended == step.tokens) continue;
      return Fail(
          FailedPrecondition("EndStep: " + Name(step.id) + ", layer " + std::to_string(layer) +
                             ": " + std::to_string(step.layers[layer].appended) + " of " +
                             std::to_string(step.tokens) + " rows appended; step rolled back"));
    }
  }
  for (StepSequence& step : step_) {
    step.sequence->next_position += step.tokens;
    for (const StepSequence::Layer& layer : step.layers) {
      if (layer.original != nullptr) store_.Release(layer.original);
    }
  }
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    for (StepSequence& step : step_) {
      LayerTable& table = step.sequence->layers[layer];
      retention_.Commit(layer, table, step.layers[static_cast<size_t>(layer)].mass);
      Page* page = table.entries.back().page;
      const bool fills = page->state == PageState::kFilling && page->rows == shape_.page_tokens;
      if (fills) store_.SetState(page, PageState::kFull);
      // A new page completes the one before, also where that has room: behind a hole it stays so.
      if (fills || step.layers[static_cast<size_t>(layer)].new_entry)
        table.next_event = ageing_.NextEvent(layer_plans_[layer], table);
      if (table.next_event <= step.sequence->next_position) {
        ageing_.Apply(layer_plans_[layer], table, step.sequence->next_position);
      }
    }
  }
  if (retention_.active()) {
    for (StepSequence& step : step_) {
      retention_.MakePlans(*step.sequence);
      retention_.CountStep(*step.sequence);
    }
  }
  // The step is committed from here on.
  const std::vector<StepSequence> done = std::exchange(step_, {});
  step_open_ = false;
  if (packing_.active()) {
    for (const StepSequence& step : done) packing_.Advance(*step.sequence, step.tokens);
    packing_.EndStep();
  }
  return Status();
}

}  // namespace varve
