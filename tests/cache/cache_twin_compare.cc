// The comparing half of CacheTwin: stored rows bit for bit, attention within what the rungs allow.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/cache/cache_twin.h"

namespace varve {
namespace {

std::string At(SequenceId id, int layer) {
  return "sequence " + std::to_string(id.value) + ", layer " + std::to_string(layer);
}

Status Difference(const std::string& what, double got, double wanted) {
  return Internal(what + ": the cache has " + std::to_string(got) + ", the reference " +
                  std::to_string(wanted));
}

}  // namespace

double AttentionTolerance(std::string_view key_rung, std::string_view value_rung) {
  const auto is = [](std::string_view rung, std::string_view family) {
    return rung.substr(0, 4) == family;
  };
  double tolerance = 1e-5;
  if (is(key_rung, "q8_0")) tolerance += 2e-4;
  if (is(key_rung, "q4_0") || key_rung.starts_with("t")) tolerance += 3e-2;
  if (is(value_rung, "q8_0")) tolerance += 2e-4;
  // Coarse weights: up to 1/8 of the split's mass in 127 levels, errors of many tokens add up.
  if (is(value_rung, "q4_0") || value_rung.starts_with("t")) tolerance += 1e-2;
  // Scores within 1e-4 of |q||k|, 5e-3 with codes of 4 bits; weights in 8 bits.
  if (key_rung.starts_with("pq")) tolerance += key_rung.ends_with("x4") ? 3e-2 : 1e-3;
  if (value_rung.starts_with("pq")) tolerance += value_rung.ends_with("x4") ? 3e-2 : 1.5e-2;
  return tolerance;
}

Status CacheTwin::CompareAttention(int layer, const Request& request, const AttendOptions& options,
                                   const float* queries, const float* output,
                                   const float* log_sum_exp) const {
  const ReferenceAttention wanted = reference_.Attend(
      layer, request.id, queries, request.num_queries, request.first_position, options);
  double tolerance = 0.0;
  float largest = 1.0f;
  const auto widen = [&](const std::vector<ReferencePage>& pages) {
    for (const ReferencePage& page : pages) {
      tolerance =
          std::max(tolerance, AttentionTolerance(page.key_rung->name(), page.value_rung->name()));
      for (const ReferenceRow& row : page.rows) {
        for (float x : row.value)
          largest = std::max(largest, std::isfinite(x) ? std::abs(x) : 0.0f);
      }
    }
  };
  widen(reference_.pages(request.id, layer));
  for (size_t token = 0; token < reference_.step_tokens(request.id, layer); ++token)
    widen(reference_.step_view(request.id, layer, token));
  // Scores of twice the usual scale have twice the error.
  tolerance *= std::max(1.0, std::abs(options.scale) * std::sqrt(shape().key_dim));
  const auto close = [](double got, double want, double within) {
    if (std::isnan(want) || std::isinf(want))
      return std::isnan(want) ? std::isnan(got) : got == want;
    return std::abs(got - want) <= within;
  };
  for (size_t i = 0; i < wanted.output.size(); ++i) {
    if (close(output[i], wanted.output[i], tolerance * largest)) continue;
    return Difference(At(request.id, layer) + ", output " + std::to_string(i), output[i],
                      wanted.output[i]);
  }
  for (size_t i = 0; i < wanted.log_sum_exp.size(); ++i) {
    const double want = wanted.log_sum_exp[i];
    if (close(log_sum_exp[i], want, tolerance * (1.0 + std::abs(want)))) continue;
    return Difference(At(request.id, layer) + ", log_sum_exp " + std::to_string(i), log_sum_exp[i],
                      want);
  }
  return Status();
}

// --- everything that can be read ---

Status CacheTwin::Compare() const {
  uint64_t rows = 0;
  for (SequenceId id : sequences_) {
    VARVE_RETURN_IF_ERROR(CompareSequence(id));
    for (int layer = 0; layer < shape().num_layers; ++layer)
      rows += reference_.live_rows(id, layer);
  }
  const CacheStats stats = cache_->Stats();
  const uint64_t row_bytes = 2ull * shape().num_kv_heads * (shape().key_dim + shape().value_dim);
  if (stats.sequences != sequences_.size())
    return Difference("sequences", stats.sequences, sequences_.size());
  if (stats.bytes_f16 != rows * row_bytes)
    return Difference("bytes_f16", stats.bytes_f16, rows * row_bytes);
  return Status();
}

Status CacheTwin::CompareSequence(SequenceId id) const {
  const int64_t seen = *cache_->TokensSeen(id);
  if (seen != reference_.tokens_seen(id))
    return Difference(At(id, 0) + ", TokensSeen", seen, reference_.tokens_seen(id));
  for (int layer = 0; layer < shape().num_layers; ++layer) {
    const SequenceInfo info = *cache_->Describe(id, layer);
    const std::string at = At(id, layer);
    const std::vector<ReferencePage>& pages = reference_.pages(id, layer);
    if (info.next_position != reference_.next_position(id)) {
      return Difference(at + ", next_position", info.next_position, reference_.next_position(id));
    }
    if (info.live_rows != reference_.live_rows(id, layer)) {
      return Difference(at + ", live_rows", info.live_rows, reference_.live_rows(id, layer));
    }
    if (info.pages.size() != pages.size())
      return Difference(at + ", pages", info.pages.size(), pages.size());
    for (size_t p = 0; p < pages.size(); ++p) {
      const PageSpan& span = info.pages[p];
      const int rows = static_cast<int>(pages[p].rows.size());
      const int64_t positions = pages[p].end_position() - pages[p].first_position;
      if (span.first_position == pages[p].first_position && span.num_positions == positions &&
          span.num_rows == rows && span.num_live_rows == pages[p].num_live()) {
        continue;
      }
      return Difference(at + ", rows of page " + std::to_string(p), span.num_rows, rows);
    }
    VARVE_RETURN_IF_ERROR(CompareRows(id, layer));
  }
  return Status();
}

Status CacheTwin::CompareRows(SequenceId id, int layer) const {
  const int64_t end = reference_.next_position(id);
  for (Part part : {Part::kKey, Part::kValue}) {
    const size_t dim = part == Part::kKey ? shape().key_dim : shape().value_dim;
    std::vector<float> got((end + 1) * dim);
    for (int head = 0; head < shape().num_kv_heads; ++head) {
      VARVE_ASSIGN_OR_RETURN(const int64_t count,
                             cache_->ReadRows(id, layer, head, part, 0, end, got.data()));
      int64_t at = 0;
      for (const ReferencePage& page : reference_.pages(id, layer)) {
        for (const ReferenceRow& row : page.rows) {
          if (!row.live) continue;
          const float* want = (part == Part::kKey ? row.key : row.value).data() + head * dim;
          if (at >= count || std::memcmp(&got[at * dim], want, dim * sizeof(float)) != 0) {
            return Internal(At(id, layer) + ", head " + std::to_string(head) + ": the " +
                            (part == Part::kKey ? "key" : "value") + " of position " +
                            std::to_string(row.position) + " differs from the reference");
          }
          ++at;
        }
      }
      if (at != count) return Difference(At(id, layer) + ", rows read", count, at);
    }
  }
  return Status();
}

}  // namespace varve
