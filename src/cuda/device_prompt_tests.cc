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

std::vector<VisibleRows> VisibleOf(const PromptSpec& spec) {
  std::vector<VisibleRows> visible;
  for (int q = 0; q < spec.queries; ++q) {
    const int32_t end = spec.rows - spec.queries + q + 1;
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

// Runs the case on the device and compares.
void ExpectPrompt(const PromptSpec& spec, const char* what) {
  SplitMix64 random(spec.seed);
  PromptTable table = MakeTable(spec, random);
  const int heads = spec.kv_heads * spec.group;
  const size_t dim = static_cast<size_t>(spec.head_dim);
  const size_t count = static_cast<size_t>(spec.queries) * heads * dim;
  std::vector<float> queries(count);
  std::vector<uint16_t> halves(count);
  for (size_t i = 0; i < count; ++i) {
    halves[i] = F32ToF16(Uniform(random));
    queries[i] = F16ToF32(halves[i]);
  }
  DeviceBuffer<std::byte> pool(table.bytes);
  for (size_t i = 0; i < table.pages.size(); ++i) {
    table.pages[i].bytes = pool.data() + table.offsets[i];
  }
  DeviceBuffer<DevicePage> pages(table.pages);
  const std::vector<VisibleRows> seen = VisibleOf(spec);
  DeviceBuffer<VisibleRows> visible(seen);
  DeviceBuffer<uint16_t> half_queries(halves);
  DeviceBuffer<float> float_queries(queries), output(count);
  DeviceBuffer<float> lse(static_cast<size_t>(spec.queries) * heads);
  DevicePrompt call;
  call.shape = {spec.head_dim, spec.kv_heads, spec.page_tokens};
  call.query_heads = heads;
  call.pages = pages.data();
  call.num_pages = static_cast<int>(table.pages.size());
  call.visible = visible.data();
  call.num_queries = spec.queries;
  call.query_type = spec.type;
  call.queries = spec.type == TensorType::kF16 ? static_cast<const void*>(half_queries.data())
                                               : float_queries.data();
  call.output_type = TensorType::kF32;
  call.output = output.data();
  call.lse = lse.data();
  call.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  call.soft_cap = spec.soft_cap;
  DeviceBuffer<std::byte> workspace(PromptWorkspaceBytes(call));
  const DeviceStatus status = AttendPrompt(call, workspace.data(), workspace.size(), nullptr);
  CHECK_THAT(status.ok(), "%s: %s", what, status.message());
  Must(cudaDeviceSynchronize(), "prompt");
  CompareRows(spec, table, seen, queries, output.Download(), lse.Download(), what);
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
