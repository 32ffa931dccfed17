#include "cuda/testing/attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/half.h"
#include "base/random.h"
#include "cuda/testing/check.h"
#include "cuda/testing/cpu_rungs.h"
#include "cuda/testing/device_buffer.h"
#include "cuda/testing/pq_book.h"

namespace varve::cuda::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class Gaussian {
 public:
  explicit Gaussian(uint64_t seed) : random_(seed) {}
  float Next() {
    const double u = (static_cast<double>(random_.Next() >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(random_.Next() >> 11) * 0x1p-53;
    return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }

 private:
  SplitMix64 random_;
};

Strip MakeStrip(DeviceRung id, bool key, const CaseSpec& spec, int num_rows, Gaussian& random) {
  const Rung& rung = *CpuRung(id);
  const Part part = key ? Part::kKey : Part::kValue;
  const StripShape shape = {0, 0, spec.head_dim, spec.page_tokens};
  std::vector<float> rows(static_cast<size_t>(spec.page_tokens) * spec.head_dim);
  std::vector<float> mean(static_cast<size_t>(spec.head_dim));
  for (float& x : mean) x = key ? random.Next() : 0.0f;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = random.Next() + mean[i % mean.size()];
  Strip strip;
  // What encoding leaves alone is NaN: rows of float strips that are not there.
  strip.bytes.assign(rung.StripBytes(part, shape), std::byte{0xFF});
  if (id == DeviceRung::kF16 || id == DeviceRung::kBF16) {
    rung.WriteRows(part, shape, strip.bytes.data(), 0, num_rows, rows.data(), spec.head_dim);
  } else {
    rung.Encode(part, shape, rows.data(), num_rows, strip.bytes.data());
  }
  strip.rows.resize(rows.size());
  rung.Decode(part, shape, strip.bytes.data(), 0, num_rows, strip.rows.data());
  return strip;
}

bool IsLive(const DevicePage& page, int row) {
  return (page.live[row / 64] >> (row % 64) & 1) != 0;
}

// Everything on the host.
struct Batch {
  std::vector<std::byte> pool;
  std::vector<size_t> offsets;  // of pages in the pool
  std::vector<DevicePage> pages;
  std::vector<int32_t> page_begin = {0};
  // [page][kv_head] of K and V
  std::vector<Strip> keys, values;
  std::vector<uint16_t> queries;  // f16
  std::vector<PqBook> books[2];   // of K and V, by KV head
};

// The codebooks of a part, one behind the other.
struct DeviceBooks {
  DeviceBuffer<uint8_t> centroids;
  DeviceBuffer<float> scales;
  DeviceBuffer<uint16_t> rotation;
  DeviceBuffer<uint8_t> rows, pair_rows;

  template <class T>
  static std::vector<T> Join(const std::vector<PqBook>& books, std::vector<T> PqBook::*values) {
    std::vector<T> all;
    for (const PqBook& book : books)
      all.insert(all.end(), (book.*values).begin(), (book.*values).end());
    return all;
  }
  template <class RowsOfBook>
  static std::vector<uint8_t> JoinRows(const std::vector<PqBook>& books,
                                       const RowsOfBook& rows_of) {
    std::vector<uint8_t> all;
    for (const PqBook& book : books) {
      const std::vector<uint8_t> rows = rows_of(book);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }
  DeviceBooks(const std::vector<PqBook>& books, bool value)
      : centroids(Join(books, &PqBook::centroids)),
        scales(Join(books, &PqBook::scales)),
        rotation(Join(books, &PqBook::rotation)),
        rows(JoinRows(books, RowsOf)),
        pair_rows(JoinRows(books, [&](const PqBook& book) { return PairRowsOf(book, value); })) {}
  DeviceCodebook Get(size_t heads) const {
    DeviceCodebook codebook;
    if (heads == 0) return codebook;
    codebook.centroids = centroids.data();
    codebook.scales = scales.data();
    codebook.rotation = rotation.size() > 0 ? rotation.data() : nullptr;
    codebook.rows = rows.data();
    codebook.pair_rows = pair_rows.size() > 0 ? pair_rows.data() : nullptr;
    codebook.centroid_stride = static_cast<int64_t>(centroids.size() / heads);
    codebook.scale_stride = static_cast<int64_t>(scales.size() / heads);
    codebook.rotation_stride = static_cast<int64_t>(rotation.size() / heads);
    return codebook;
  }
};

Batch MakeBatch(const CaseSpec& spec) {
  Gaussian random(spec.seed);
  Batch batch;
  SplitMix64 codes(spec.seed);
  for (int head = 0; spec.pq_bits > 0 && head < spec.kv_heads; ++head) {
    for (auto& books : batch.books) {
      books.push_back(MakePqBook(spec.head_dim, spec.pq_subspaces, spec.pq_bits, spec.page_tokens,
                                 spec.pq_rotated, codes.Next()));
    }
  }
  const auto make = [&](DeviceRung rung, bool key, int head, int rows) {
    if (rung != DeviceRung::kPq) return MakeStrip(rung, key, spec, rows, random);
    return MakePqStrip(batch.books[key ? 0 : 1][static_cast<size_t>(head)], rows, codes);
  };
  for (const auto& sequence : spec.sequences) {
    for (const PageSpec& page_spec : sequence) {
      DevicePage page;
      page.key_rung = page_spec.key_rung;
      page.value_rung = page_spec.value_rung;
      page.rows = static_cast<uint16_t>(page_spec.rows);
      for (int row = 0; row < page_spec.rows; ++row) {
        if (page_spec.dead || (page_spec.holes && row % 5 == 2)) continue;
        page.live[row / 64] |= uint64_t{1} << (row % 64);
      }
      batch.pool.resize((batch.pool.size() + 255) / 256 * 256);
      batch.offsets.push_back(batch.pool.size());
      for (int head = 0; head < spec.kv_heads; ++head) {
        batch.keys.push_back(make(page.key_rung, true, head, page_spec.rows));
        batch.values.push_back(make(page.value_rung, false, head, page_spec.rows));
        for (const Strip* strip : {&batch.keys.back(), &batch.values.back()}) {
          batch.pool.insert(batch.pool.end(), strip->bytes.begin(), strip->bytes.end());
        }
      }
      batch.pages.push_back(page);
    }
    batch.page_begin.push_back(static_cast<int32_t>(batch.pages.size()));
  }
  const size_t heads = static_cast<size_t>(spec.kv_heads) * spec.group;
  batch.queries.resize(spec.sequences.size() * heads * spec.head_dim);
  for (uint16_t& x : batch.queries) x = spec.zero_queries ? 0 : F32ToF16(random.Next());
  return batch;
}

// One head of one sequence in double precision.
struct Reference {
  std::vector<double> output;
  std::vector<double> page_lse;
  double lse = -kInf;
};

Reference Compute(const CaseSpec& spec, const Batch& batch, size_t sequence, int head) {
  const int dim = spec.head_dim;
  const uint16_t* query =
      &batch.queries[(sequence * spec.kv_heads * spec.group + static_cast<size_t>(head)) * dim];
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  Reference result;
  result.output.assign(static_cast<size_t>(dim), 0.0);
  double max = -kInf;
  std::vector<std::vector<double>> scores;
  for (int p = batch.page_begin[sequence]; p < batch.page_begin[sequence + 1]; ++p) {
    const Strip& keys = batch.keys[static_cast<size_t>(p) * spec.kv_heads + head / spec.group];
    std::vector<double>& row_scores = scores.emplace_back();
    for (int row = 0; row < spec.page_tokens; ++row) {
      double score = -kInf;
      if (IsLive(batch.pages[static_cast<size_t>(p)], row)) {
        score = 0;
        for (int d = 0; d < dim; ++d) {
          score += static_cast<double>(F16ToF32(query[d])) *
                   keys.rows[static_cast<size_t>(row) * dim + d];
        }
        score *= scale;
        if (spec.soft_cap > 0) score = spec.soft_cap * std::tanh(score / spec.soft_cap);
      }
      row_scores.push_back(score);
      max = std::max(max, score);
    }
  }
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const size_t p = static_cast<size_t>(batch.page_begin[sequence]) + i;
    const Strip& values = batch.values[p * spec.kv_heads + head / spec.group];
    double page_sum = 0;
    for (int row = 0; row < spec.page_tokens; ++row) {
      if (!(scores[i][static_cast<size_t>(row)] > -kInf)) continue;
      const double weight = std::exp(scores[i][static_cast<size_t>(row)] - max);
      page_sum += weight;
      for (int d = 0; d < dim; ++d) {
        result.output[static_cast<size_t>(d)] +=
            weight * values.rows[static_cast<size_t>(row) * dim + d];
      }
    }
    result.page_lse.push_back(max + std::log(page_sum));
    sum += page_sum;
  }
  if (sum == 0) return result;
  for (double& x : result.output) x /= sum;
  result.lse = max + std::log(sum);
  return result;
}

// The same head by the CPU's kernels on the stored bytes.
std::vector<float> CpuOutput(const CaseSpec& spec, const Batch& batch, size_t sequence, int head) {
  const int dim = spec.head_dim, tokens = spec.page_tokens;
  const StripShape shape = {0, 0, dim, tokens};
  std::vector<float> query(static_cast<size_t>(dim));
  const size_t row = sequence * spec.kv_heads * spec.group + static_cast<size_t>(head);
  for (int d = 0; d < dim; ++d) {
    query[static_cast<size_t>(d)] =
        F16ToF32(batch.queries[row * dim + d]) / std::sqrt(static_cast<float>(dim));
  }
  const int first = batch.page_begin[sequence], end = batch.page_begin[sequence + 1];
  std::vector<float> weights(static_cast<size_t>(end - first) * tokens, 0.0f);
  float max = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  for (int p = first; p < end; ++p) {
    const DevicePage& page = batch.pages[static_cast<size_t>(p)];
    const Rung& rung = *CpuRung(page.key_rung);
    std::vector<std::byte> prepared(rung.PreparedRowBytes(shape, 1));
    rung.PrepareQuery(shape, query.data(), 1, prepared.data());
    float* scores = &weights[static_cast<size_t>(p - first) * tokens];
    const size_t strip = static_cast<size_t>(p) * spec.kv_heads + head / spec.group;
    rung.Scores(shape, batch.keys[strip].bytes.data(), prepared.data(), 1, tokens, scores,
                static_cast<size_t>(tokens), nullptr);
    for (int t = 0; t < tokens; ++t) {
      if (IsLive(page, t)) max = std::max(max, scores[t]);
    }
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const DevicePage& page = batch.pages[static_cast<size_t>(first) + i / tokens];
    weights[i] = IsLive(page, static_cast<int>(i) % tokens) ? std::exp(weights[i] - max) : 0.0f;
    sum += weights[i];
  }
  std::vector<float> output(static_cast<size_t>(dim), 0.0f);
  for (int p = first; p < end; ++p) {
    const DevicePage& page = batch.pages[static_cast<size_t>(p)];
    const Rung& rung = *CpuRung(page.value_rung);
    const size_t strip = static_cast<size_t>(p) * spec.kv_heads + head / spec.group;
    std::vector<float> sums(rung.AccumulatorFloats(shape), 0.0f);
    const ValuePage values = {batch.values[strip].bytes.data(), 0, page.rows,
                              &weights[static_cast<size_t>(p - first) * tokens]};
    rung.AddValuePages(shape, {&values, 1}, static_cast<size_t>(tokens), &sum, 1, sums.data(),
                       nullptr);
    rung.FinishValues(shape, sums.data(), 1, output.data());
  }
  for (float& x : output) x /= sum;
  return output;
}

void Compare(const CaseSpec& spec, const Batch& batch, const std::vector<float>& output,
             const std::vector<float>& lse, const std::vector<float>& page_lse,
             CaseResult* result) {
  const int heads = spec.kv_heads * spec.group;
  double all_error = 0, all_norm = 0, cpu_error = 0;
  for (size_t sequence = 0; sequence < spec.sequences.size(); ++sequence) {
    for (int head = 0; head < heads; ++head) {
      const Reference reference = Compute(spec, batch, sequence, head);
      const size_t row = sequence * heads + static_cast<size_t>(head);
      double error = 0, norm = 0;
      for (int d = 0; d < spec.head_dim; ++d) {
        const double expected = reference.output[static_cast<size_t>(d)];
        const double got = output[row * spec.head_dim + d];
        if (std::isnan(got)) result->complete = false;
        error += (got - expected) * (got - expected);
        norm += expected * expected;
      }
      all_error += error;
      all_norm += norm;
      if (spec.compare_cpu) {
        const std::vector<float> cpu = CpuOutput(spec, batch, sequence, head);
        for (size_t d = 0; d < cpu.size(); ++d) {
          cpu_error += (cpu[d] - reference.output[d]) * (cpu[d] - reference.output[d]);
        }
      }
      if (norm > 0) result->worst = std::max(result->worst, std::sqrt(error / norm));
      if (norm == 0 && error != 0) result->complete = false;
      if (std::isnan(lse[row])) result->complete = false;
      if (reference.lse > -kInf) {
        result->worst_lse = std::max(result->worst_lse, std::abs(lse[row] - reference.lse));
      } else if (lse[row] > -std::numeric_limits<float>::infinity()) {
        result->complete = false;
      }
      for (size_t i = 0; i < reference.page_lse.size(); ++i) {
        const size_t p = static_cast<size_t>(batch.page_begin[sequence]) + i;
        const double got = page_lse[p * heads + static_cast<size_t>(head)];
        if (!(reference.page_lse[i] > -kInf)) {
          if (got != -kInf) result->complete = false;
          continue;
        }
        if (std::isnan(got)) result->complete = false;
        result->worst_page_lse =
            std::max(result->worst_page_lse, std::abs(got - reference.page_lse[i]));
      }
    }
  }
  result->rms = std::sqrt(all_error / all_norm);
  result->cpu_rms = std::sqrt(cpu_error / all_norm);
}

DeviceLimits LimitsOf(const CaseSpec& spec) {
  DeviceLimits limits = Limits();
  if (spec.shared_per_block > 0) {
    limits.shared_per_block = spec.shared_per_block;
    limits.shared_per_multiprocessor = spec.shared_per_block + 1024;
  }
  return limits;
}

// A case whose pages and queries are on the device.
class DeviceCase {
 public:
  explicit DeviceCase(const CaseSpec& spec)
      : spec_(spec),
        limits_(LimitsOf(spec)),
        batch_(MakeBatch(spec)),
        pool_(batch_.pool),
        key_books_(batch_.books[0], false),
        value_books_(batch_.books[1], true),
        pages_(batch_.pages.size()),
        page_begin_(batch_.page_begin),
        queries_(batch_.queries),
        output_(batch_.queries.size()),
        lse_(batch_.queries.size() / static_cast<size_t>(spec.head_dim)),
        page_lse_(batch_.pages.size() * static_cast<size_t>(spec.kv_heads * spec.group)) {
    call_.shape = {spec.head_dim, spec.kv_heads, spec.page_tokens, spec.pq_subspaces, spec.pq_bits};
    PlacePages();
    call_.key_codebook = key_books_.Get(batch_.books[0].size());
    call_.value_codebook = value_books_.Get(batch_.books[1].size());
    call_.num_sequences = static_cast<int>(spec.sequences.size());
    call_.query_heads = spec.kv_heads * spec.group;
    call_.page_begin = page_begin_.data();
    call_.queries = queries_.data();
    call_.output_type = TensorType::kF32;
    call_.output = output_.data();
    call_.lse = lse_.data();
    call_.page_lse = page_lse_.data();
    call_.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
    call_.soft_cap = spec.soft_cap;
    call_.splits = spec.splits;
    call_.tiling = spec.tiling;
  }

  size_t WorkspaceBytes() const { return AttentionWorkspaceBytes(call_, limits_); }
  size_t CounterBytes() const { return AttentionCounterBytes(call_); }
  const CaseResult& result() const { return result_; }

  void Run(DeviceBuffer<std::byte>& workspace) {
    for (DeviceBuffer<float>* written : {&output_, &lse_, &page_lse_}) {
      Must(cudaMemset(written->data(), 0xFF, written->size() * sizeof(float)), "poison");
    }
    const DeviceStatus status = Attend(call_, limits_, workspace.data(), workspace.size(), nullptr);
    CHECK_THAT(status.ok(), "%s", status.message());
    Must(cudaDeviceSynchronize(), "attention");
    Compare(spec_, batch_, output_.Download(), lse_.Download(), page_lse_.Download(), &result_);
  }

 private:
  // Records of pages, with their places on the device.
  void PlacePages() {
    call_.pure_pages = true;
    for (size_t p = 0; p < batch_.pages.size(); ++p) {
      DevicePage& page = batch_.pages[p];
      page.bytes = pool_.data() + batch_.offsets[p];
      call_.key_rungs |= RungBit(page.key_rung);
      call_.value_rungs |= RungBit(page.value_rung);
      if (IsFloat(page.key_rung) != IsFloat(page.value_rung)) call_.pure_pages = false;
    }
    call_.max_pages = spec_.max_pages;
    for (const auto& sequence : spec_.sequences) {
      call_.max_pages = std::max(call_.max_pages, static_cast<int>(sequence.size()));
    }
    const DeviceStatus checked =
        CheckPages(batch_.pages.data(), static_cast<int64_t>(batch_.pages.size()), call_.shape,
                   {pool_.data(), pool_.size()});
    CHECK_THAT(checked.ok(), "%s", checked.message());
    pages_.Upload(batch_.pages);
    call_.pages = pages_.data();
  }

  const CaseSpec& spec_;
  const DeviceLimits limits_;
  Batch batch_;
  DeviceBuffer<std::byte> pool_;
  DeviceBooks key_books_, value_books_;
  DeviceBuffer<DevicePage> pages_;
  DeviceBuffer<int32_t> page_begin_;
  DeviceBuffer<uint16_t> queries_;
  DeviceBuffer<float> output_, lse_, page_lse_;
  DeviceAttention call_;
  CaseResult result_;
};

}  // namespace

std::vector<PageSpec> Pages(DeviceRung key_rung, DeviceRung value_rung, int num_rows,
                            int page_tokens, bool holes) {
  std::vector<PageSpec> pages;
  for (int row = 0; row < num_rows; row += page_tokens) {
    pages.push_back({key_rung, value_rung, std::min(page_tokens, num_rows - row), holes});
  }
  return pages;
}

CaseResult RunCase(const CaseSpec& spec) { return RunInTurn({spec})[0]; }

std::vector<CaseResult> RunInTurn(const std::vector<CaseSpec>& specs) {
  std::vector<std::unique_ptr<DeviceCase>> cases;
  size_t bytes = 0, counter_bytes = 0;
  for (const CaseSpec& spec : specs) {
    cases.push_back(std::make_unique<DeviceCase>(spec));
    bytes = std::max(bytes, cases.back()->WorkspaceBytes());
    counter_bytes = std::max(counter_bytes, cases.back()->CounterBytes());
  }
  DeviceBuffer<std::byte> workspace(bytes);  // the rest is NaN
  const DeviceStatus ready = InitAttentionWorkspace(workspace.data(), counter_bytes, nullptr);
  CHECK_THAT(ready.ok(), "%s", ready.message());
  // Twice: the work space must be as it was after a call.
  for (int round = 0; round < 2; ++round) {
    for (const auto& one : cases) one->Run(workspace);
  }
  std::vector<CaseResult> results;
  for (const auto& one : cases) results.push_back(one->result());
  return results;
}

}  // namespace varve::cuda::testing
