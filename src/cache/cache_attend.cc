// Attend: checks requests, finds the form in which each query sees the pages, and hands them to the
// back end.

#include <algorithm>
#include <cmath>
#include <string>

#include "cache/cache_impl.h"

namespace varve {
namespace {

// Queries that one pass of attention takes at most: its work buffers have a bound.
constexpr int kPassQueries = 1024;

// Far beyond any position, far from overflow.
constexpr int64_t kLongestWindow = int64_t{1} << 60;

std::string Name(SequenceId id) { return "sequence " + std::to_string(id.value); }

Status CheckOptions(const AttendOptions& options) {
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
  return Status();
}

}  // namespace

Status CacheImpl::CheckRequest(int layer, const AttendRequest& request, bool causal) {
  VARVE_ASSIGN_OR_RETURN(auto sequence, Find(request.sequence));
  const StepSequence* step = FindInStep(request.sequence);
  if (request.queries == nullptr || request.output == nullptr) {
    return InvalidArgument("Attend: " + Name(request.sequence) + ": " +
                           (request.queries == nullptr ? "queries" : "output") + " is null");
  }
  int64_t most = step != nullptr ? step->tokens : std::max<int64_t>(1, sequence->next_position);
  if (!causal) most = 1 << 20;
  if (request.num_queries < 1 || request.num_queries > most) {
    return InvalidArgument("Attend: " + Name(request.sequence) + ": num_queries " +
                           std::to_string(request.num_queries) + " is outside 1 … " +
                           std::to_string(most));
  }
  if (step == nullptr) return Status();
  const int appended = step->layers[static_cast<size_t>(layer)].appended;
  if (appended == step->tokens) return Status();
  return FailedPrecondition("Attend: " + Name(request.sequence) + ", layer " +
                            std::to_string(layer) + ": " + std::to_string(appended) + " of " +
                            std::to_string(step->tokens) + " rows appended");
}

// The queries [first, first + count) of a request.
AttendRequest CacheImpl::Piece(const AttendRequest& whole, int first, int count) const {
  const ptrdiff_t heads = static_cast<ptrdiff_t>(shape_.num_kv_heads) * shape_.group_size;
  const auto stride = [heads](ptrdiff_t token_stride, ptrdiff_t head_stride, int dim) {
    return token_stride != 0 ? token_stride : heads * (head_stride != 0 ? head_stride : dim);
  };
  AttendRequest piece = whole;
  piece.num_queries = count;
  const auto bytes = [first](ptrdiff_t values, DType dtype) {
    return first * values * static_cast<ptrdiff_t>(DTypeBytes(dtype));
  };
  piece.queries = static_cast<const std::byte*>(whole.queries) +
                  bytes(stride(whole.query_token_stride, whole.query_head_stride, shape_.key_dim),
                        whole.query_dtype);
  piece.output =
      static_cast<std::byte*>(whole.output) +
      bytes(stride(whole.output_token_stride, whole.output_head_stride, shape_.value_dim),
            whole.output_dtype);
  if (whole.log_sum_exp != nullptr) piece.log_sum_exp += first * heads;
  return piece;
}

// Cuts a request where pages take another form, and into passes. A row's result does not depend on
// the rows beside it.
Status CacheImpl::CutRequest(int layer, const AttendRequest& request, bool causal,
                             std::vector<QueryRun>* runs) {
  const Sequence& sequence = **Find(request.sequence);
  const LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  StepSequence* step = FindInStep(request.sequence);
  const int64_t end = sequence.next_position + (step != nullptr ? step->tokens : 0);
  const int64_t first = end - request.num_queries;
  std::span<const PageForms> forms;
  if (step != nullptr) {
    VARVE_RETURN_IF_ERROR(AgeInStep(*step, layer));
    forms = step->layers[static_cast<size_t>(layer)].forms;
  }
  size_t form = 0;
  for (int query = 0; query < request.num_queries;) {
    const int64_t position = first + query;
    // Without causal every query sees what the step's last one does.
    while (form + 1 < forms.size() && (!causal || forms[form + 1].from <= position)) ++form;
    int count = std::min(request.num_queries - query, kPassQueries);
    if (form + 1 < forms.size())
      count = static_cast<int>(std::min<int64_t>(count, forms[form + 1].from - position));
    std::span<const TableEntry> pages = forms.empty() ? table.entries() : forms[form].pages;
    // Pages that begin behind the last query are nobody's here.
    while (causal && !pages.empty() && pages.back().page->first_position >= position + count) {
      pages = pages.first(pages.size() - 1);
    }
    runs->push_back({Piece(request, query, count), pages, position});
    query += count;
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
    const auto layer = static_cast<size_t>(mass.layer);
    RetentionDriver::Collect(mass, step->sequence->layers[layer], step->sequence->next_position,
                             step->tokens, &step->layers[layer].mass);
  }

 private:
  CacheImpl* cache_;
};

Status CacheImpl::CheckAttend(int layer, std::span<const AttendRequest> requests,
                              const AttendOptions& options) {
  if (layer < 0 || layer >= shape_.num_layers) {
    return InvalidArgument("Attend: layer " + std::to_string(layer) + " is outside 0 … " +
                           std::to_string(shape_.num_layers - 1));
  }
  VARVE_RETURN_IF_ERROR(CheckOptions(options));
  for (const AttendRequest& request : requests)
    VARVE_RETURN_IF_ERROR(CheckRequest(layer, request, options.causal));
  return Status();
}

Status CacheImpl::AttendLayer(int layer, std::span<const AttendRequest> requests,
                              const AttendOptions& options) {
  std::vector<const Sequence*> sequences;
  for (const AttendRequest& request : requests) {
    sequences.push_back(*Find(request.sequence));
    VARVE_RETURN_IF_ERROR(ReadIn(sequences.back()->layers[static_cast<size_t>(layer)]));
  }
  std::vector<QueryRun> runs;
  for (const AttendRequest& request : requests)
    VARVE_RETURN_IF_ERROR(CutRequest(layer, request, options.causal, &runs));
  if (packing_.active()) VARVE_RETURN_IF_ERROR(packing_.Prepare(layer, sequences));
  Status status = AttendRuns(layer, runs, options);
  if (packing_.active()) packing_.Finish(layer, status);
  return status;
}

Status CacheImpl::AttendRuns(int layer, std::span<const QueryRun> runs,
                             const AttendOptions& options) {
  AttendOptions bounded = options;
  bounded.window = std::min(options.window, kLongestWindow);
  MassTap tap(this);
  AttentionObserver* observer = retention_.NeedsMass(layer) ? &tap : options_.observer;
  std::vector<AttentionRequest> pass;
  for (size_t next = 0; next < runs.size();) {
    pass.clear();
    for (int queries = 0; next < runs.size(); ++next) {
      const QueryRun& run = runs[next];
      if (!pass.empty() && queries + run.request.num_queries > kPassQueries) break;
      pass.push_back({&run.request, run.pages, run.first_position});
      queries += run.request.num_queries;
    }
    VARVE_RETURN_IF_ERROR(backend_->Attend(layer, layer_spaces_[static_cast<size_t>(layer)], pass,
                                           bounded, observer));
  }
  return Status();
}

}  // namespace varve
