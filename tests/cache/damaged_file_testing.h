// What tests of damaged .varve files share.

#ifndef VARVE_TESTS_CACHE_DAMAGED_FILE_TESTING_H_
#define VARVE_TESTS_CACHE_DAMAGED_FILE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cache/cache_impl.h"
#include "file/cache_file_reader.h"
#include "tests/cache_testing.h"

namespace varve {

// Everything that a cache can do with a file that opens: loads it and takes a step of one token
// with each sequence. What fails must say so and name the file.
inline void UseDamagedFile(const std::vector<std::byte>& bytes, const CacheShape& shape,
                           const std::string& plan) {
  Result<std::shared_ptr<const CacheFile>> file = CacheFile::FromMemory(bytes, "f");
  if (!file.ok()) {
    EXPECT_TRUE(file.status().message().starts_with("f: ")) << file.status().message();
    EXPECT_GT(file.status().message().size(), 5u);
    return;
  }
  CacheOptions options;
  options.num_threads = 1;
  const std::unique_ptr<Cache> cache = MakeCache(shape, plan, options);
  Result<std::vector<SequenceTokens>> loaded = static_cast<CacheImpl&>(*cache).LoadFrom(*file, {});
  if (!loaded.ok()) return;
  const int row_floats =
      shape.num_kv_heads * shape.group_size * std::max(shape.key_dim, shape.value_dim);
  std::vector<float> row(row_floats), out(row_floats);
  for (const SequenceTokens& item : *loaded) {
    const StepEntry entry = {item.sequence, 1};
    Status status = cache->BeginStep({&entry, 1});
    for (int layer = 0; layer < shape.num_layers && status.ok(); ++layer) {
      status = cache->Append(layer, item.sequence, {row.data(), 1, 0, 0}, {row.data(), 1, 0, 0});
      const AttendRequest request = {item.sequence, 1, row.data(), 0, 0, out.data(), 0, 0, nullptr};
      if (status.ok()) status = cache->Attend(layer, {&request, 1}, {});
    }
    if (status.ok()) status = cache->EndStep();
    EXPECT_EQ(status.ok(), status.message().empty());
    cache->Stats();
  }
}

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_DAMAGED_FILE_TESTING_H_
