// A cache on the GPU beside one on the CPU that is fed the same: the same pages bit for bit, the
// same decisions, and outputs that differ by the rounding of f16. Run on emulated kernels
// (src/cuda/emulation), so that no GPU is needed.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/backend/device_memory.h"
#include "cuda/emulation/runtime.h"
#include "rungs/pq/pq_testing.h"
#include "tests/cache/retention_testing.h"
#include "varve/cache.h"

namespace varve {
namespace cuda_cache_tests {

constexpr uint64_t kPoolBytes = uint64_t{32} << 20;

CacheShape SmallShape(int page = 64, int dim = 64, int group = 2) {
  return ShapeOf(
      {.layers = 2, .kv_heads = 2, .group = group, .key_dim = dim, .value_dim = dim, .page = page});
}

CacheOptions OnGpu() {
  CacheOptions options;
  options.device = Device::kCuda;
  options.max_bytes = kPoolBytes;
  options.num_threads = 1;
  return options;
}

// Both caches have a cap, so that both encode a page at a time.
CacheOptions OnCpu() {
  CacheOptions options;
  options.max_bytes = kPoolBytes;
  options.num_threads = 1;
  return options;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string TemporaryPath(const std::string& name) {
  return testing::TempDir() + "varve_cuda_cache_" + name;
}

// The two, fed the same rows.
struct Pair {
  Pair(const CacheShape& shape, const std::string& plan, const RetentionWork& work)
      : cpu(shape, plan, work, OnCpu()), gpu(shape, plan, work, OnGpu()) {
    cpu.last_queries = gpu.last_queries = 2;  // emulation is slow
    cpu_id = *cpu.cache->CreateSequence();
    gpu_id = *gpu.cache->CreateSequence();
  }

  void Feed(int64_t until, int step_tokens = 0) {
    ASSERT_NO_FATAL_FAILURE(cpu.Feed(cpu_id, until, step_tokens));
    ASSERT_NO_FATAL_FAILURE(gpu.Feed(gpu_id, until, step_tokens));
  }

  // The largest difference of an output, relative to the largest value that there is.
  double OutputError(SequenceId cpu_sequence, SequenceId gpu_sequence) const {
    double worst = 0;
    for (int layer = 0; layer < cpu.cache->shape().num_layers; ++layer) {
      const std::vector<float>& want = cpu.outputs.at({cpu_sequence.value, layer});
      const std::vector<float>& got = gpu.outputs.at({gpu_sequence.value, layer});
      EXPECT_EQ(want.size(), got.size());
      double largest = 0;
      for (const float value : want) largest = std::max<double>(largest, std::abs(value));
      for (size_t i = 0; i < want.size(); ++i) {
        const double error = std::abs(want[i] - got[i]) / largest;
        worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
      }
    }
    return worst;
  }
  double OutputError() const { return OutputError(cpu_id, gpu_id); }

  // Files of both, byte by byte: the tables and every page.
  void ExpectSameFiles(const std::string& name) {
    const std::string cpu_path = TemporaryPath(name + "_cpu"),
                      gpu_path = TemporaryPath(name + "_gpu");
    ASSERT_OK(cpu.cache->Save(cpu_path, {}));
    ASSERT_OK(gpu.cache->Save(gpu_path, {}));
    const std::string want = ReadFile(cpu_path), got = ReadFile(gpu_path);
    EXPECT_GT(want.size(), 1000u);
    EXPECT_TRUE(want == got) << name << ": files of " << want.size() << " and " << got.size();
    std::remove(cpu_path.c_str());
    std::remove(gpu_path.c_str());
  }

  RetentionRun cpu;
  RetentionRun gpu;
  SequenceId cpu_id;
  SequenceId gpu_id;
};

struct PlanCase {
  const char* name;
  const char* plan;
  double within;
};

class CudaCachePlans : public testing::TestWithParam<PlanCase> {};

// 0.03: the CPU rounds weights, and of turned keys queries, to bytes.
INSTANTIATE_TEST_SUITE_P(
    CudaCache, CudaCachePlans,
    testing::Values(PlanCase{"f16", "f16", 2e-3}, PlanCase{"bf16", "bf16,open_rung=bf16", 2e-3},
                    PlanCase{"q8_0", "q8_0", 5e-3}, PlanCase{"q4_0", "q4_0,exact=0", 0.03},
                    PlanCase{"q8_0r", "q8_0r", 5e-3}, PlanCase{"q4_0r", "q4_0r,exact=0", 0.03},
                    PlanCase{"t4", "t4,exact=0", 0.03}, PlanCase{"t3", "t3,exact=0", 0.03},
                    PlanCase{"t2", "t2,exact=0", 0.03},
                    PlanCase{"mixed", "k=q8_0,v=t4,open=64,exact=64", 0.03},
                    PlanCase{"ages", "age=f16:64/q8_0:128/q4_0", 0.03},
                    PlanCase{"window", "q8_0,window=128,sink=16", 5e-3}),
    [](const testing::TestParamInfo<PlanCase>& tested) { return std::string(tested.param.name); });

TEST_P(CudaCachePlans, GivesTheSamePagesAndNearlyTheSameOutputs) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 300);
  Pair pair(shape, GetParam().plan, work);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(17, 17));
  ASSERT_NO_FATAL_FAILURE(pair.Feed(280, 90));
  ASSERT_NO_FATAL_FAILURE(pair.Feed(284, 1));
  EXPECT_LT(pair.OutputError(), GetParam().within);
  pair.ExpectSameFiles(GetParam().name);
  EXPECT_EQ(ReadAll(*pair.gpu.cache, pair.gpu_id), ReadAll(*pair.cpu.cache, pair.cpu_id));
}

TEST(CudaCache, WorksForEveryShapeThatHasKernels) {
  for (const auto& [page, dim, group] : {std::tuple{64, 96, 3}, std::tuple{128, 64, 7},
                                         std::tuple{64, 128, 16}, std::tuple{64, 256, 1}}) {
    const CacheShape shape = SmallShape(page, dim, group);
    const RetentionWork work(shape, 160);
    Pair pair(shape, "q8_0", work);
    ASSERT_NO_FATAL_FAILURE(pair.Feed(130, 130));
    ASSERT_NO_FATAL_FAILURE(pair.Feed(132, 1));
    EXPECT_LT(pair.OutputError(), 5e-3) << page << " " << dim << " " << group;
    pair.ExpectSameFiles("shape" + std::to_string(dim));
  }
}

TEST(CudaCache, EveryQueryOfAPromptSeesWhatItMay) {
  const CacheShape shape = ShapeOf({.kv_heads = 1, .group = 2, .page = 64});
  const RetentionWork work(shape, 100);
  Pair pair(shape, "q4_0,exact=0", work);
  pair.cpu.last_queries = pair.gpu.last_queries = 0;
  ASSERT_NO_FATAL_FAILURE(pair.Feed(100, 100));
  EXPECT_LT(pair.OutputError(), 0.03);
}

// --- sequences ---

TEST(CudaCache, ForksCopyTheOpenPageWhenTheyWrite) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 300);
  Pair pair(shape, "q8_0", work);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(150, 150));
  const SequenceId cpu_fork = *pair.cpu.cache->Fork(pair.cpu_id);
  const SequenceId gpu_fork = *pair.gpu.cache->Fork(pair.gpu_id);
  // The fork gets other rows: those of other positions.
  const auto append = [&](RetentionRun& run, SequenceId id, int64_t first) {
    ASSERT_NO_FATAL_FAILURE(run.Begin(id, 5));
    for (int layer = 0; layer < 2; ++layer) ASSERT_NO_FATAL_FAILURE(run.Layer(layer, id, first, 5));
    ASSERT_OK(run.cache->EndStep());
  };
  append(pair.cpu, cpu_fork, 200);
  append(pair.gpu, gpu_fork, 200);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(155, 5));
  EXPECT_LT(pair.OutputError(), 5e-3);
  EXPECT_LT(pair.OutputError(cpu_fork, gpu_fork), 5e-3);
  EXPECT_GT(pair.gpu.cache->Report().bytes_copied, 0u);
  EXPECT_EQ(pair.gpu.cache->Report().bytes_copied, pair.cpu.cache->Report().bytes_copied);
  EXPECT_EQ(ReadAll(*pair.gpu.cache, gpu_fork), ReadAll(*pair.cpu.cache, cpu_fork));
  pair.ExpectSameFiles("fork");
}

TEST(CudaCache, SeesHolesAndCuts) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 300);
  Pair pair(shape, "q4_0,exact=0", work);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(200, 200));
  for (RetentionRun* run : {&pair.cpu, &pair.gpu}) {
    const SequenceId id = run == &pair.cpu ? pair.cpu_id : pair.gpu_id;
    ASSERT_OK(run->cache->RemoveRange(id, 40, 90));
    ASSERT_OK(run->cache->Truncate(id, 185));
  }
  ASSERT_NO_FATAL_FAILURE(pair.Feed(190, 1));
  EXPECT_LT(pair.OutputError(), 0.03);
  // As many queries as a prompt has, over the same holes.
  pair.cpu.last_queries = pair.gpu.last_queries = 0;
  ASSERT_NO_FATAL_FAILURE(pair.Feed(215, 25));
  EXPECT_LT(pair.OutputError(), 0.03);
  pair.ExpectSameFiles("holes");
}

TEST(CudaCache, TakesWindowsSoftCapsAndQueriesThatSeeAll) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 200);
  Pair pair(shape, "f16", work);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(180, 180));
  const size_t heads = 4;
  // A few queries, which attend one by one, and enough for the kernel of prompts.
  for (const int queries : {3, 40}) {
    for (const AttendOptions& options :
         {AttendOptions{.window = 70}, AttendOptions{.soft_cap = 5.0f},
          AttendOptions{.scale = 0.3f, .causal = false}}) {
      std::vector<float> out[2], lse[2];
      for (int i = 0; i < 2; ++i) {
        out[i].resize(queries * heads * 64);
        lse[i].resize(queries * heads);
        const AttendRequest request = {i == 0 ? pair.cpu_id : pair.gpu_id,
                                       queries,
                                       work.queries[1].data(),
                                       0,
                                       0,
                                       out[i].data(),
                                       0,
                                       0,
                                       lse[i].data()};
        ASSERT_OK((i == 0 ? pair.cpu : pair.gpu).cache->Attend(1, {&request, 1}, options));
      }
      for (size_t i = 0; i < out[0].size(); ++i) EXPECT_NEAR(out[0][i], out[1][i], 4e-3);
      for (size_t i = 0; i < lse[0].size(); ++i) EXPECT_NEAR(lse[0][i], lse[1][i], 4e-3);
    }
  }
}

TEST(CudaCache, ASequenceWithoutRowsGivesZeros) {
  for (const Device device : {Device::kCpu, Device::kCuda}) {
    CacheOptions of_cache = OnGpu();
    of_cache.device = device;
    const std::unique_ptr<Cache> cache = MakeCache(SmallShape(), "q8_0", of_cache);
    AttendRequest request;
    request.sequence = *cache->CreateSequence();
    for (const int queries : {1, 40}) {
      const size_t heads = size_t{4} * queries;
      const std::vector<float> query(heads * 64, 1.0f);
      std::vector<float> output(heads * 64, NAN);
      std::vector<float> log_sum_exp(heads, NAN);
      request.num_queries = queries;
      request.queries = query.data();
      request.output = output.data();
      request.log_sum_exp = log_sum_exp.data();
      AttendOptions options;
      options.causal = false;
      ASSERT_OK(cache->Attend(0, {&request, 1}, options));
      EXPECT_EQ(output, std::vector<float>(heads * 64, 0.0f));
      EXPECT_EQ(log_sum_exp, std::vector<float>(heads, -HUGE_VALF));
    }
  }
}

// --- product quantization ---

// The norm of a row is summed in another order than on the CPU, so a code that lies on the border
// of two may be the other one: of 10000 values one may differ.
TEST(CudaCache, FindsTheSameCentroidsAndAttendsToThem) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 220);
  for (const auto& [bits, rotated] : {std::pair{8, false}, {4, true}}) {
    const auto codebook =
        SharePqCodebook(shape, {{Part::kKey, {32, bits}, CodebookGrain::kHead, rotated},
                                {Part::kValue, {32, bits}, CodebookGrain::kLayer, false}});
    const std::string plan = "pq32x" + std::to_string(bits) + ",open=0,exact=0";
    CacheOptions on_cpu = OnCpu(), on_gpu = OnGpu();
    on_cpu.codebook = on_gpu.codebook = codebook;
    RetentionRun cpu(shape, plan, work, on_cpu), gpu(shape, plan, work, on_gpu);
    cpu.last_queries = gpu.last_queries = 2;
    const SequenceId cpu_id = *cpu.cache->CreateSequence();
    const SequenceId gpu_id = *gpu.cache->CreateSequence();
    ASSERT_NO_FATAL_FAILURE(cpu.Feed(cpu_id, 210, 70));
    ASSERT_NO_FATAL_FAILURE(gpu.Feed(gpu_id, 210, 70));
    const std::vector<float> want = ReadAll(*cpu.cache, cpu_id), got = ReadAll(*gpu.cache, gpu_id);
    ASSERT_EQ(want.size(), got.size());
    size_t different = 0;
    for (size_t i = 0; i < want.size(); ++i) different += want[i] != got[i];
    EXPECT_LE(different, want.size() / 10000);
    for (int layer = 0; layer < 2; ++layer) {
      const auto& out = cpu.outputs.at({cpu_id.value, layer});
      const auto& gpu_out = gpu.outputs.at({gpu_id.value, layer});
      for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], gpu_out[i], 0.05) << bits;
    }
  }
}

// --- files ---

TEST(CudaCache, FilesMoveBetweenBothDevices) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 300);
  const std::string plan = "k=t4,v=q4_0,open=64,exact=0";
  Pair pair(shape, plan, work);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(210, 210));
  const std::string cpu_path = TemporaryPath("move_cpu"), gpu_path = TemporaryPath("move_gpu");
  ASSERT_OK(pair.cpu.cache->Save(cpu_path, {}));
  ASSERT_OK(pair.gpu.cache->Save(gpu_path, {}));
  Pair other(shape, plan, work);
  other.cpu_id = other.cpu.cache->Load(gpu_path, {})->at(0).sequence;
  other.gpu_id = other.gpu.cache->Load(cpu_path, {})->at(0).sequence;
  EXPECT_EQ(ReadAll(*other.gpu.cache, other.gpu_id), ReadAll(*pair.gpu.cache, pair.gpu_id));
  ASSERT_NO_FATAL_FAILURE(other.Feed(300, 45));
  EXPECT_LT(other.OutputError(), 0.03);
  EXPECT_EQ(ReadAll(*other.gpu.cache, other.gpu_id), ReadAll(*other.cpu.cache, other.cpu_id));
  std::remove(cpu_path.c_str());
  std::remove(gpu_path.c_str());
}

// --- policies ---

// Which pages an event kept, demoted (to which rung) and dropped.
std::vector<std::string> Fates(const RetentionLog& log) {
  std::vector<std::string> texts;
  for (const RetentionEvent& event : log.events) {
    std::string text = std::to_string(event.layer) + "@" + std::to_string(event.next_position);
    for (const PageDecision& page : event.pages) {
      text += " " + std::to_string(page.page.first_position) +
              (page.fate == PageFate::kKept      ? "K"
               : page.fate == PageFate::kDropped ? "d"
                                                 : "") +
              page.rung;
    }
    texts.push_back(text + " held " + std::to_string(event.held_bytes));
  }
  return texts;
}

class CudaCachePolicies : public testing::TestWithParam<PlanCase> {};

INSTANTIATE_TEST_SUITE_P(
    CudaCache, CudaCachePolicies,
    testing::Values(
        PlanCase{"h2o", "evict=h2o,ratio=2,sink=16,recent=64,trigger=192,every=32", 5e-3},
        PlanCase{"h2o_q8", "q8_0,evict=h2o,ratio=4,sink=16,recent=64,trigger=192,every=64", 8e-3},
        PlanCase{"demote", "evict=demote,ratio=2.5,sink=16,recent=64,trigger=192,every=64", 0.03}),
    [](const testing::TestParamInfo<PlanCase>& tested) { return std::string(tested.param.name); });

TEST_P(CudaCachePolicies, DecideAsOnTheCpu) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 420);
  Pair pair(shape, GetParam().plan, work);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(420, 64));
  EXPECT_GT(pair.cpu.log.events.size(), 2u);
  EXPECT_EQ(Fates(pair.gpu.log), Fates(pair.cpu.log));
  ASSERT_EQ(pair.gpu.log.events.size(), pair.cpu.log.events.size());
  for (size_t i = 0; i < pair.cpu.log.events.size(); ++i) {
    const auto& want = pair.cpu.log.events[i].pages;
    const auto& got = pair.gpu.log.events[i].pages;
    for (size_t p = 0; p < want.size(); ++p) EXPECT_NEAR(got[p].score, want[p].score, 2e-3);
  }
  EXPECT_LT(pair.OutputError(), GetParam().within);
  EXPECT_EQ(ReadAll(*pair.gpu.cache, pair.gpu_id), ReadAll(*pair.cpu.cache, pair.cpu_id));
}

class MassSums final : public AttentionObserver {
 public:
  void OnAttention(const AttentionMass& mass) override {
    const size_t pages = mass.pages.size();
    for (int row = 0; row < mass.num_queries * mass.num_heads; ++row) {
      double sum = 0;
      for (size_t page = 0; page < pages; ++page) sum += mass.mass[row * pages + page];
      EXPECT_NEAR(sum, 1.0, 1e-3);
      ++rows;
    }
  }
  int rows = 0;
};

TEST(CudaCache, MassesOfEveryQuerySumToOne) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 150);
  MassSums sums;
  CacheOptions options = OnGpu();
  options.observer = &sums;
  RetentionRun run(shape, "q8_0", work, options);
  run.last_queries = 5;
  const SequenceId id = *run.cache->CreateSequence();
  ASSERT_NO_FATAL_FAILURE(run.Feed(id, 140, 70));
  EXPECT_EQ(sums.rows, 2 * 5 * 4 * 2);
}

// --- tensors of the device ---

template <class T>
class OnDevice {
 public:
  explicit OnDevice(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T)), cudaSuccess);
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~OnDevice() { cudaFree(data_); }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }
  T* data() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
  size_t count_;
};

// Rows and queries that lie on the device, with gaps between heads, give what the host's do.
TEST(CudaCache, TakesTensorsOfTheDevice) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 70);
  RetentionRun host(shape, "q8_0", work, OnGpu());
  host.last_queries = 3;
  const SequenceId id = *host.cache->CreateSequence();
  ASSERT_NO_FATAL_FAILURE(host.Feed(id, 70, 70));

  RetentionRun run(shape, "q8_0", work, OnGpu());
  const SequenceId other = *run.cache->CreateSequence();
  ASSERT_NO_FATAL_FAILURE(run.Begin(other, 70));
  const size_t heads = 4, dim = 64, gap = 80;
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<float> wide(size_t{70} * 2 * gap);  // values lie otherwise than keys
    for (size_t row = 0; row < 140; ++row) {
      std::copy_n(work.values[layer].data() + row * dim, dim, wide.data() + row * gap);
    }
    const OnDevice<float> keys(work.keys[layer]), values(wide);
    const auto rows = [](const OnDevice<float>& tensor, int first, int count, ptrdiff_t head) {
      return RowsView{tensor.data() + 2 * head * first, count, 0, head, DType::kF32, Device::kCuda};
    };
    // One row, then rows of two pages.
    ASSERT_OK(run.cache->Append(layer, other, rows(keys, 0, 1, 64), rows(values, 0, 1, 80)));
    ASSERT_OK(run.cache->Append(layer, other, rows(keys, 1, 69, 64), rows(values, 1, 69, 80)));
    std::vector<float> spread(3 * heads * gap);
    for (size_t row = 0; row < 3 * heads; ++row) {
      std::copy_n(work.queries[layer].data() + (67 * heads + row) * dim, dim,
                  spread.data() + row * gap);
    }
    const OnDevice<float> queries(spread), lse(3 * heads);
    OnDevice<float> output(3 * heads * dim);
    AttendRequest request;
    request.sequence = other;
    request.num_queries = 3;
    request.queries = queries.data();
    request.query_head_stride = gap;
    request.output = output.data();
    request.log_sum_exp = lse.data();
    request.device = Device::kCuda;
    ASSERT_OK(run.cache->Attend(layer, {&request, 1}, {}));
    EXPECT_EQ(output.Read(), host.outputs.at({id.value, layer}));
    for (const float value : lse.Read()) EXPECT_TRUE(std::isfinite(value));
  }
  ASSERT_OK(run.cache->EndStep());
  EXPECT_EQ(ReadAll(*run.cache, other), ReadAll(*host.cache, id));
}

TEST(CudaCache, RefusesTensorsOfADeviceThatItIsNotOn) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 10);
  RetentionRun run(shape, "f16", work, OnCpu());
  const SequenceId id = *run.cache->CreateSequence();
  ASSERT_NO_FATAL_FAILURE(run.Begin(id, 1));
  const RowsView rows = {work.keys[0].data(), 1, 0, 0, DType::kF32, Device::kCuda};
  EXPECT_EQ(run.cache->Append(0, id, rows, rows).code(), StatusCode::kUnimplemented);
}

TEST(CudaCache, GoesOnInAnotherStream) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 150);
  Pair pair(shape, "q8_0", work);
  ASSERT_NO_FATAL_FAILURE(pair.Feed(70));
  EXPECT_EQ(pair.gpu.cache->SetStream(nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.cpu.cache->SetStream(cudaStreamLegacy).code(), StatusCode::kFailedPrecondition);
  ASSERT_OK(pair.gpu.cache->SetStream(cudaStreamLegacy));
  ASSERT_NO_FATAL_FAILURE(pair.Feed(150));
  EXPECT_LT(pair.OutputError(), 2e-3);
  ASSERT_NO_FATAL_FAILURE(pair.ExpectSameFiles("streams"));
}

// --- limits and failures ---

// Whatever the order in which slabs come back, holes that touch are one again.
TEST(DeviceMemory, HolesJoinInEveryOrder) {
  constexpr size_t kSlab = 64 << 10;
  std::vector<int> order = {0, 1, 2, 3};
  do {
    auto memory = cuda::DeviceMemory::Create(0, kPoolBytes, 0, nullptr);
    ASSERT_TRUE(memory.ok());
    std::vector<std::byte*> slabs;
    while (std::byte* slab = (*memory)->Map(kSlab)) slabs.push_back(slab);
    ASSERT_GE(slabs.size(), 4U);
    const size_t first = slabs.size() / 2;
    for (const int index : order) (*memory)->Unmap(slabs[first + index], kSlab);
    EXPECT_EQ((*memory)->Map(5 * kSlab), nullptr);
    EXPECT_EQ((*memory)->Map(3 * kSlab), slabs[first]);
    EXPECT_EQ((*memory)->Map(kSlab), slabs[first + 3]);
    EXPECT_EQ((*memory)->Map(kSlab), nullptr);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(CudaCache, GrowsByPiecesAndGivesThemBack) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 3000);
  CacheOptions options = OnGpu();
  options.max_bytes = 0;
  options.device_chunk_bytes = 1;  // a slab each
  RetentionRun run(shape, "f16", work, options);
  run.last_queries = 1;  // emulation is slow
  const auto feed = [&] {
    const SequenceId id = *run.cache->CreateSequence();
    run.Feed(id, 3000, 1000);
    return id;
  };
  for (int turn = 0; turn < 2; ++turn) {
    const SequenceId first = feed(), second = feed();
    EXPECT_GT(run.cache->Stats().bytes_held, uint64_t{5} << 20);
    EXPECT_EQ(ReadAll(*run.cache, first), ReadAll(*run.cache, second));
    ASSERT_OK(run.cache->Free(first));
    ASSERT_OK(run.cache->Free(second));
    EXPECT_LT(run.cache->Stats().bytes_held, uint64_t{1} << 20);
  }
}

TEST(CudaCache, AFullPoolIsAStatusAndNothingIsLost) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 400);
  CacheOptions options = OnGpu();
  options.max_bytes = 8 * 2 * 2 * 64 * 64 * 2;  // eight open pages: four of each layer
  RetentionRun run(shape, "f16", work, options);
  run.last_queries = 1;
  const SequenceId id = *run.cache->CreateSequence();
  ASSERT_NO_FATAL_FAILURE(run.Feed(id, 250, 64));
  const std::vector<float> before = ReadAll(*run.cache, id);
  const StepEntry entry = {id, 60};
  EXPECT_EQ(run.cache->BeginStep({&entry, 1}).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(ReadAll(*run.cache, id), before);
  ASSERT_OK(run.cache->Truncate(id, 100));
  ASSERT_NO_FATAL_FAILURE(run.Feed(id, 160, 60));
  EXPECT_EQ(*run.cache->NextPosition(id), 160);
}

TEST(CudaCache, ADeviceThatIsGoneIsAStatusAndTheStepIsRolledBack) {
  const CacheShape shape = SmallShape();
  const RetentionWork work(shape, 100);
  RetentionRun run(shape, "q8_0", work, OnGpu());
  run.last_queries = 1;
  const SequenceId id = *run.cache->CreateSequence();
  ASSERT_NO_FATAL_FAILURE(run.Feed(id, 60, 60));
  const std::vector<float> before = ReadAll(*run.cache, id);
  ASSERT_NO_FATAL_FAILURE(run.Begin(id, 1));
  cuda::emulation::SetDeviceLost(true);
  const RowsView rows = {work.keys[0].data(), 1};
  const Status status = run.cache->Append(0, id, rows, rows);
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status.ToString();
  std::vector<float> out(4 * 64);
  const AttendRequest request = {id, 1, work.queries[0].data(), 0, 0, out.data()};
  EXPECT_EQ(run.cache->Attend(0, {&request, 1}, {}).code(), StatusCode::kIoError);
  const std::string path = TemporaryPath("gone");
  EXPECT_EQ(run.cache->Save(path, {}).code(), StatusCode::kIoError);
  CacheOptions options = OnGpu();
  EXPECT_EQ(Cache::Create(shape, std::move(options)).status().code(), StatusCode::kNotFound);
  cuda::emulation::SetDeviceLost(false);
  EXPECT_EQ(*run.cache->NextPosition(id), 60);
  EXPECT_EQ(ReadAll(*run.cache, id), before);
  ASSERT_NO_FATAL_FAILURE(run.Feed(id, 100, 10));
}

TEST(CudaCache, RefusesWhatHasNoKernels) {
  const auto refusal = [](const CacheShape& shape, const char* plan) {
    CacheOptions options = OnGpu();
    options.plan = *ParsePlan(plan);
    return Cache::Create(shape, std::move(options)).status();
  };
  EXPECT_EQ(refusal(SmallShape(16), "f16").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(refusal(SmallShape(64, 80), "f16").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(refusal(SmallShape(64, 64, 32), "f16").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(refusal(SmallShape(), "f32").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(refusal(SmallShape(), "f16,open_rung=f32").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(refusal(SmallShape(), "q8_0,pack=store").code(), StatusCode::kUnimplemented);
  EXPECT_OK(refusal(SmallShape(), "f16"));

  CacheOptions options = OnGpu();
  options.device_index = 3;
  EXPECT_EQ(Cache::Create(SmallShape(), options).status().code(), StatusCode::kNotFound);
  options = OnGpu();
  options.memory = SystemPageMemory();
  EXPECT_EQ(Cache::Create(SmallShape(), options).status().code(), StatusCode::kInvalidArgument);
  CacheServices none;
  none.make_cuda = nullptr;
  EXPECT_EQ(CreateCache(SmallShape(), OnGpu(), none).status().code(), StatusCode::kUnimplemented);
}

}  // namespace cuda_cache_tests
}  // namespace varve
