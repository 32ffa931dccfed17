// Speed of decode attention on pages in device memory: one row of JSON per rung and shape.
//
//   cuda_bench [--set quick|wide|full] [--rungs f16,q4_0,…] [--page 64] [--out FILE] [--seconds N]
//
// Each row times calls captured in a CUDA graph, over enough copies of the pages that nothing is
// found in the second-level cache; the median of replays counts. All heads of the last call are
// then checked. Exits with 1 if a row was wrong.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cuda/device_attention.h"
#include "cuda/testing/bench_pages.h"
#include "cuda/testing/device_buffer.h"
#include "cuda/testing/graph_timer.h"
#include "cuda/testing/pq_book.h"
#include "cuda/testing/read_all.h"

namespace varve::cuda::testing {
namespace {

constexpr size_t kColdBytes = 512u << 20;
constexpr int kCallsPerGraph = 16;

struct BenchShape {
  int batch;
  int query_heads;
  int kv_heads;
  int context;
};

// pqN: N bits per value, two channels a code.
struct BenchRung {
  std::string name;
  DeviceRung rung;
  int pq_bits = 0;
};

struct Options {
  std::string set = "quick";
  std::vector<BenchRung> rungs;
  int page_tokens = 64;
  int head_dim = 128;
  int splits = 0;
  bool page_lse = false;
  Tiling tiling = Tiling::kAuto;
  double seconds = 1e9;
  FILE* out = stdout;
};

std::vector<BenchShape> Shapes(const std::string& set) {
  if (set == "quick") return {{8, 32, 8, 32768}};
  if (set == "wide")
    return {{8, 32, 8, 32768}, {16, 32, 8, 131072}, {1, 32, 32, 32768}, {1, 32, 8, 4096}};
  std::vector<BenchShape> shapes;
  for (const int context : {4096, 32768, 131072}) {
    for (const int batch : {1, 8, context == 131072 ? 16 : 32}) {
      for (const int kv_heads : {32, 8, 4}) shapes.push_back({batch, 32, kv_heads, context});
    }
  }
  return shapes;
}

// What attention over the rows gives, in double precision. All periods are alike, so one counts.
std::vector<double> Expected(const std::vector<float>& keys, const std::vector<float>& values,
                             const uint16_t* query, int dim) {
  const size_t rows = keys.size() / static_cast<size_t>(dim);
  std::vector<double> weights(rows), expected(static_cast<size_t>(dim), 0.0);
  double max = -1e300, sum = 0;
  for (size_t row = 0; row < rows; ++row) {
    double score = 0;
    for (int d = 0; d < dim; ++d) {
      score += static_cast<double>(F16ToF32(query[d])) * keys[row * dim + d];
    }
    weights[row] = score / std::sqrt(static_cast<double>(dim));
    max = std::max(max, weights[row]);
  }
  for (size_t row = 0; row < rows; ++row) {
    const double weight = std::exp(weights[row] - max);
    sum += weight;
    for (int d = 0; d < dim; ++d)
      expected[static_cast<size_t>(d)] += weight * values[row * dim + d];
  }
  for (double& x : expected) x /= sum;
  return expected;
}

// ||out - reference|| / ||reference||, of all heads of all sequences together: one of 512 that is
// wrong makes 0.04 of it.
double ErrorOf(const PageContent& content, const BenchShape& bench,
               const std::vector<uint16_t>& queries, const std::vector<uint16_t>& output, int dim) {
  const int group = bench.query_heads / bench.kv_heads;
  double error = 0, norm = 0;
  for (int row = 0; row < bench.batch * bench.query_heads; ++row) {
    const auto kv_head = static_cast<size_t>(row % bench.query_heads / group);
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(dim);
    const std::vector<double> expected =
        Expected(content.keys[kv_head], content.values[kv_head], &queries[at], dim);
    for (size_t d = 0; d < expected.size(); ++d) {
      const double difference = F16ToF32(output[at + d]) - expected[d];
      error += difference * difference;
      norm += expected[d] * expected[d];
    }
  }
  return std::sqrt(error / norm);
}

// Twice what an H200 had in any shape: 4e-4, or 9e-3 where queries are rounded to bytes.
double MostError(DeviceRung rung) { return rung >= DeviceRung::kT4 ? 1.8e-2 : 1e-3; }

// Reading alone, which is what attention does: faster than copying.
double ReadGbps() {
  constexpr size_t kBytes = size_t{4} << 30;
  DeviceBuffer<std::byte> from(kBytes);
  DeviceBuffer<uint32_t> sum(1);
  const Timing time = TimeGraph(2, [&](int, cudaStream_t stream) {
    Must(ReadAll(from.data(), kBytes, sum.data(), stream), "read");
  });
  return kBytes / time.median_us * 1e-3;
}

struct Row {
  Timing time;
  size_t bytes = 0;
  double error = 0;
  int blocks = 0;
};

// Where pages lie in device memory: `sets` copies of all pages of a batch.
struct PoolLayout {
  size_t page_bytes;
  size_t slot_bytes;
  size_t num_pages;  // of a set
  size_t sets;

  size_t num_slots() const { return sets * num_pages; }
};

PoolLayout LayoutOf(size_t page_bytes, size_t num_pages) {
  const size_t sets =
      std::clamp<size_t>(kColdBytes / (num_pages * page_bytes) + 1, 1, kCallsPerGraph);
  return {page_bytes, (page_bytes + 255) / 256 * 256, num_pages, sets};
}

// The content over and over, to the last slot.
void FillPool(const PageContent& content, const PoolLayout& layout, DeviceBuffer<std::byte>* pool) {
  const size_t page_bytes = layout.page_bytes, slot_bytes = layout.slot_bytes;
  DeviceBuffer<std::byte> source(content.bytes);
  for (size_t slot = 0; slot < kPeriod; ++slot) {
    Must(cudaMemcpy(pool->data() + slot * slot_bytes, source.data() + slot * page_bytes, page_bytes,
                    cudaMemcpyDeviceToDevice),
         "fill");
  }
  for (size_t filled = kPeriod; filled < layout.num_slots(); filled *= 2) {
    const size_t count = std::min(filled, layout.num_slots() - filled);
    Must(cudaMemcpy(pool->data() + filled * slot_bytes, pool->data(), count * slot_bytes,
                    cudaMemcpyDeviceToDevice),
         "fill");
  }
}

// Pages of neighbours in a table do not lie side by side: slots are dealt out by a stride.
std::vector<DevicePage> DealSlots(const Options& options, DeviceRung rung, const PoolLayout& layout,
                                  const std::byte* pool) {
  std::vector<DevicePage> records(layout.num_slots());
  for (size_t i = 0; i < records.size(); ++i) {
    const size_t quarter =
        records.size() / kPeriod;  // a multiple of kPeriod keeps the content's order
    const size_t group = i / kPeriod;
    const size_t slot = quarter > 1 ? group * 61 % quarter * kPeriod + i % kPeriod : i;
    records[i].bytes = pool + slot * layout.slot_bytes;
    records[i].live[0] = ~uint64_t{0};
    records[i].live[1] = options.page_tokens == 128 ? ~uint64_t{0} : 0;
    records[i].key_rung = records[i].value_rung = rung;
    records[i].rows = static_cast<uint16_t>(options.page_tokens);
  }
  return records;
}

std::vector<int32_t> PageBegins(int batch, int pages_each) {
  std::vector<int32_t> begin;
  for (int i = 0; i <= batch; ++i) begin.push_back(i * pages_each);
  return begin;
}

// [batch, query_heads, head_dim] f16
std::vector<uint16_t> RandomQueries(const Options& options, const BenchShape& bench) {
  SplitMix64 random(11);
  std::vector<uint16_t> queries(static_cast<size_t>(bench.batch) * bench.query_heads *
                                options.head_dim);
  for (uint16_t& x : queries) x = F32ToF16(NearlyGaussian(random));
  return queries;
}

// All but the places in device memory.
DeviceAttention CallOf(const Options& options, const BenchShape& bench, const PageShape& shape,
                       DeviceRung rung) {
  DeviceAttention call;
  call.shape = shape;
  call.num_sequences = bench.batch;
  call.query_heads = bench.query_heads;
  call.max_pages = bench.context / options.page_tokens;
  call.key_rungs = call.value_rungs = RungBit(rung);
  call.scale = 1.0f / std::sqrt(static_cast<float>(options.head_dim));
  call.splits = options.splits;
  call.pure_pages = true;
  call.tiling = options.tiling;
  return call;
}

// pages: [sets, num_pages], a set per call by turns
Timing TimeCalls(const DeviceAttention& call, const DeviceLimits& limits, const DevicePage* pages,
                 const PoolLayout& layout) {
  DeviceBuffer<std::byte> workspace(AttentionWorkspaceBytes(call, limits));
  if (!InitAttentionWorkspace(workspace.data(), workspace.size(), nullptr).ok()) std::exit(1);
  Must(cudaDeviceSynchronize(), "set-up");
  const auto attend = [&](int i, cudaStream_t stream) {
    DeviceAttention now = call;
    now.pages = pages + static_cast<size_t>(i) % layout.sets * layout.num_pages;
    const DeviceStatus status = Attend(now, limits, workspace.data(), workspace.size(), stream);
    if (status.ok()) return;
    std::printf("%s\n", status.message());
    std::exit(1);
  };
  attend(0, nullptr);  // outside of a graph, where profilers find it
  Must(cudaDeviceSynchronize(), "attention");
  return TimeGraph(kCallsPerGraph, attend);
}

Row RunShape(const Options& options, const BenchShape& bench, const BenchRung& bench_rung) {
  const DeviceRung rung = bench_rung.rung;
  const int pq_bits = bench_rung.pq_bits;
  const PageShape shape = {options.head_dim, bench.kv_heads, options.page_tokens,
                           pq_bits > 0 ? options.head_dim / 2 : 0, pq_bits};
  const PqBook book = MakePqBook(options.head_dim, options.head_dim / 2, std::max(pq_bits, 4),
                                 options.page_tokens, false, 5);
  const PageContent content = MakeContent(rung, shape, book);
  DeviceAttention call = CallOf(options, bench, shape, rung);
  const PoolLayout layout =
      LayoutOf(content.bytes.size() / kPeriod, static_cast<size_t>(bench.batch) * call.max_pages);
  const std::vector<uint16_t> query_values = RandomQueries(options, bench);

  DeviceBuffer<std::byte> pool(layout.num_slots() * layout.slot_bytes);
  FillPool(content, layout, &pool);
  DeviceBuffer<DevicePage> pages(DealSlots(options, rung, layout, pool.data()));
  DeviceBuffer<int32_t> page_begin(PageBegins(bench.batch, call.max_pages));
  DeviceBuffer<uint16_t> queries(query_values), output(query_values.size());
  DeviceBuffer<uint8_t> centroids(book.centroids);
  DeviceBuffer<float> scales(book.scales);
  DeviceBuffer<uint8_t> rows(RowsOf(book));
  DeviceBuffer<uint8_t> key_rows(PairRowsOf(book, false)), value_rows(PairRowsOf(book, true));
  DeviceBuffer<float> page_lse(options.page_lse ? layout.num_pages * bench.query_heads : 1);
  call.key_codebook.centroids = call.value_codebook.centroids = centroids.data();
  call.key_codebook.scales = call.value_codebook.scales = scales.data();
  call.key_codebook.rows = call.value_codebook.rows = rows.data();
  call.key_codebook.pair_rows = key_rows.data();
  call.value_codebook.pair_rows = value_rows.data();
  call.page_begin = page_begin.data();
  call.queries = queries.data();
  call.output = output.data();
  if (options.page_lse) call.page_lse = page_lse.data();
  const DeviceLimits limits = Limits();
  Row row;
  row.bytes = layout.num_pages * layout.page_bytes;
  row.blocks = ChooseBlocks(call, limits);
  row.time = TimeCalls(call, limits, pages.data(), layout);
  row.error = ErrorOf(content, bench, query_values, output.Download(), options.head_dim);
  return row;
}

bool ParseRungs(const char* list, std::vector<BenchRung>* rungs) {
  rungs->clear();
  std::string rest = list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string name = rest.substr(0, comma);
    rest.erase(0, std::min(comma + 1, rest.size()));
    if (name == "pq4" || name == "pq3" || name == "pq2") {
      rungs->push_back({name, DeviceRung::kPq, 2 * (name[2] - '0')});
      continue;
    }
    int id = 2;
    while (id < kNumRungIds && name != DeviceRungName(static_cast<DeviceRung>(id))) ++id;
    if (id == kNumRungIds) return false;
    rungs->push_back({name, static_cast<DeviceRung>(id)});
  }
  return true;
}

bool ParseOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--set")
      options->set = value;
    else if (name == "--page")
      options->page_tokens = std::atoi(value);
    else if (name == "--dim")
      options->head_dim = std::atoi(value);
    else if (name == "--splits")
      options->splits = std::atoi(value);
    else if (name == "--page-lse")
      options->page_lse = std::atoi(value) != 0;
    else if (name == "--tiling")
      options->tiling = value == std::string("pages")   ? Tiling::kPages
                        : value == std::string("tiles") ? Tiling::kTiles
                                                        : Tiling::kAuto;
    else if (name == "--seconds")
      options->seconds = std::atof(value);
    else if (name == "--out")
      options->out = std::fopen(value, "w");
    else if (name == "--rungs" && ParseRungs(value, &options->rungs))
      continue;
    else
      return false;
  }
  return argc % 2 == 1 && options->out != nullptr;
}

void PrintRow(const Options& options, const BenchShape& shape, const BenchRung& rung,
              const Row& row, double read_gbps, const char* comma) {
  const double gbps = static_cast<double>(row.bytes) / row.time.median_us * 1e-3;
  std::printf("%-6s %5d %3d/%-3d %7d %6d %9.1f %9.1f %7.0f %6.2f %9.2g\n", rung.name.c_str(),
              shape.batch, shape.query_heads, shape.kv_heads, shape.context, row.blocks,
              row.time.median_us, row.time.min_us, gbps, gbps / read_gbps, row.error);
  std::fflush(stdout);
  std::fprintf(options.out,
               "%s\n  {\"rung\": \"%s\", \"batch\": %d, \"query_heads\": %d, \"kv_heads\": %d, "
               "\"ctx\": %d, \"head_dim\": %d, \"page_tokens\": %d, \"blocks\": %d, "
               "\"median_us\": %.2f, \"min_us\": %.2f, \"bytes\": %zu, \"gbps\": %.1f, "
               "\"read_fraction\": %.4f, \"error\": %.3g}",
               comma, rung.name.c_str(), shape.batch, shape.query_heads, shape.kv_heads,
               shape.context, options.head_dim, options.page_tokens, row.blocks, row.time.median_us,
               row.time.min_us, row.bytes, gbps, gbps / read_gbps, row.error);
}

int Main(int argc, char** argv) {
  Options options;
  ParseRungs("f16,q8_0,q4_0,t4,t3,t2,pq4", &options.rungs);
  if (!ParseOptions(argc, argv, &options)) {
    std::printf(
        "usage: cuda_bench [--set quick|wide|full] [--rungs f16,q4_0] [--page 64|128] [--dim N]\n"
        "                  [--splits N] [--tiling auto|pages|tiles] [--page-lse 0|1] "
        "[--seconds N] [--out FILE]\n");
    return 2;
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device on this machine\n");
    return 77;
  }
  cudaDeviceProp properties;
  Must(cudaGetDeviceProperties(&properties, 0), "device");
  const double read_gbps = ReadGbps();
  std::fprintf(options.out,
               "{\"command\": \"cuda_bench\", \"device\": \"%s\", \"read_gbps\": %.0f, \"rows\": [",
               properties.name, read_gbps);
  std::printf("%s, reads %.0f GB/s\n%-6s %5s %7s %7s %6s %9s %9s %7s %6s %9s\n", properties.name,
              read_gbps, "rung", "batch", "heads", "ctx", "blocks", "us", "min_us", "GB/s", "copy",
              "error");
  const auto start = std::chrono::steady_clock::now();
  const char* comma = "";
  int wrong = 0;
  for (const BenchShape& shape : Shapes(options.set)) {
    for (const BenchRung& rung : options.rungs) {
      const double elapsed =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (elapsed > options.seconds) continue;
      const Row row = RunShape(options, shape, rung);
      PrintRow(options, shape, rung, row, read_gbps, comma);
      if (!(row.error <= MostError(rung.rung))) {  // NaN, too
        std::printf("^ wrong: error %.2g > %.2g\n", row.error, MostError(rung.rung));
        ++wrong;
      }
      comma = ",";
    }
  }
  std::fprintf(options.out, "\n]}\n");
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace varve::cuda::testing

int main(int argc, char** argv) { return varve::cuda::testing::Main(argc, argv); }
