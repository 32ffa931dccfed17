// A model on a cache that was saved and loaded predicts the same, bit for bit.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/model/open_model.h"
#include "tests/cache_testing.h"
#include "tests/tiny_model.h"

namespace varve {
namespace cache_file_logits_test {

class CacheFileLogits : public ::testing::TestWithParam<const char*> {};

TEST_P(CacheFileLogits, AreTheSameAfterLoading) {
  const TempFolder folder;
  const std::vector<std::byte> bytes = TinyModel().Build();
  const std::shared_ptr<const DecoderModel> model =
      *LoadDecoderModel(*GgufFile::FromMemory(bytes, "tiny"));
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const std::unique_ptr<DecoderRunner> runner = model->MakeRunner(*executor);
  const auto vocab = static_cast<size_t>(model->vocab_size());
  CacheOptions options;
  options.executor = executor.get();
  const std::unique_ptr<Cache> cache = MakeCache(model->cache_shape(), GetParam(), options);
  const SequenceId id = *cache->CreateSequence();
  std::vector<int32_t> prompt;
  for (int i = 0; i < 700; ++i) prompt.push_back((i * 37 + i * i % 11) % 256);
  std::vector<float> logits(vocab);
  ASSERT_OK(runner->Forward(*cache, id, prompt, Logits::kLast, logits.data()));
  ASSERT_OK(cache->EndPrompt(id));
  SaveOptions save;
  save.sequences = {{id, prompt}};
  ASSERT_OK(cache->Save(folder.File("a.varve"), save));

  const std::unique_ptr<Cache> other = MakeCache(model->cache_shape(), GetParam(), options);
  Result<std::vector<SequenceTokens>> loaded = other->Load(folder.File("a.varve"), {});
  ASSERT_OK(loaded.status());
  ASSERT_EQ(loaded->front().tokens, prompt);
  std::vector<float> again(vocab);
  for (int32_t token = 0; token < 100; ++token) {
    const DecodeEntry entry{id, token}, other_entry{loaded->front().sequence, token};
    ASSERT_OK(runner->Decode(*cache, {&entry, 1}, logits.data()));
    ASSERT_OK(runner->Decode(*other, {&other_entry, 1}, again.data()));
    ASSERT_EQ(again, logits) << "after token " << token;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, CacheFileLogits,
                         ::testing::Values("f16", "q8_0", "age=f16:128/q8_0:256/q4_0r,exact=0",
                                           "k=q8_0,v=q4_0,window=400,sink=64,exact=0",
                                           "evict=h2o,ratio=3.5",
                                           "evict=demote,ratio=3.5,exact=0"));

}  // namespace cache_file_logits_test
}  // namespace varve
