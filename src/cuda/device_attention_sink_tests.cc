// A token that has most of the attention and adds nothing, as the first tokens of real texts do:
// what all others add must stay as exact as it is without it.

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "cuda/device_attention.h"
#include "cuda/testing/check.h"
#include "cuda/testing/cpu_rungs.h"
#include "cuda/testing/device_buffer.h"

namespace varve::cuda::testing {
namespace {

using enum DeviceRung;
constexpr int kDim = 128;
constexpr int kTokens = 64;
constexpr int kHeads = 4;
constexpr float kValueSpread = 0.02f;  // scales of q8_0 are then about 2^-11

struct Text {
  std::vector<uint16_t> queries;           // [heads, dim] f16
  std::vector<std::vector<float>> keys;    // [pages][tokens, dim]
  std::vector<std::vector<float>> values;  // likewise; as stored, once MakePages has run
};

// All queries see the first token `nats` above the level of the others.
Text MakeText(int pages, float nats) {
  Text text;
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> direction(kDim), mean(kDim);
  double norm = 0;
  for (float& x : direction) {
    x = normal(generator);
    norm += static_cast<double>(x) * x;
  }
  for (float& x : mean) x = kValueSpread * normal(generator);
  for (int at = 0; at < kHeads * kDim; ++at) {
    text.queries.push_back(F32ToF16(direction[at % kDim] + 0.1f * normal(generator)));
  }
  const auto sink_key = static_cast<float>(nats * std::sqrt(kDim) / norm);
  for (int page = 0; page < pages; ++page) {
    auto& keys = text.keys.emplace_back(kTokens * kDim);
    auto& values = text.values.emplace_back(kTokens * kDim);
    for (int at = 0; at < kTokens * kDim; ++at) {
      const bool sink = page == 0 && at < kDim;
      keys[at] = sink ? sink_key * direction[at] : 0.7f * normal(generator);
      values[at] = sink ? 0.0f : mean[at % kDim] + kValueSpread * normal(generator);
    }
  }
  return text;
}

// The pages' bytes in a rung; rows become what was stored.
std::vector<std::byte> MakePages(DeviceRung rung, Text& text, std::vector<size_t>& begins) {
  const StripShape shape = {0, 0, kDim, kTokens};
  std::vector<std::byte> bytes;
  for (size_t page = 0; page < text.keys.size(); ++page) {
    begins.push_back(bytes.size());
    for (const Part part : {Part::kKey, Part::kValue}) {
      auto& rows = part == Part::kKey ? text.keys[page] : text.values[page];
      std::vector<std::byte> strip(CpuRung(rung)->StripBytes(part, shape));
      if (IsFloat(rung)) {
        CpuRung(rung)->WriteRows(part, shape, strip.data(), 0, kTokens, rows.data(), kDim);
      } else {
        CpuRung(rung)->Encode(part, shape, rows.data(), kTokens, strip.data());
      }
      CpuRung(rung)->Decode(part, shape, strip.data(), 0, kTokens, rows.data());
      bytes.insert(bytes.end(), strip.begin(), strip.end());
    }
    bytes.resize((bytes.size() + 255) / 256 * 256);
  }
  return bytes;
}

// Of one head, in double precision.
std::vector<double> Expected(const Text& text, int head) {
  std::vector<double> sum(kDim);
  double total = 0;
  for (size_t at = 0; at < text.keys.size() * kTokens; ++at) {
    const float* key = text.keys[at / kTokens].data() + at % kTokens * kDim;
    const float* value = text.values[at / kTokens].data() + at % kTokens * kDim;
    double score = 0;
    for (int d = 0; d < kDim; ++d) {
      score += static_cast<double>(F16ToF32(text.queries[head * kDim + d])) * key[d];
    }
    const double weight = std::exp(score / std::sqrt(kDim));
    total += weight;
    for (int d = 0; d < kDim; ++d) sum[d] += weight * value[d];
  }
  for (double& x : sum) x /= total;
  return sum;
}

// ||output - expected|| / ||expected||, of all heads together. One block has all pages of a head.
double ErrorOf(DeviceRung rung, Text text) {
  std::vector<size_t> begins;
  const DeviceBuffer<std::byte> pool(MakePages(rung, text, begins));
  std::vector<DevicePage> records(begins.size());
  for (size_t page = 0; page < begins.size(); ++page) {
    records[page].bytes = pool.data() + begins[page];
    records[page].key_rung = records[page].value_rung = rung;
    records[page].rows = kTokens;
    records[page].live[0] = ~uint64_t{0};
  }
  const auto num_pages = static_cast<int32_t>(records.size());
  const DeviceBuffer<DevicePage> pages(records);
  const DeviceBuffer<int32_t> page_begin(std::vector<int32_t>{0, num_pages});
  const DeviceBuffer<uint16_t> queries(text.queries);
  DeviceBuffer<float> output(kHeads * kDim);
  DeviceAttention call;
  call.shape = {kDim, 1, kTokens};
  call.num_sequences = 1;
  call.query_heads = kHeads;
  call.pages = pages.data();
  call.page_begin = page_begin.data();
  call.max_pages = num_pages;
  call.key_rungs = call.value_rungs = RungBit(rung);
  call.pure_pages = true;
  call.queries = queries.data();
  call.output_type = TensorType::kF32;
  call.output = output.data();
  call.scale = 1.0f / std::sqrt(static_cast<float>(kDim));
  call.splits = 1;
  DeviceBuffer<std::byte> workspace(AttentionWorkspaceBytes(call, Limits()));
  CHECK_THAT(InitAttentionWorkspace(workspace.data(), workspace.size(), nullptr).ok(), "clear");
  CHECK_THAT(Attend(call, Limits(), workspace.data(), workspace.size(), nullptr).ok(), "attend");
  const std::vector<float> got = output.Download();
  double error = 0, norm = 0;
  for (int head = 0; head < kHeads; ++head) {
    const std::vector<double> expected = Expected(text, head);
    for (int d = 0; d < kDim; ++d) {
      const double difference = got[head * kDim + d] - expected[d];
      error += difference * difference;
      norm += expected[d] * expected[d];
    }
  }
  return std::sqrt(error / norm);
}

// Tokens of the sink's own page are the exception: beside its weight theirs, times the scales of
// blocks, are below what f16 can tell from 0. They are 63 of 6144 here.
VARVE_CUDA_TEST(AttentionSink, HidesNothingOfWhatOtherPagesAdd) {
  constexpr double kOwnPage = 63.0 / 6144;
  for (const DeviceRung rung : {kF16, kBF16, kQ8_0, kQ8_0r, kQ4_0, kQ4_0r, kT4, kT3, kT2}) {
    const double flat = ErrorOf(rung, MakeText(96, 0.0f));
    const double sink = ErrorOf(rung, MakeText(96, 14.0f));
    std::printf("  %-6s error %.2e, beside a sink %.2e\n", DeviceRungName(rung), flat, sink);
    CHECK_THAT(sink < kOwnPage + 3e-3, "%s: %g, without %g", DeviceRungName(rung), sink, flat);
  }
}

}  // namespace
}  // namespace varve::cuda::testing
