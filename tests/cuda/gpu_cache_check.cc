// A cache on a real GPU beside one on the CPU that is fed the same: outputs that differ by
// rounding, rows bit for bit, files that move both ways, policies that decide alike. A program of
// its own, so that it needs libvarve alone; exits with 77 where there is no GPU, unless
// VARVE_NEED_GPU is 1. (tests/cuda/cuda_cache_tests.cc has more, on emulated kernels.)
//
//   gpu_cache_check [FOLDER]

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/need_gpu.h"
#include "varve/cache.h"

namespace {

using varve::Cache;
using varve::SequenceId;

constexpr varve::CacheShape kShape = {.num_layers = 2,
                                      .num_kv_heads = 2,
                                      .group_size = 4,
                                      .key_dim = 128,
                                      .value_dim = 128,
                                      .page_tokens = 64};
constexpr int kTokens = 700;
int failures = 0;

void Expect(bool holds, const std::string& plan, const std::string& what) {
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "%s: %s\n", plan.c_str(), what.c_str());
}

float ValueAt(int64_t token, int layer, int row, int i) {
  const double mixed = static_cast<double>(token) * 0.37 + layer * 1.1 + row * 0.53;
  return static_cast<float>(std::sin(mixed + i * 0.29) + 0.3 * std::cos(mixed * 1.7 - i));
}

std::vector<float> RowsOf(int64_t first, int count, int layer, int heads, int salt) {
  std::vector<float> rows;
  for (int t = 0; t < count; ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < 128; ++i) rows.push_back(ValueAt(first + t, layer, h + salt, i));
    }
  }
  return rows;
}

std::unique_ptr<Cache> Make(const std::string& plan, varve::Device device) {
  varve::CacheOptions options;
  options.plan = *varve::ParsePlan(plan);
  options.device = device;
  if (device == varve::Device::kCuda) options.max_bytes = uint64_t{64} << 20;
  varve::Result<std::unique_ptr<Cache>> cache = Cache::Create(kShape, std::move(options));
  if (cache.ok()) return std::move(*cache);
  std::fprintf(stderr, "%s: %s\n", plan.c_str(), cache.status().ToString().c_str());
  return nullptr;
}

// One step of `count` tokens; what attention gives in both layers.
std::vector<float> Feed(Cache& cache, SequenceId id, int64_t first, int count,
                        const std::string& plan) {
  std::vector<float> all;
  const varve::StepEntry entry = {id, count};
  varve::Status status = cache.BeginStep({&entry, 1});
  for (int layer = 0; layer < kShape.num_layers && status.ok(); ++layer) {
    const std::vector<float> keys = RowsOf(first, count, layer, 2, 0);
    const std::vector<float> values = RowsOf(first, count, layer, 2, 40);
    const std::vector<float> queries = RowsOf(first, count, layer, 8, 90);
    std::vector<float> out(queries.size());
    status = cache.Append(layer, id, {keys.data(), count, 0, 0}, {values.data(), count, 0, 0});
    if (!status.ok()) break;
    const varve::AttendRequest request = {id, count, queries.data(), 0, 0, out.data(),
                                          0,  0,     nullptr};
    status = cache.Attend(layer, {&request, 1}, {});
    all.insert(all.end(), out.begin(), out.end());
  }
  if (status.ok()) status = cache.EndStep();
  Expect(status.ok(), plan, "a step fails: " + status.ToString());
  return all;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = std::abs(double{a[i]} - b[i]);
    if (std::isnan(off)) return INFINITY;  // std::max would lose it
    largest = std::max(largest, off);
  }
  return largest;
}

std::vector<float> ReadAll(const Cache& cache, SequenceId id, const std::string& plan) {
  std::vector<float> all;
  for (int layer = 0; layer < kShape.num_layers; ++layer) {
    for (const varve::Part part : {varve::Part::kKey, varve::Part::kValue}) {
      std::vector<float> rows((kTokens + 300) * 128);
      const varve::Result<int64_t> count =
          cache.ReadRows(id, layer, 1, part, 0, kTokens + 300, rows.data());
      Expect(count.ok(), plan, "rows cannot be read: " + count.status().ToString());
      if (!count.ok()) return {};
      all.insert(all.end(), rows.begin(), rows.begin() + *count * 128);
    }
  }
  return all;
}

void Check(const std::string& plan, double tolerance, const std::string& folder) {
  const std::unique_ptr<Cache> gpu = Make(plan, varve::Device::kCuda);
  const std::unique_ptr<Cache> cpu = Make(plan, varve::Device::kCpu);
  if (gpu == nullptr || cpu == nullptr) {
    ++failures;
    return;
  }
  const SequenceId a = *gpu->CreateSequence();
  const SequenceId b = *cpu->CreateSequence();
  double largest = 0;
  for (int64_t at = 0; at < kTokens;) {
    const int most = std::min(*gpu->MaxStepTokens(a), *cpu->MaxStepTokens(b));
    const int count = static_cast<int>(std::min<int64_t>({most, at < 512 ? 64 : 1, kTokens - at}));
    largest = std::max(
        largest, LargestDifference(Feed(*gpu, a, at, count, plan), Feed(*cpu, b, at, count, plan)));
    at += count;
  }
  Expect(largest <= tolerance, plan, "attention differs by " + std::to_string(largest));
  Expect(ReadAll(*gpu, a, plan) == ReadAll(*cpu, b, plan), plan, "rows are not those of the CPU");
  // A fork parts from its source; a file moves to the other device.
  const SequenceId fork = *gpu->Fork(a);
  Feed(*gpu, fork, kTokens, 1, plan);
  Expect(ReadAll(*gpu, a, plan) == ReadAll(*cpu, b, plan), plan, "a fork changes its source");
  const std::string path = folder + "/gpu_cache_check.varve";
  varve::SaveOptions save;
  save.sequences = {{a, {}}};
  Expect(gpu->Save(path, save).ok(), plan, "save");
  const auto loaded = cpu->Load(path, {});
  Expect(loaded.ok(), plan, "a file of the GPU does not load on the CPU");
  if (loaded.ok())
    Expect(ReadAll(*cpu, (*loaded)[0].sequence, plan) == ReadAll(*cpu, b, plan), plan,
           "a loaded file has other rows");
  save.sequences = {{b, {}}};
  Expect(cpu->Save(path, save).ok(), plan, "save");
  const auto back = gpu->Load(path, {});
  Expect(back.ok(), plan, "a file of the CPU does not load on the GPU");
  if (back.ok())
    Expect(ReadAll(*gpu, (*back)[0].sequence, plan) == ReadAll(*gpu, a, plan), plan,
           "a file back has other rows");
  std::remove(path.c_str());
  std::printf("%-60s attention within %.1e, %llu bytes\n", plan.c_str(), largest,
              static_cast<unsigned long long>(gpu->Stats().bytes_used));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  varve::CacheOptions options;
  options.device = varve::Device::kCuda;
  options.max_bytes = uint64_t{1} << 20;
  const varve::Status status = Cache::Create(kShape, std::move(options)).status();
  if (!status.ok()) {
    const bool skipped = status.code() == varve::StatusCode::kNotFound && !varve::NeedGpu();
    std::printf("%s: %s\n", skipped ? "skipped" : "no cache", status.ToString().c_str());
    return skipped ? 77 : 1;
  }
  for (const char* plan :
       {"f16", "bf16,open_rung=bf16", "q8_0", "age=f16:128/q8_0:256/t4", "window=256,sink=64"}) {
    Check(plan, 5e-3, folder);
  }
  for (const char* plan : {"q4_0", "q4_0r", "t4", "t3", "t2", "k=q8_0,v=t4"})
    Check(plan, 8e-2, folder);
  Check("evict=h2o,ratio=2,sink=64,recent=128,trigger=256", 5e-3, folder);
  Check("evict=demote,ratio=3,sink=64,recent=128,trigger=256", 8e-2, folder);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
