// Brings any bytes as a page image into a cache. If the first byte is odd, the checksums are
// corrected first, so that the checks of the fields are reached. What is refused has changed
// nothing; what is taken is a whole number of pages, exports again, and takes a step.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/cache_file_testing.h"
#include "varve/cache.h"

namespace {

void Expect(const char* what, const varve::Status& status, bool holds) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  std::abort();
}

// That of the corpus: 2 layers, 1 KV head, pages of 16.
std::unique_ptr<varve::Cache> MakeCache() {
  varve::CacheOptions options;
  options.plan = *varve::ParsePlan("q8_0,open=0,exact=0");
  options.num_threads = 1;
  auto made = varve::Cache::Create({2, 1, 1, 32, 32, 16}, std::move(options));
  return std::move(*made);
}

void TakeStep(varve::Cache& cache, varve::SequenceId id) {
  const std::vector<float> row(32, 0.5f);
  std::vector<float> out(32);
  const varve::StepEntry entry = {id, 1};
  varve::Status status = cache.BeginStep({&entry, 1});
  for (int layer = 0; layer < 2 && status.ok(); ++layer) {
    status = cache.Append(layer, id, {row.data(), 1, 0, 0}, {row.data(), 1, 0, 0});
    varve::AttendRequest request;
    request.sequence = id;
    request.queries = row.data();
    request.output = out.data();
    if (status.ok()) status = cache.Attend(layer, {&request, 1}, {});
  }
  if (status.ok()) status = cache.EndStep();
  Expect("step", status, status.ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin + 1, begin + size);
  if (data[0] % 2 == 1) varve::RepairChecksums(&bytes);
  const std::unique_ptr<varve::Cache> cache = MakeCache();
  const varve::SequenceId id = *cache->CreateSequence();
  const varve::Status status = cache->ImportPages(id, bytes);
  const int64_t next = *cache->NextPosition(id);
  if (!status.ok()) {
    Expect("a message", status, status.message().size() > 6);
    Expect("nothing has changed", status, next == 0 && cache->Stats().pages == 0);
    return 0;
  }
  Expect("whole pages", status, next > 0 && next % 16 == 0);
  const auto again = cache->ExportPages(id, 0, next);
  Expect("export", again.status(), again.ok());
  TakeStep(*cache, id);
  return 0;
}
