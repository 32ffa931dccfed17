#include "runtime/gguf/gguf_fingerprint.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/gguf_testing.h"

namespace varve {
namespace gguf_fingerprint_test {

uint64_t FingerprintOf(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.Build();
  return ModelFingerprint(**GgufFile::FromMemory(bytes, "model"));
}

GgufBuilder Model(const std::string& name, int64_t layers, float weight) {
  return GgufBuilder()
      .String("general.name", name)
      .Int("llama.block_count", layers)
      .TensorF32("norm", {64}, std::vector<float>(64, weight));
}

TEST(GgufFingerprint, IsTheSameForTheSameFileAndDiffersWhereModelsDo) {
  EXPECT_EQ(FingerprintOf(Model("a", 2, 1)), FingerprintOf(Model("a", 2, 1)));
  const std::set<uint64_t> different = {FingerprintOf(Model("a", 2, 1)),
                                        FingerprintOf(Model("b", 2, 1)),
                                        FingerprintOf(Model("a", 3, 1)),
                                        FingerprintOf(Model("a", 2, 2)),
                                        FingerprintOf(Model("a", 2, 1).Int("more", 1)),
                                        FingerprintOf(GgufBuilder())};
  EXPECT_EQ(different.size(), 6u);
  EXPECT_FALSE(different.contains(0));
}

}  // namespace gguf_fingerprint_test
}  // namespace varve
