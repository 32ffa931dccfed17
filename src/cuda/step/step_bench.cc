// Time of one decode step of Llama-2-7B- and Llama-3.1-8B-shaped models with random weights, in a
// CUDA graph.
//
//   step_bench [--context 32768] [--batches 1,8] [--rungs f16,q4_0,t4,pq4] [--out FILE]
//
// `none` is the step without attention: with the time of SDPA (tools/bench_sdpa.py) for every layer
// it is the same step on an fp16 cache. "fits" is the largest batch whose cache and weights the
// device holds.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/step/decode_step.h"
#include "cuda/testing/graph_timer.h"

namespace varve::cuda::step {
namespace {

using testing::Must;

constexpr ModelShape kModels[] = {{"llama-2-7b", 32, 4096, 32, 32, 11008, 32000},
                                  {"llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256}};

struct CacheKind {
  std::string name;
  DeviceRung rung;
  int pq_bits;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool KindOf(const std::string& name, CacheKind* kind) {
  if (name == "pq4" || name == "pq3" || name == "pq2") {
    *kind = {name, DeviceRung::kPq, 2 * (name[2] - '0')};
    return true;
  }
  for (int id = 2; id < kNumRungIds; ++id) {
    if (name == DeviceRungName(static_cast<DeviceRung>(id))) {
      *kind = {name, static_cast<DeviceRung>(id), 0};
      return true;
    }
  }
  return false;
}

double MedianUs(DecodeStep& step, StepCache* cache) {
  step.Run(cache, nullptr);  // plans of products, jobs of append
  Must(cudaDeviceSynchronize(), "first step");
  const auto run = [&](int, cudaStream_t stream) { step.Run(cache, stream); };
  return testing::TimeGraph(1, run).median_us;
}

// Of that context, in device memory that holds the weights, too, and a gigabyte for the rest.
int LargestBatch(const ModelShape& model, int context, const CacheKind& kind, size_t memory) {
  const size_t taken = StepWeights::Bytes(model) + (size_t{1} << 30);
  const size_t each = StepCache::Bytes(model, 1, context, kind.rung, kind.pq_bits);
  return memory < taken ? 0 : static_cast<int>((memory - taken) / each);
}

struct Options {
  int context = 32768;
  std::vector<std::string> batches = {"1", "8"};
  std::vector<std::string> rungs = {"f16", "q8_0", "q4_0", "t4", "t3", "pq4"};
  FILE* out = stdout;
};

void RunModel(const ModelShape& model, const Options& options, size_t memory, const char** comma) {
  const StepWeights weights(model);
  const auto report = [&](const std::string& rung, int batch, int fits, double us) {
    std::printf("%-13s batch %2d %-5s %10.1f us  (fits %d)\n", model.name, batch, rung.c_str(), us,
                fits);
    std::fflush(stdout);
    std::fprintf(options.out,
                 "%s\n  {\"model\": \"%s\", \"ctx\": %d, \"batch\": %d, \"rung\": \"%s\", "
                 "\"median_us\": %.1f, \"largest_batch\": %d}",
                 *comma, model.name, options.context, batch, rung.c_str(), us, fits);
    *comma = ",";
  };
  for (const std::string& text : options.batches) {
    const int batch = std::atoi(text.c_str());
    DecodeStep step(model, weights, batch, options.context);
    report("none", batch, 0, MedianUs(step, nullptr));
    for (const std::string& name : options.rungs) {
      CacheKind kind;
      if (!KindOf(name, &kind)) continue;
      const int fits = LargestBatch(model, options.context, kind, memory);
      if (batch > fits) {
        std::printf("%-13s batch %2d %-5s does not fit (%d)\n", model.name, batch, name.c_str(),
                    fits);
        continue;
      }
      StepCache cache(model, batch, options.context, kind.rung, kind.pq_bits);
      report(name, batch, fits, MedianUs(step, &cache));
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--context") options.context = std::atoi(argv[i + 1]);
    if (name == "--batches") options.batches = Split(argv[i + 1]);
    if (name == "--rungs") options.rungs = Split(argv[i + 1]);
    if (name == "--out") options.out = std::fopen(argv[i + 1], "w");
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device on this machine\n");
    return 77;
  }
  if (options.out == nullptr || options.context < 2 * kPageTokens) return 2;
  size_t available = 0, memory = 0;
  Must(cudaMemGetInfo(&available, &memory), "memory");
  std::fprintf(options.out, "{\"command\": \"step_bench\", \"rows\": [");
  const char* comma = "";
  for (const ModelShape& model : kModels) RunModel(model, options, available, &comma);
  std::fprintf(options.out, "\n]}\n");
  return 0;
}

}  // namespace
}  // namespace varve::cuda::step

int main(int argc, char** argv) { return varve::cuda::step::Main(argc, argv); }
