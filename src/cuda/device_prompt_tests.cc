// Attention of prompts against double precision on the rows as the CPU decodes them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cuda/device_prompt.h"
#include "cuda/testing/check.h"
#include "cuda/testing/cpu_rungs.h"
#include "cuda/testing/device_buffer.h"

namespace varve::cuda::testing {
namespace {

using enum DeviceRung;

struct PromptSpec {
  int head_dim = 128;
  int kv_heads = 2;
  int group = 2;
  int page_tokens = 64;
  int rows = 200;     // of the table
  int queries = 100;  // of the last rows
  int window = 0;     // rows that a query sees; 0: all before it
  bool holes = false;
  float soft_cap = 0.0f;
  std::vector<DeviceRung> rungs = {kF16};  // of pages, by turns
  TensorType type = TensorType::kF16;
  uint64_t seed = 1;
  bool sees_all = false;  // every query, rows behind it as well
  // A NaN in this row of a part of KV head 0; below 0: none.
  int nan_row = -1;
  Part nan_part = Part::kValue;
  float outlier = 0.0f;  // channel 5 of the queries, if not 0
};

float Uniform(SplitMix64& random) {
  return static_cast<float>(static_cast<double>(random.Next() >> 11) * 0x1p-53 * 4.0 - 2.0);
}

// The table of a sequence on the host: pages as bytes, and their rows as they decode.
struct PromptTable {
  std::vector<std::byte> bytes;
  std::vector<DevicePage> pages;
  std::vector<size_t> offsets;              // of pages
  std::vector<std::vector<float>> rows[2];  // K and V, [kv_head][slot][dim]
};

PromptTable MakeTable(const PromptSpec& spec, SplitMix64& random) {
  PromptTable table;
  const StripShape shape = {0, 0, spec.head_dim, spec.page_tokens};
  const size_t floats = static_cast<size_t>(spec.page_tokens) * spec.head_dim;
  for (auto& part : table.rows) part.resize(static_cast<size_t>(spec.kv_heads));
  for (int first = 0; first < spec.rows; first += spec.page_tokens) {
    const int rows = std::min(spec.page_tokens, spec.rows - first);
    const DeviceRung rung = spec.rungs[table.pages.size() % spec.rungs.size()];
    DevicePage page;
    page.key_rung = page.value_rung = rung;
    page.rows = static_cast<uint16_t>(rows);
    for (int row = 0; row < rows; ++row) {
      if (!spec.holes || row % 5 != 2) page.live[row / 64] |= uint64_t{1} << (row % 64);
    }
    table.offsets.push_back(table.bytes.size());
    for (int head = 0; head < spec.kv_heads; ++head) {
      for (const Part part : {Part::kKey, Part::kValue}) {
        std::vector<float> values(floats);
        for (float& x : values) x = Uniform(random);
        const int nan_row = spec.nan_row - first;
        if (head == 0 && part == spec.nan_part && nan_row >= 0 && nan_row < rows) {
          values[static_cast<size_t>(nan_row) * spec.head_dim + 3] = NAN;
        }
        const Rung& cpu = *CpuRung(rung);
        const size_t at = table.bytes.size();
        table.bytes.resize(at + cpu.StripBytes(part, shape), std::byte{0xFF});
        if (rung == kF16 || rung == kBF16) {
          cpu.WriteRows(part, shape, &table.bytes[at], 0, rows, values.data(), spec.head_dim);
        } else {
          cpu.Encode(part, shape, values.data(), rows, &table.bytes[at]);
        }
        std::fill(values.begin(), values.end(), 0.0f);
        cpu.Decode(part, shape, &table.bytes[at], 0, rows, values.data());
        auto& kept = table.rows[part == Part::kKey ? 0 : 1][static_cast<size_t>(head)];
        kept.insert(kept.end(), values.begin(), values.end());
      }
    }
    table.bytes.resize((table.bytes.size() + 255) / 256 * 256);
    table.pages.push_back(page);
  }
  return table;
}

// One row of the result, and its log-sum-exp.
double Reference(const PromptSpec& spec, const PromptTable& table, int kv_head,
                 const VisibleRows& seen, const float* query, std::vector<double>* out) {
  const auto& keys = table.rows[0][static_cast<size_t>(kv_head)];
  const auto& values = table.rows[1][static_cast<size_t>(kv_head)];
  const size_t dim = static_cast<size_t>(spec.head_dim);
  std::vector<double> scores;
  std::vector<size_t> slots;
  double most = -1e300;
  for (int32_t slot = seen.begin; slot < seen.end; ++slot) {
    const DevicePage& page = table.pages[static_cast<size_t>(slot / spec.page_tokens)];
    const int row = slot % spec.page_tokens;
    if ((page.live[row / 64] >> (row % 64) & 1) == 0) continue;
    double score = 0;
    for (size_t d = 0; d < dim; ++d) {
      score += static_cast<double>(query[d]) * keys[static_cast<size_t>(slot) * dim + d];
    }
    score /= std::sqrt(static_cast<double>(spec.head_dim));
    if (spec.soft_cap > 0) score = spec.soft_cap * std::tanh(score / spec.soft_cap);
    scores.push_back(score);
    slots.push_back(static_cast<size_t>(slot));
    most = std::max(most, score);
  }
  out->assign(dim, 0.0);
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - most);
    sum += weight;
    for (size_t d = 0; d < dim; ++d) (*out)[d] += weight * values[slots[i] * dim + d];
  }
  for (double& x : *out) x = sum > 0 ? x / sum : 0.0;
  return sum > 0 ? most + std::log(sum) : -INFINITY;
}

// [queries, heads, head_dim], as f16 holds them, but for the outlier.
std::vector<float> MakeQueries(const PromptSpec& spec, SplitMix64& random) {
  const size_t dim = static_cast<size_t>(spec.head_dim);
  std::vector<float> queries(dim * spec.queries * spec.kv_heads * spec.group);
  for (float& x : queries) x = F16ToF32(F32ToF16(Uniform(random)));
  for (size_t at = 5; spec.outlier != 0 && at < queries.size(); at += dim)
    queries[at] = spec.outlier;
  return queries;
}

std::vector<uint16_t> Halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float x : values) halves.push_back(F32ToF16(x));
  return halves;
}

std::vector<VisibleRows> VisibleOf(const PromptSpec& spec) {
  std::vector<VisibleRows> visible;
  for (int q = 0; q < spec.queries; ++q) {
    const int32_t end = spec.sees_all ? spec.rows : spec.rows - spec.queries + q + 1;
    visible.push_back({spec.window > 0 ? std::max(0, end - spec.window) : 0, end});
  }
  return visible;
}

// Every row against double precision: ||out - reference|| / ||reference||, and its log-sum-exp.
void CompareRows(const PromptSpec& spec, const PromptTable& table,
                 const std::vector<VisibleRows>& seen, const std::vector<float>& queries,
                 const std::vector<float>& got, const std::vector<float>& got_lse,
                 const char* what) {
  const int heads = spec.kv_heads * spec.group;
  const size_t dim = static_cast<size_t>(spec.head_dim);
  double worst = 0, worst_lse = 0;
  std::vector<double> expected;
  for (int q = 0; q < spec.queries; ++q) {
    for (int head = 0; head < heads; ++head) {
      const size_t row = static_cast<size_t>(q) * heads + head;
      const double sum = Reference(spec, table, head / spec.group, seen[static_cast<size_t>(q)],
                                   &queries[row * dim], &expected);
      double error = 0, norm = 1e-30;
      for (size_t d = 0; d < dim; ++d) {
        const double difference = got[row * dim + d] - expected[d];
        error = std::isnan(difference) ? 1e30 : error + difference * difference;
        norm += expected[d] * expected[d];
      }
      worst = std::max(worst, std::sqrt(error / norm));
      // Of a query that sees nothing both are -infinity.
      const double off = got_lse[row] == sum ? 0.0 : std::abs(got_lse[row] - sum);
      worst_lse = std::max(worst_lse, std::isnan(off) ? 1e30 : off);
    }
  }
  CHECK_THAT(worst < 4e-3, "%s: error %g", what, worst);
  CHECK_THAT(worst_lse < 4e-3, "%s: error of the log-sum-exp %g", what, worst_lse);
}

// A table and queries on the device.
class PromptOnDevice {
 public:
  explicit PromptOnDevice(const PromptSpec& spec)
      : spec_(spec),
        random_(spec.seed),
        table_(MakeTable(spec, random_)),
        query_values_(MakeQueries(spec, random_)),
        seen_(VisibleOf(spec)),
        pool_(table_.bytes),
        pages_(table_.pages.size()),
        visible_(seen_),
        half_queries_(Halves(query_values_)),
        float_queries_(query_values_),
        output_(query_values_.size()),
        lse_(query_values_.size() / static_cast<size_t>(spec.head_dim)) {
    for (size_t i = 0; i < table_.pages.size(); ++i) {
      table_.pages[i].bytes = pool_.data() + table_.offsets[i];
    }
    pages_.Upload(table_.pages);
  }

  const PromptTable& table() const { return table_; }
  const std::vector<float>& queries() const { return query_values_; }
  const std::vector<VisibleRows>& seen() const { return seen_; }
  std::vector<float> Lse() const { return lse_.Download(); }

  // [queries, heads, head_dim]
  std::vector<float> Run(const char* what) {
    const DevicePrompt call = Call();
    DeviceBuffer<std::byte> workspace(PromptWorkspaceBytes(call));
    const DeviceStatus status = AttendPrompt(call, workspace.data(), workspace.size(), nullptr);
    CHECK_THAT(status.ok(), "%s: %s", what, status.message());
    Must(cudaDeviceSynchronize(), "prompt");
    return output_.Download();
  }

  // The same by the kernel for single queries, which all see the whole table.
  std::vector<float> RunOneByOne(const char* what) {
    const DevicePrompt prompt = Call();
    std::vector<DevicePage> records;
    std::vector<int32_t> begins = {0};
    for (int q = 0; q < spec_.queries; ++q) {
      records.insert(records.end(), table_.pages.begin(), table_.pages.end());
      begins.push_back(static_cast<int32_t>(records.size()));
    }
    const DeviceBuffer<DevicePage> pages(records);
    const DeviceBuffer<int32_t> page_begin(begins);
    DeviceAttention call;
    call.shape = prompt.shape;
    call.num_sequences = spec_.queries;
    call.query_heads = prompt.query_heads;
    call.pages = pages.data();
    call.page_begin = page_begin.data();
    call.max_pages = prompt.num_pages;
    for (const DeviceRung rung : spec_.rungs) call.key_rungs |= RungBit(rung);
    call.value_rungs = call.key_rungs;
    call.pure_pages = true;
    call.query_type = prompt.query_type;
    call.queries = prompt.queries;
    call.output_type = prompt.output_type;
    call.output = prompt.output;
    call.scale = prompt.scale;
    const DeviceLimits limits = Limits();
    DeviceBuffer<std::byte> workspace(AttentionWorkspaceBytes(call, limits));
    CHECK_THAT(InitAttentionWorkspace(workspace.data(), AttentionCounterBytes(call), nullptr).ok(),
               "%s", what);
    const DeviceStatus status = Attend(call, limits, workspace.data(), workspace.size(), nullptr);
    CHECK_THAT(status.ok(), "%s: %s", what, status.message());
    Must(cudaDeviceSynchronize(), "attention");
    return output_.Download();
  }

 private:
  DevicePrompt Call() {
    const bool halves = spec_.type == TensorType::kF16;
    DevicePrompt call;
    call.shape = {spec_.head_dim, spec_.kv_heads, spec_.page_tokens};
    call.query_heads = spec_.kv_heads * spec_.group;
    call.pages = pages_.data();
    call.num_pages = static_cast<int>(table_.pages.size());
    call.visible = visible_.data();
    call.num_queries = spec_.queries;
    call.query_type = spec_.type;
    call.queries = halves ? static_cast<const void*>(half_queries_.data()) : float_queries_.data();
    call.output_type = TensorType::kF32;
    call.output = output_.data();
    call.lse = lse_.data();
    call.scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
    call.soft_cap = spec_.soft_cap;
    return call;
  }

  const PromptSpec& spec_;
  SplitMix64 random_;
  PromptTable table_;
  std::vector<float> query_values_;  // [queries, heads, head_dim]
  std::vector<VisibleRows> seen_;
  DeviceBuffer<std::byte> pool_;
  DeviceBuffer<DevicePage> pages_;
  DeviceBuffer<VisibleRows> visible_;
  DeviceBuffer<uint16_t> half_queries_;
  DeviceBuffer<float> float_queries_, output_, lse_;
};

// Runs the case on the device and compares.
void ExpectPrompt(const PromptSpec& spec, const char* what) {
  PromptOnDevice prompt(spec);
  const std::vector<float> output = prompt.Run(what);
  CompareRows(spec, prompt.table(), prompt.seen(), prompt.queries(), output, prompt.Lse(), what);
}

// As single queries, NaN where these have it. Gives how many values of a query's are NaN.
int ExpectAsOneByOne(const PromptSpec& spec, const char* what) {
  PromptOnDevice prompt(spec);
  const std::vector<float> want = prompt.RunOneByOne(what), got = prompt.Run(what);
  size_t other = 0, nans = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    nans += std::isnan(want[i]) ? 1 : 0;
    const bool same = std::isnan(want[i]) ? std::isnan(got[i]) : std::abs(got[i] - want[i]) < 4e-3f;
    other += same ? 0 : 1;
  }
  CHECK_THAT(other == 0, "%s: %zu of %zu values", what, other, want.size());
  return static_cast<int>(nans / static_cast<size_t>(spec.queries));
}

}  // namespace

VARVE_CUDA_TEST(Prompt, IsThatOfTheDecodedRowsInEveryRung) {
  uint64_t seed = 700;
  for (const DeviceRung rung : {kF16, kBF16, kQ8_0, kQ8_0r, kQ4_0, kQ4_0r, kT4, kT3, kT2}) {
    PromptSpec spec;
    spec.rungs = {rung};
    spec.seed = ++seed;
    ExpectPrompt(spec, DeviceRungName(rung));
  }
}

VARVE_CUDA_TEST(Prompt, TakesEveryHeadDimAndPageSize) {
  uint64_t seed = 720;
  for (const int dim : {64, 96, 128, 256}) {
    for (const int page_tokens : {64, 128}) {
      PromptSpec spec;
      spec.head_dim = dim;
      spec.page_tokens = page_tokens;
      spec.kv_heads = 1;
      spec.rows = 2 * page_tokens + 33;
      spec.queries = spec.rows;
      spec.rungs = {kT4, kF16, kQ4_0};
      spec.seed = ++seed;
      ExpectPrompt(spec, "head_dim");
    }
  }
}

VARVE_CUDA_TEST(Prompt, SeesItsWindowAndLiveRowsOnly) {
  PromptSpec spec;
  spec.seed = 740;
  spec.rows = 333;
  spec.queries = 150;
  spec.window = 70;
  spec.holes = true;
  spec.rungs = {kQ8_0, kT3};
  ExpectPrompt(spec, "window");
  spec.window = 0;
  spec.soft_cap = 5.0f;
  spec.type = TensorType::kF32;
  ExpectPrompt(spec, "soft cap, f32 queries");
}

VARVE_CUDA_TEST(Prompt, LetsNanBeSeen) {
  PromptSpec spec;
  spec.seed = 745;
  spec.queries = 20;
  spec.sees_all = true;
  spec.nan_row = 70;
  for (const DeviceRung rung : {kF16, kBF16}) {
    spec.rungs = {rung};
    spec.nan_part = Part::kValue;  // channel 3 of both query heads of KV head 0
    CHECK_THAT(ExpectAsOneByOne(spec, "NaN in V") == 2, "%s", DeviceRungName(rung));
    spec.nan_part = Part::kKey;  // all channels
    CHECK_THAT(ExpectAsOneByOne(spec, "NaN in K") == 2 * 128, "%s", DeviceRungName(rung));
  }
}

VARVE_CUDA_TEST(Prompt, TakesQueriesBeyondF16) {
  PromptSpec spec;
  spec.seed = 747;
  spec.queries = 20;
  spec.sees_all = true;
  spec.type = TensorType::kF32;
  for (const float outlier : {1e5f, -1e5f}) {
    spec.outlier = outlier;
    CHECK_THAT(ExpectAsOneByOne(spec, "outlier") == 0, "%g", outlier);
  }
  spec.outlier = NAN;
  CHECK_THAT(ExpectAsOneByOne(spec, "NaN in queries") == 4 * 128, "all values");
}

VARVE_CUDA_TEST(Prompt, TakesOneQueryAndManyGroups) {
  PromptSpec spec;
  spec.seed = 750;
  spec.rows = spec.queries = 1;
  ExpectPrompt(spec, "one row");
  spec.rows = 130;
  spec.kv_heads = 1;
  spec.group = 7;
  ExpectPrompt(spec, "one query");
  spec.queries = 129;
  ExpectPrompt(spec, "one query beyond a tile");
}

VARVE_CUDA_TEST(Prompt, RefusesAWorkspaceThatIsTooSmall) {
  DevicePrompt call;
  call.shape = {128, 2, 64};
  call.query_heads = 4;
  call.num_pages = 3;
  call.num_queries = 1;
  const size_t bytes = PromptWorkspaceBytes(call);
  CHECK_THAT(bytes == size_t{2} * 3 * 2 * 64 * 128 * 2, "%zu bytes", bytes);
  CHECK_THAT(!AttendPrompt(call, nullptr, bytes - 1, nullptr).ok(), "one byte less");
}

}  // namespace varve::cuda::testing
