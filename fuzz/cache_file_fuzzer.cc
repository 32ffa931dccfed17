// Reads any bytes as a .varve file. If the first byte is odd, the checksums are corrected first, so
// that the checks of the fields are reached. A file that opens is loaded into a cache of its own
// shape and plan, read, attended to, continued by two tokens, saved, and freed.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cache/cache_impl.h"
#include "file/cache_file_reader.h"
#include "tests/cache_file_testing.h"
#include "varve/cache.h"

namespace {

using varve::Status;

[[noreturn]] void Fail(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  std::abort();
}

void Expect(const char* what, bool holds) {
  if (!holds) Fail(what, Status());
}

// Discards what is written.
class NoFile final : public varve::FileOps {
 public:
  int Create(const std::string&) override { return 1000; }
  int OpenDirectory(const std::string&) override { return 1001; }
  ssize_t Write(int, const std::byte*, size_t bytes) override {
    return static_cast<ssize_t>(bytes);
  }
  int Sync(int) override { return 0; }
  int Close(int) override { return 0; }
  int Rename(const std::string&, const std::string&) override { return 0; }
  int Remove(const std::string&) override { return 0; }
};

// A shape whose open pages fit into memory many times over.
bool IsSmall(const varve::CacheShape& shape) {
  return int64_t{shape.num_layers} * shape.num_kv_heads * shape.group_size <= 64;
}

void Continue(varve::Cache& cache, varve::SequenceId id) {
  const varve::CacheShape& shape = cache.shape();
  const size_t heads = static_cast<size_t>(shape.num_kv_heads);
  const std::vector<float> keys(heads * static_cast<size_t>(shape.key_dim), 0.5f);
  const std::vector<float> values(heads * static_cast<size_t>(shape.value_dim), 0.25f);
  const std::vector<float> queries(keys.size() * static_cast<size_t>(shape.group_size), 1.0f);
  std::vector<float> out(values.size() * static_cast<size_t>(shape.group_size));
  const varve::StepEntry entry = {id, 1};
  const int64_t position = *cache.NextPosition(id);
  Status status = cache.BeginStep({&entry, 1});
  for (int layer = 0; layer < shape.num_layers && status.ok(); ++layer) {
    status = cache.Append(layer, id, {keys.data(), 1, 0, 0}, {values.data(), 1, 0, 0});
    varve::AttendRequest request;
    request.sequence = id;
    request.queries = queries.data();
    request.output = out.data();
    if (status.ok()) status = cache.Attend(layer, {&request, 1}, {});
  }
  if (status.ok()) status = cache.EndStep();
  if (!status.ok()) {
    // Only a page that fails its check may cause an error, and then nothing has changed.
    if (status.code() != varve::StatusCode::kDataLoss) Fail("step", status);
    Expect("position after an error", *cache.NextPosition(id) == position);
  }
}

void Use(const std::shared_ptr<const varve::CacheFile>& file) {
  if (!IsSmall(file->shape())) return;
  varve::CacheOptions options;
  options.plan = file->plan();
  options.num_threads = 1;
  NoFile nowhere;
  varve::CacheServices services;
  services.files = &nowhere;
  varve::Result<std::unique_ptr<varve::Cache>> cache =
      varve::CreateCache(file->shape(), std::move(options), services);
  // The plan of a file may name others, which are not there (fold=16).
  if (cache.status().code() == varve::StatusCode::kNotFound) return;
  if (!cache.ok()) Fail("Create", cache.status());
  auto& impl = static_cast<varve::CacheImpl&>(**cache);
  varve::Result<std::vector<varve::SequenceTokens>> loaded = impl.LoadFrom(file, {});
  if (!loaded.ok()) Fail("Load", loaded.status());
  std::vector<float> row(512);
  for (const varve::SequenceTokens& item : *loaded) {
    const int64_t next = *impl.NextPosition(item.sequence);
    for (int64_t position = 0; position < next && position < 100; position += 7) {
      const auto read = impl.ReadRows(item.sequence, 0, 0, varve::Part::kValue, position,
                                      position + 1, row.data());
      if (!read.ok() && read.status().code() != varve::StatusCode::kDataLoss)
        Fail("ReadRows", read.status());
    }
    Continue(impl, item.sequence);
    Continue(impl, item.sequence);
  }
  const Status saved = impl.Save("nowhere", {});
  if (!saved.ok() && saved.code() != varve::StatusCode::kDataLoss) Fail("Save", saved);
  for (const varve::SequenceTokens& item : *loaded) {
    const Status freed = impl.Free(item.sequence);
    if (!freed.ok()) Fail("Free", freed);
  }
  Expect("no page is left", impl.Stats().pages == 0 && impl.Stats().bytes_used == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin + 1, begin + size);
  if (data[0] % 2 == 1) varve::RepairChecksums(&bytes);
  varve::Result<std::shared_ptr<const varve::CacheFile>> file =
      varve::CacheFile::FromMemory(bytes, "fuzz");
  if (!file.ok()) {
    Expect("a message", file.status().message().size() > 6);
    return 0;
  }
  Use(*file);
  return 0;
}
