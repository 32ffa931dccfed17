#include "tests/cache/cache_twin.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

namespace varve {
namespace {

std::unique_ptr<Cache> MakeCache(const CacheShape& shape, std::string_view text,
                                 CacheOptions options) {
  Result<Plan> plan = ParsePlan(text);
  if (plan.ok()) options.plan = *plan;
  Result<std::unique_ptr<Cache>> cache = Cache::Create(shape, std::move(options));
  if (plan.ok() && cache.ok()) return std::move(*cache);
  const Status& status = plan.ok() ? cache.status() : plan.status();
  std::fprintf(stderr, "CacheTwin: %s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace

// The sum of four uniforms, scaled to variance 1: close enough, and cheap.
float RowRandom::Gaussian() {
  const uint64_t bits = Bits();
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xFFFF) * 0x1p-16f;
  return (sum - 2.0f) * 1.7320508f;
}

std::vector<float> RowRandom::Gaussians(size_t count) {
  std::vector<float> values(count);
  for (float& x : values) x = Gaussian();
  return values;
}

CacheTwin::CacheTwin(const CacheShape& shape, std::string_view plan, const CacheOptions& options,
                     uint64_t seed)
    : cache_(MakeCache(shape, plan, options)),
      reference_(cache_->shape(), cache_->plan(), options.codebook, options.compressor),
      random_(seed) {}

// --- sequences ---

SequenceId CacheTwin::Create() {
  const SequenceId id = *cache_->CreateSequence();
  reference_.Create(id);
  sequences_.push_back(id);
  return id;
}

Result<SequenceId> CacheTwin::Fork(SequenceId source) {
  Result<SequenceId> id = cache_->Fork(source);
  if (!id.ok()) return id;
  reference_.Fork(source, *id);
  sequences_.push_back(*id);
  return id;
}

Status CacheTwin::Free(SequenceId id) {
  VARVE_RETURN_IF_ERROR(cache_->Free(id));
  reference_.Free(id);
  std::erase(sequences_, id);
  return Compare();
}

Status CacheTwin::Truncate(SequenceId id, int64_t position) {
  VARVE_RETURN_IF_ERROR(cache_->Truncate(id, position));
  reference_.Truncate(id, position);
  return Compare();
}

Status CacheTwin::RemoveRange(SequenceId id, int64_t begin, int64_t end) {
  VARVE_RETURN_IF_ERROR(cache_->RemoveRange(id, begin, end));
  reference_.RemoveRange(id, begin, end);
  return Compare();
}

Status CacheTwin::KeepOnly(SequenceId id, int64_t begin, int64_t end) {
  VARVE_RETURN_IF_ERROR(cache_->KeepOnly(id, begin, end));
  reference_.KeepOnly(id, begin, end);
  return Compare();
}

Status CacheTwin::SlideWindow(SequenceId id, int64_t num_tokens, int64_t sink_tokens) {
  VARVE_RETURN_IF_ERROR(cache_->SlideWindow(id, num_tokens, sink_tokens));
  reference_.SlideWindow(id, num_tokens, sink_tokens);
  return Compare();
}

Status CacheTwin::Rest(SequenceId id, int64_t begin, int64_t end) {
  VARVE_RETURN_IF_ERROR(cache_->Rest(id, begin, end).status());
  reference_.Rest(id, begin, end);
  return Compare();
}

Status CacheTwin::BeginPrompt(SequenceId id) {
  VARVE_RETURN_IF_ERROR(cache_->BeginPrompt(id));
  reference_.BeginPrompt(id);
  return Compare();
}

Status CacheTwin::EndPrompt(SequenceId id, bool fold) {
  VARVE_RETURN_IF_ERROR(cache_->EndPrompt(id, {.fold = fold}));
  reference_.EndPrompt(id, fold);
  return Compare();
}

// --- steps ---

CacheTwin::Rows CacheTwin::MakeRows(int num_tokens) {
  const size_t heads = static_cast<size_t>(shape().num_kv_heads);
  Rows rows = {random_.Gaussians(num_tokens * heads * shape().key_dim),
               random_.Gaussians(num_tokens * heads * shape().value_dim)};
  for (int t = 0; rows_per_nan_ > 0 && t < num_tokens; ++t) {
    if (random_.Below(rows_per_nan_) != 0) continue;
    std::vector<float>& part = random_.Below(2) == 0 ? rows.keys : rows.values;
    part[random_.Below(static_cast<int>(part.size()))] = std::numeric_limits<float>::quiet_NaN();
  }
  return rows;
}

// In two parts where there are two tokens or more.
Status CacheTwin::AppendRows(int layer, const StepEntry& entry) {
  for (int done = 0; done < entry.num_tokens;) {
    const int left = entry.num_tokens - done;
    const int count = done == 0 && left > 1 ? 1 + random_.Below(left) : left;
    const Rows rows = MakeRows(count);
    VARVE_RETURN_IF_ERROR(cache_->Append(layer, entry.sequence, {rows.keys.data(), count, 0, 0},
                                         {rows.values.data(), count, 0, 0}));
    reference_.Append(layer, entry.sequence, rows.keys.data(), rows.values.data(), count);
    done += count;
  }
  return Status();
}

Status CacheTwin::Step(std::span<const StepEntry> entries, const AttendOptions& options) {
  VARVE_RETURN_IF_ERROR(cache_->BeginStep(entries));
  std::vector<Request> requests;
  for (const StepEntry& entry : entries) {
    requests.push_back(
        {entry.sequence, entry.num_tokens, reference_.next_position(entry.sequence)});
  }
  for (int layer = 0; layer < shape().num_layers; ++layer) {
    for (const StepEntry& entry : entries) VARVE_RETURN_IF_ERROR(AppendRows(layer, entry));
    VARVE_RETURN_IF_ERROR(AttendAll(layer, requests, options));
  }
  VARVE_RETURN_IF_ERROR(cache_->EndStep());
  for (const StepEntry& entry : entries) reference_.Commit(entry.sequence, entry.num_tokens);
  return Compare();
}

Status CacheTwin::AbortedStep(std::span<const StepEntry> entries, int num_layers) {
  VARVE_RETURN_IF_ERROR(cache_->BeginStep(entries));
  const ReferenceCache before = reference_;
  for (int layer = 0; layer < num_layers; ++layer) {
    for (const StepEntry& entry : entries) VARVE_RETURN_IF_ERROR(AppendRows(layer, entry));
  }
  cache_->AbortStep();
  reference_ = before;
  return Compare();
}

Status CacheTwin::Grow(SequenceId id, int64_t tokens, const AttendOptions& options) {
  while (tokens > 0) {
    VARVE_ASSIGN_OR_RETURN(const int most, cache_->MaxStepTokens(id));
    // Up to some three pages: the reference keeps what every token of a step sees.
    const int64_t wanted = 1 + random_.Below(3 * shape().page_tokens);
    const StepEntry entry = {id, static_cast<int>(std::min<int64_t>({most, tokens, wanted}))};
    VARVE_RETURN_IF_ERROR(Step({&entry, 1}, options));
    tokens -= entry.num_tokens;
  }
  return Status();
}

// --- attention ---

Status CacheTwin::Attend(int layer, SequenceId id, int num_queries, const AttendOptions& options) {
  const Request request = {id, num_queries, reference_.next_position(id) - num_queries};
  return AttendAll(layer, {&request, 1}, options);
}

Status CacheTwin::AttendAll(int layer, std::span<const Request> requests,
                            const AttendOptions& options) {
  const size_t heads = static_cast<size_t>(shape().num_kv_heads) * shape().group_size;
  struct Buffers {
    std::vector<float> queries, output, log_sum_exp;
  };
  std::vector<Buffers> buffers;
  std::vector<AttendRequest> batch;
  for (const Request& request : requests) {
    const size_t rows = request.num_queries * heads;
    buffers.push_back({random_.Gaussians(rows * shape().key_dim),
                       std::vector<float>(rows * shape().value_dim, 7.0f),
                       std::vector<float>(rows, 7.0f)});
    batch.push_back({request.id, request.num_queries, buffers.back().queries.data(), 0, 0,
                     buffers.back().output.data(), 0, 0, buffers.back().log_sum_exp.data()});
  }
  VARVE_RETURN_IF_ERROR(cache_->Attend(layer, batch, options));
  for (size_t i = 0; i < requests.size(); ++i) {
    VARVE_RETURN_IF_ERROR(CompareAttention(layer, requests[i], options, buffers[i].queries.data(),
                                           buffers[i].output.data(),
                                           buffers[i].log_sum_exp.data()));
  }
  return Status();
}

}  // namespace varve
