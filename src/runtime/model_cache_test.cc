#include "runtime/model_cache.h"

#include <gtest/gtest.h>

#include "runtime/embedded_model.h"
#include "runtime/gguf/gguf_fingerprint.h"
#include "runtime/model/open_model.h"
#include "tests/tiny_model.h"

namespace varve {
namespace model_cache_test {

TEST(ModelCache, ACacheKnowsTheFingerprintOfItsModel) {
  const std::vector<std::byte> bytes = TinyModel().Build();
  const auto file = GgufFile::FromMemory(bytes, "tiny");
  ASSERT_TRUE(file.ok());
  const auto model = LoadDecoderModel(*file);
  ASSERT_TRUE(model.ok());
  EXPECT_NE((*model)->fingerprint(), 0u);
  EXPECT_EQ((*model)->fingerprint(), ModelFingerprint(**file));
  const CacheOptions options = CacheOptionsFor(**model);
  EXPECT_EQ(options.model_fingerprint, ModelFingerprint(**file));
  EXPECT_EQ(options.codebook, nullptr);  // none ships for this one
  EXPECT_EQ(options.compressor, nullptr);
}

TEST(ModelCache, TheEmbeddedModelFindsItsCodebook) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  const auto file = GgufFile::FromMemory(EmbeddedModel(), "the embedded model");
  ASSERT_TRUE(file.ok());
  const auto model = LoadDecoderModel(*file);
  ASSERT_TRUE(model.ok());
  const CacheOptions options = CacheOptionsFor(**model);
  ASSERT_NE(options.codebook, nullptr);
  EXPECT_EQ(options.codebook->model_fingerprint, (*model)->fingerprint());
  EXPECT_EQ(options.codebook->num_layers, (*model)->cache_shape().num_layers);
  EXPECT_NE(options.codebook->Find(Part::kKey, 64, 8), nullptr);
  EXPECT_EQ(CacheOptionsFor(**model).codebook, options.codebook);  // one for all caches
  EXPECT_EQ(ShippedCodebook((*model)->fingerprint() + 1), nullptr);
  EXPECT_EQ(ShippedCodebook(0), nullptr);
}

TEST(ModelCache, TheEmbeddedModelFindsItsCompressor) {
  const auto file = GgufFile::FromMemory(EmbeddedModel(), "the embedded model");
  ASSERT_TRUE(file.ok());
  const auto model = LoadDecoderModel(*file);
  ASSERT_TRUE(model.ok());
  CacheOptions options = CacheOptionsFor(**model);
  ASSERT_NE(options.compressor, nullptr);
  EXPECT_EQ(options.compressor->factor, 4);
  EXPECT_EQ(CacheOptionsFor(**model).compressor, options.compressor);  // one for all caches
  EXPECT_EQ(ShippedCompressor(1), nullptr);
  options.plan = *ParsePlan("fold");
  EXPECT_TRUE(Cache::Create((*model)->cache_shape(), options).ok());
}

}  // namespace model_cache_test
}  // namespace varve
