// Speed of attention of prompts over pages in device memory: one row per rung and length.
//
//   prompt_bench [--rungs f16,q4_0,…] [--out FILE]
//
// One sequence, all of its rows are queries. Operations are counted as in published figures: half
// of 4 * queries * rows * head_dim per query head. Tests check answers; here the median of runs
// counts.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cuda/device_prompt.h"
#include "cuda/testing/bench_pages.h"
#include "cuda/testing/device_buffer.h"
#include "cuda/testing/graph_timer.h"

namespace varve::cuda::testing {
namespace {

constexpr int kHeadDim = 128;
constexpr int kPageTokens = 64;

double MedianUs(const DevicePrompt& call, void* workspace, size_t bytes) {
  const auto attend = [&](int, cudaStream_t stream) {
    const DeviceStatus status = AttendPrompt(call, workspace, bytes, stream);
    if (status.ok()) return;
    std::printf("%s\n", status.message());
    std::exit(1);
  };
  return TimeGraph(1, attend).median_us;
}

double RunPrompt(DeviceRung rung, int heads, int kv_heads, int rows) {
  const PageShape shape = {kHeadDim, kv_heads, kPageTokens};
  const std::vector<std::byte> content = MakeContent(rung, shape, PqBook()).bytes;
  DeviceBuffer<std::byte> pool(content);
  std::vector<DevicePage> records(static_cast<size_t>(rows / kPageTokens));
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].bytes = pool.data() + i % kPeriod * (content.size() / kPeriod);
    records[i].live[0] = ~uint64_t{0};
    records[i].key_rung = records[i].value_rung = rung;
    records[i].rows = kPageTokens;
  }
  std::vector<VisibleRows> seen;
  for (int q = 0; q < rows; ++q) seen.push_back({0, q + 1});
  SplitMix64 random(3);
  std::vector<uint16_t> values(static_cast<size_t>(rows) * heads * kHeadDim);
  for (uint16_t& x : values) x = F32ToF16(static_cast<float>(random.Next() >> 40) * 0x1p-23f - 1);
  DeviceBuffer<DevicePage> pages(records);
  DeviceBuffer<VisibleRows> visible(seen);
  DeviceBuffer<uint16_t> queries(values), output(values.size());
  DevicePrompt call;
  call.shape = shape;
  call.query_heads = heads;
  call.pages = pages.data();
  call.num_pages = static_cast<int>(records.size());
  call.visible = visible.data();
  call.num_queries = rows;
  call.queries = queries.data();
  call.output = output.data();
  call.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  DeviceBuffer<std::byte> workspace(PromptWorkspaceBytes(call));
  return MedianUs(call, workspace.data(), workspace.size());
}

int Main(int argc, char** argv) {
  std::string rungs = "f16,q8_0,q4_0,t4";
  FILE* out = stdout;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--rungs") rungs = argv[i + 1];
    if (std::string(argv[i]) == "--out") out = std::fopen(argv[i + 1], "w");
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device on this machine\n");
    return 77;
  }
  if (out == nullptr) return 2;
  std::fprintf(out, "{\"command\": \"prompt_bench\", \"rows\": [");
  const char* comma = "";
  constexpr int kHeads = 32, kKvHeads = 8;
  for (const int rows : {2048, 8192, 32768}) {
    for (int id = 0; id < kNumRungIds; ++id) {
      const auto rung = static_cast<DeviceRung>(id);
      if (id < 2 || rung == DeviceRung::kPq) continue;
      if (("," + rungs + ",").find("," + std::string(DeviceRungName(rung)) + ",") ==
          std::string::npos) {
        continue;
      }
      const double us = RunPrompt(rung, kHeads, kKvHeads, rows);
      const double tflops = 2.0 * rows * rows * kHeadDim * kHeads / us * 1e-6;
      std::printf("prompt %-6s %2d/%d rows %6d: %10.1f us  %6.1f TFLOP/s\n", DeviceRungName(rung),
                  kHeads, kKvHeads, rows, us, tflops);
      std::fflush(stdout);
      std::fprintf(out,
                   "%s\n  {\"rung\": \"%s\", \"query_heads\": %d, \"kv_heads\": %d, \"queries\": "
                   "%d, \"median_us\": %.2f, \"tflops\": %.1f}",
                   comma, DeviceRungName(rung), kHeads, kKvHeads, rows, us, tflops);
      comma = ",";
    }
  }
  std::fprintf(out, "\n]}\n");
  return 0;
}

}  // namespace
}  // namespace varve::cuda::testing

int main(int argc, char** argv) { return varve::cuda::testing::Main(argc, argv); }
