#include "cache/cache_impl.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cache/cache_device.h"
#include "pages/strip_reader.h"

namespace varve {
namespace {

Status CheckLimit(const char* field, int64_t value, int64_t lowest, int64_t highest) {
  if (value >= lowest && value <= highest) return Status();
  return InvalidArgument(std::string("cache shape: ") + field + " " + std::to_string(value) +
                         " is outside " + std::to_string(lowest) + " … " + std::to_string(highest));
}

Status CheckShape(const CacheShape& shape) {
  VARVE_RETURN_IF_ERROR(CheckLimit("num_layers", shape.num_layers, 1, 1024));
  VARVE_RETURN_IF_ERROR(CheckLimit("num_kv_heads", shape.num_kv_heads, 1, 1024));
  VARVE_RETURN_IF_ERROR(CheckLimit("group_size", shape.group_size, 1, 64));
  VARVE_RETURN_IF_ERROR(CheckLimit("key_dim", shape.key_dim, 16, kMaxDim));
  VARVE_RETURN_IF_ERROR(CheckLimit("value_dim", shape.value_dim, 16, kMaxDim));
  const int page = shape.page_tokens;
  if (page != 0 && page != 16 && page != 32 && page != 64 && page != 128) {
    return InvalidArgument("cache shape: page_tokens " + std::to_string(page) +
                           " is not 16, 32, 64 or 128");
  }
  return Status();
}

// Pages that are encoded in one call.
constexpr size_t kEncodeBatch = 16;

LayerSpaces SpacesOf(const LayerPlan& plan) {
  LayerSpaces spaces;
  spaces.Add(plan.open_rung, plan.open_rung);
  for (const LayerPlan::Stage& stage : plan.stages) spaces.Add(stage.k, stage.v);
  return spaces;
}

const char* StateName(const TableEntry& entry, const LayerPlan& plan) {
  if (plan.rest_stage >= 0 && entry.stage == plan.rest_stage) return "idle";
  if (entry.page->state() != PageState::kFull) return PageStateName(entry.page->state());
  return entry.page->first_position < plan.exact_tokens ? "exact" : "open";
}

Status CheckPool(const CacheOptions& options) {
  if (options.pool == nullptr) return Status();
  if (options.max_bytes != 0) {
    return InvalidArgument("cache options: max_bytes " + std::to_string(options.max_bytes) +
                           " is not 0; the cap of a shared pool is that of MakePagePool");
  }
  if (options.memory == nullptr) return Status();
  return InvalidArgument("cache options: memory is not null; hand it to MakePagePool");
}

PoolShare PoolOf(const CacheOptions& options, Backend* backend) {
  if (options.pool != nullptr) return PoolShare(options.pool);
  return {backend->memory(), options.max_bytes != 0 ? options.max_bytes : backend->pool_bytes()};
}

}  // namespace

Result<std::unique_ptr<Cache>> Cache::Create(const CacheShape& shape, CacheOptions options) {
  return CreateCache(shape, std::move(options), CacheServices());
}

Result<std::unique_ptr<Cache>> CreateCache(const CacheShape& shape, CacheOptions options,
                                           const CacheServices& services) {
  VARVE_RETURN_IF_ERROR(CheckShape(shape));
  VARVE_RETURN_IF_ERROR(CheckPool(options));
  auto rungs = std::make_unique<PlanRungs>(options.codebook, options.model_fingerprint, shape,
                                           *services.kernels);
  auto compressors = std::make_unique<PlanCompressors>(options.compressor, shape);
  VARVE_ASSIGN_OR_RETURN(ResolvedPlan resolved,
                         ResolvePlan(options.plan, shape, {rungs.get(), compressors.get()}));
  if (options.num_threads < 0 || options.num_threads > 1024) {
    return InvalidArgument("cache options: num_threads " + std::to_string(options.num_threads) +
                           " is outside 0 … 1024");
  }
  CacheParts parts;
  VARVE_ASSIGN_OR_RETURN(parts.device,
                         MakeBackendOfDevice(resolved.shape, options, rungs->Bind(resolved.layers),
                                             services.make_cuda));
  const PackSettings& packing = resolved.packing;
  if (!packing.spill_file.empty()) {
    VARVE_ASSIGN_OR_RETURN(
        parts.spill, SpillFile::Create(packing.spill_file, packing.spill_bytes, services.disk));
  }
  return std::unique_ptr<Cache>(
      std::make_unique<CacheImpl>(std::move(options), services, std::move(resolved),
                                  std::move(rungs), std::move(compressors), std::move(parts)));
}

CacheImpl::CacheImpl(CacheOptions options, const CacheServices& services, ResolvedPlan plan,
                     std::unique_ptr<PlanRungs> rungs, std::unique_ptr<PlanCompressors> compressors,
                     CacheParts parts)
    : shape_(plan.shape),
      options_(std::move(options)),
      services_(services),
      settled_plan_(std::move(plan.plan)),
      rungs_(std::move(rungs)),
      compressors_(std::move(compressors)),
      layer_plans_(rungs_->Bind(plan.layers)),
      own_executor_(options_.executor == nullptr ? MakeThreadPool(options_.num_threads) : nullptr),
      executor_(options_.executor != nullptr ? options_.executor : own_executor_.get()),
      stages_(options_.time_stages, executor_->num_threads()),
      backend_(parts.device != nullptr ? std::move(parts.device)
                                       : MakeCpuBackend(shape_, *services_.kernels, options_.memory,
                                                        executor_, &stages_)),
      store_(shape_, PoolOf(options_, backend_.get()), backend_->device_bytes()),
      ageing_(&store_, backend_.get(), executor_, store_.pool().has_cap() ? 1 : kEncodeBatch),
      retention_(shape_, layer_plans_, sequences_, &store_, &ageing_, options_.retention_observer),
      folding_(shape_, layer_plans_, *services_.kernels, &store_, executor_),
      packing_(shape_, layer_plans_, plan.packing, &store_, executor_, services_.pack_work) {
  plan_notes_ = std::move(plan.notes);
  if (parts.spill != nullptr) store_.SetSpill(std::move(parts.spill));
  for (const LayerPlan& layer : layer_plans_) {
    layer_spaces_.push_back(SpacesOf(layer));
    schedules_.push_back(ScheduleOf(layer, shape_.page_tokens));
  }
}

CacheImpl::~CacheImpl() {
  AbortStep();
  sequences_.clear();
}

// --- sequences ---

Result<Sequence*> CacheImpl::Find(SequenceId id) const {
  const auto found = sequences_.find(id.value);
  if (found != sequences_.end()) return found->second.get();
  return NotFound("sequence " + std::to_string(id.value) +
                  (id.value != 0 && id.value < next_id_ ? " has been freed" : " does not exist"));
}

Result<Sequence*> CacheImpl::FindIdle(SequenceId id, const char* call) const {
  if (step_open_)
    return FailedPrecondition(std::string(call) + ": a step is open; end or abort it first");
  return Find(id);
}

Result<SequenceId> CacheImpl::CreateSequence() {
  if (step_open_)
    return FailedPrecondition("CreateSequence: a step is open; end or abort it first");
  auto sequence = std::make_unique<Sequence>();
  for (const PageSchedule& schedule : schedules_) sequence->layers.emplace_back(&schedule);
  folding_.Begin(*sequence);
  const SequenceId id{next_id_++};
  sequences_.emplace(id.value, std::move(sequence));
  return id;
}

Result<SequenceId> CacheImpl::Fork(SequenceId source) {
  VARVE_ASSIGN_OR_RETURN(auto found, FindIdle(source, "Fork"));
  auto copy = std::make_unique<Sequence>(*found);
  const SequenceId id{next_id_++};
  sequences_.emplace(id.value, std::move(copy));
  return id;
}

Status CacheImpl::Free(SequenceId id) {
  VARVE_RETURN_IF_ERROR(FindIdle(id, "Free").status());
  sequences_.erase(id.value);
  if (packing_.active()) packing_.Collect();
  return Status();
}

Status CacheImpl::CheckCut(const Sequence& sequence, int64_t begin, int64_t end) const {
  for (const LayerTable& table : sequence.layers) {
    for (const TableEntry& entry : table.entries()) {
      const Page& page = *entry.page;
      if (page.tokens_per_row == 1) continue;
      for (const int64_t cut : {begin, end}) {
        if (cut > page.first_position && cut < entry.EndPosition() &&
            (cut - page.first_position) % page.tokens_per_row != 0) {
          return InvalidArgument("position " + std::to_string(cut) +
                                 " lies inside a folded row of the page at " +
                                 std::to_string(page.first_position) + " (" +
                                 std::to_string(page.tokens_per_row) + " tokens a row)");
        }
      }
    }
  }
  return Status();
}

Status CacheImpl::Truncate(SequenceId id, int64_t position) {
  VARVE_ASSIGN_OR_RETURN(auto found, FindIdle(id, "Truncate"));
  Sequence& sequence = *found;
  if (position < 0 || position > sequence.next_position) {
    return InvalidArgument("Truncate: position " + std::to_string(position) + " is outside 0 … " +
                           std::to_string(sequence.next_position));
  }
  VARVE_RETURN_IF_ERROR(CheckCut(sequence, position, sequence.next_position));
  for (LayerTable& table : sequence.layers) table.Truncate(position);
  sequence.next_position = position;
  sequence.prompt_begin = std::min(sequence.prompt_begin, position);
  // Of a prompt that is gone nothing has been seen. Of one that is cut in the middle nobody knows
  // which tokens are left: all count.
  std::erase_if(sequence.restarts,
                [position](const PositionRestart& restart) { return restart.begin >= position; });
  if (!sequence.restarts.empty())
    sequence.restarts.back().end = std::min(sequence.restarts.back().end, position);
  return Status();
}

Status CacheImpl::RemoveRange(SequenceId id, int64_t begin, int64_t end) {
  VARVE_ASSIGN_OR_RETURN(auto found, FindIdle(id, "RemoveRange"));
  Sequence& sequence = *found;
  if (begin < 0 || begin > end || end > sequence.next_position) {
    return InvalidArgument("RemoveRange: [" + std::to_string(begin) + ", " + std::to_string(end) +
                           ") is not inside [0, " + std::to_string(sequence.next_position) + ")");
  }
  VARVE_RETURN_IF_ERROR(CheckCut(sequence, begin, end));
  for (LayerTable& table : sequence.layers) table.Kill(begin, end);
  return Status();
}

Status CacheImpl::KeepOnly(SequenceId id, int64_t begin, int64_t end) {
  VARVE_ASSIGN_OR_RETURN(auto found, FindIdle(id, "KeepOnly"));
  Sequence& sequence = *found;
  if (begin < 0 || begin > end || end > sequence.next_position) {
    return InvalidArgument("KeepOnly: [" + std::to_string(begin) + ", " + std::to_string(end) +
                           ") is not inside [0, " + std::to_string(sequence.next_position) + ")");
  }
  VARVE_RETURN_IF_ERROR(CheckCut(sequence, begin, end));
  for (LayerTable& table : sequence.layers) {
    table.Kill(0, begin);
    table.Kill(end, sequence.next_position);
  }
  return Status();
}

Status CacheImpl::SlideWindow(SequenceId id, int64_t num_tokens, int64_t sink_tokens) {
  VARVE_ASSIGN_OR_RETURN(auto found, FindIdle(id, "SlideWindow"));
  if (num_tokens < 1)
    return InvalidArgument("SlideWindow: num_tokens " + std::to_string(num_tokens) + " < 1");
  if (sink_tokens < 0)
    return InvalidArgument("SlideWindow: sink_tokens " + std::to_string(sink_tokens) + " < 0");
  Sequence& sequence = *found;
  for (LayerTable& table : sequence.layers) {
    table.CountEdit();
    ageing_.CountDropped(table.DropIf([&](const TableEntry& entry) {
      return entry.page->first_position >= sink_tokens &&
             sequence.next_position - entry.EndPosition() >= num_tokens;
    }));
  }
  return Status();
}

Result<int64_t> CacheImpl::NextPosition(SequenceId id) const {
  VARVE_ASSIGN_OR_RETURN(auto found, Find(id));
  return found->next_position;
}

Result<int64_t> CacheImpl::TokensSeen(SequenceId id) const {
  VARVE_ASSIGN_OR_RETURN(auto found, Find(id));
  return found->tokens_seen();
}

Result<SequenceInfo> CacheImpl::Describe(SequenceId id, int layer) const {
  VARVE_ASSIGN_OR_RETURN(auto found, Find(id));
  if (layer < 0 || layer >= shape_.num_layers) {
    return InvalidArgument("Describe: layer " + std::to_string(layer) + " is outside 0 … " +
                           std::to_string(shape_.num_layers - 1));
  }
  const LayerTable& table = found->layers[layer];
  SequenceInfo info;
  info.next_position = found->next_position;
  info.live_rows = table.live_rows();
  for (const TableEntry& entry : table.entries()) {
    info.pages.push_back({entry.page->first_position,
                          entry.EndPosition() - entry.page->first_position, entry.rows,
                          entry.live.Count()});
    info.forms.push_back({StateName(entry, layer_plans_[static_cast<size_t>(layer)]),
                          std::string(entry.page->rung(Part::kKey).descriptor().name),
                          std::string(entry.page->rung(Part::kValue).descriptor().name)});
  }
  return info;
}

// --- content ---

Result<int64_t> CacheImpl::ReadRows(SequenceId id, int layer, int kv_head, Part part, int64_t begin,
                                    int64_t end, float* out) const {
  VARVE_ASSIGN_OR_RETURN(auto found, Find(id));
  if (layer < 0 || layer >= shape_.num_layers) {
    return InvalidArgument("ReadRows: layer " + std::to_string(layer) + " is outside 0 … " +
                           std::to_string(shape_.num_layers - 1));
  }
  if (kv_head < 0 || kv_head >= shape_.num_kv_heads) {
    return InvalidArgument("ReadRows: kv_head " + std::to_string(kv_head) + " is outside 0 … " +
                           std::to_string(shape_.num_kv_heads - 1));
  }
  if (begin > end) {
    return InvalidArgument("ReadRows: begin " + std::to_string(begin) + " > end " +
                           std::to_string(end));
  }
  if (out == nullptr) return InvalidArgument("ReadRows: out is null");
  const StripShape shape = store_.ShapeOf(part, layer, kv_head);
  std::vector<float> rows(static_cast<size_t>(shape.page_tokens) * shape.dim);
  StripReader reader(shape_);
  int64_t count = 0;
  for (const TableEntry& entry : found->layers[layer].entries()) {
    if (entry.EndPosition() <= begin || entry.page->first_position >= end) continue;
    Page* page = entry.page.get();
    VARVE_RETURN_IF_ERROR(store_.Read({&page, 1}, executor_));
    const std::byte* strip = reader.Get(*page, part, kv_head);
    VARVE_RETURN_IF_ERROR(reader.status());
    page->rung(part).Decode(part, shape, strip, 0, entry.rows, rows.data());
    for (int row = 0; row < entry.rows; ++row) {
      const int64_t position = entry.page->RowPosition(row);
      if (!entry.live.Get(row) || position < begin || position >= end) continue;
      std::copy_n(rows.data() + static_cast<size_t>(row) * shape.dim, shape.dim,
                  out + count * shape.dim);
      ++count;
    }
  }
  return count;
}

}  // namespace varve
