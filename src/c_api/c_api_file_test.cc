// Files and packing through the C ABI.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "c_api/c_api_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace c_api_file_test {

class CApiFile : public CApi {
 protected:
  std::vector<float> AttendOnce() {
    const varve_attend_request request = Request(1);
    EXPECT_EQ(varve_attend(cache_, 0, &request, 1, nullptr), VARVE_OK) << varve_last_error();
    return {output_.begin(), output_.begin() + kKvHeads * kGroup * kDim};
  }
  varve_save_options Options() {
    varve_save_options options = {};
    options.struct_size = sizeof(options);
    return options;
  }

  const TempFolder folder_;
  const std::string path_ = folder_.File("text.varve");
};

TEST_F(CApiFile, ALoadedSequenceGoesOnWhereItWasSaved) {
  Step(kPage);
  Step(5);
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
  const varve_saved_sequence saved = {sequence_, tokens.data(), tokens.size()};
  varve_save_options options = Options();
  options.sequences = &saved;
  options.num_sequences = 1;
  options.model_fingerprint = 77;
  options.model_name = "small";
  ASSERT_EQ(varve_cache_save(cache_, path_.c_str(), &options), VARVE_OK) << varve_last_error();
  const std::vector<float> expected = AttendOnce();

  Open("q8_0", OneThread());
  varve_loaded* loaded = nullptr;
  ASSERT_EQ(varve_cache_load(cache_, path_.c_str(), 77, &loaded), VARVE_OK) << varve_last_error();
  EXPECT_EQ(loaded->struct_size, sizeof(varve_loaded));
  ASSERT_EQ(loaded->num_sequences, 1u);
  EXPECT_NE(loaded->sequences[0].sequence, sequence_);
  EXPECT_EQ(std::vector<int32_t>(loaded->sequences[0].tokens,
                                 loaded->sequences[0].tokens + loaded->sequences[0].num_tokens),
            tokens);
  sequence_ = loaded->sequences[0].sequence;
  varve_loaded_free(loaded);
  EXPECT_EQ(NextPosition(), kPage + 5);
  EXPECT_EQ(Stats().pages_unread, 2u * kLayers);
  EXPECT_EQ(AttendOnce(), expected);
  EXPECT_EQ(Stats().pages_unread, 2u * (kLayers - 1));
  Step(3);
}

TEST_F(CApiFile, WithoutOptionsEverySequenceIsSaved) {
  Step(4);
  uint64_t fork = 0;
  ASSERT_EQ(varve_sequence_fork(cache_, sequence_, &fork), VARVE_OK);
  ASSERT_EQ(varve_cache_save(cache_, path_.c_str(), nullptr), VARVE_OK) << varve_last_error();
  Open("q8_0", OneThread());
  varve_loaded* loaded = nullptr;
  ASSERT_EQ(varve_cache_load(cache_, path_.c_str(), 0, &loaded), VARVE_OK) << varve_last_error();
  ASSERT_EQ(loaded->num_sequences, 2u);
  EXPECT_EQ(loaded->sequences[0].num_tokens, 0u);
  varve_loaded_free(loaded);
  varve_loaded_free(nullptr);
}

TEST_F(CApiFile, RefusalsNameWhatIsWrongAndAddNothing) {
  Step(4);
  varve_save_options options = Options();
  options.num_sequences = 1;
  EXPECT_EQ(varve_cache_save(cache_, path_.c_str(), &options), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.sequences is null, num_sequences 1");
  varve_saved_sequence saved = {sequence_, nullptr, 2};
  options.sequences = &saved;
  EXPECT_EQ(varve_cache_save(cache_, path_.c_str(), &options), VARVE_INVALID_ARGUMENT);
  ErrorSays("tokens is null, num_tokens 2");
  saved.num_tokens = 0;
  options.num_sequences = 0;
  EXPECT_EQ(varve_cache_save(cache_, path_.c_str(), &options), VARVE_INVALID_ARGUMENT);
  ErrorSays("num_sequences 0");
  options.num_sequences = 1;
  saved.sequence = 999;
  EXPECT_EQ(varve_cache_save(cache_, path_.c_str(), &options), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_cache_save(cache_, nullptr, nullptr), VARVE_INVALID_ARGUMENT);
  ErrorSays("path is null");
  options.struct_size = 0;
  EXPECT_EQ(varve_cache_save(cache_, path_.c_str(), &options), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.struct_size 0");
  EXPECT_EQ(varve_cache_save(cache_, folder_.File("no/such").c_str(), nullptr), VARVE_IO_ERROR);

  varve_loaded* loaded = nullptr;
  EXPECT_EQ(varve_cache_load(cache_, path_.c_str(), 0, nullptr), VARVE_INVALID_ARGUMENT);
  ErrorSays("loaded is null");
  EXPECT_NE(varve_cache_load(cache_, path_.c_str(), 0, &loaded), VARVE_OK);  // there is no file
  options = Options();
  options.model_fingerprint = 5;
  ASSERT_EQ(varve_cache_save(cache_, path_.c_str(), &options), VARVE_OK) << varve_last_error();
  const uint64_t before = Stats().sequences;
  EXPECT_NE(varve_cache_load(cache_, path_.c_str(), 6, &loaded), VARVE_OK);
  EXPECT_EQ(Stats().sequences, before);
  Open("q4_0", OneThread());
  EXPECT_NE(varve_cache_load(cache_, path_.c_str(), 5, &loaded), VARVE_OK);
  EXPECT_EQ(loaded, nullptr);
  EXPECT_EQ(Stats().sequences, 1u);
}

TEST_F(CApiFile, FilesWaitForTheEndOfAStep) {
  Step(1);
  ASSERT_EQ(varve_cache_save(cache_, path_.c_str(), nullptr), VARVE_OK) << varve_last_error();
  ASSERT_EQ(Begin(1), VARVE_OK);
  varve_loaded* loaded = nullptr;
  EXPECT_EQ(varve_cache_save(cache_, path_.c_str(), nullptr), VARVE_FAILED_PRECONDITION);
  EXPECT_EQ(varve_cache_load(cache_, path_.c_str(), 0, &loaded), VARVE_FAILED_PRECONDITION);
  EXPECT_TRUE(StepIsOpen());
}

TEST_F(CApiFile, PackedPagesAreCounted) {
  Open("f16,pack=store,hot=0/16,bootstrap=16,step=16", OneThread());
  for (int i = 0; i < 16; ++i) Step(kPage);
  ASSERT_EQ(varve_wait_for_packing(cache_), VARVE_OK);
  const varve_stats stats = Stats();
  EXPECT_GT(stats.packed_pages, 0u);
  EXPECT_GT(stats.packed_raw_bytes, stats.packed_bytes);
  EXPECT_GT(stats.packed_bytes, 0u);
  EXPECT_EQ(stats.restore_failures, 0u);
  EXPECT_EQ(stats.bytes_f16_seen, 16u * kPage * kLayers * kKvHeads * 2 * kDim * 2);
  char* text = nullptr;
  ASSERT_EQ(varve_stats_json(cache_, &text), VARVE_OK);
  const nlohmann::json json = nlohmann::json::parse(text);
  varve_free(text);
  EXPECT_EQ(json["packed_pages"], stats.packed_pages);
  EXPECT_EQ(json["packed_bytes"], stats.packed_bytes);
  EXPECT_EQ(json["bytes_codebooks"], 0);
  EXPECT_TRUE(json["fallbacks"].empty());
}

// A program that was built before the struct grew.
TEST_F(CApiFile, StatisticsOfTheFirstVersionAreStillFilled) {
  Step(kPage);
  varve_stats stats;
  std::memset(&stats, 0xAB, sizeof(stats));
  stats.struct_size = offsetof(varve_stats, bytes_f16_seen);
  ASSERT_EQ(varve_get_stats(cache_, &stats), VARVE_OK) << varve_last_error();
  EXPECT_EQ(stats.pages, static_cast<uint64_t>(kLayers));
  EXPECT_EQ(stats.nonfinite_values, 0u);
  EXPECT_EQ(stats.bytes_f16_seen, 0xABABABABABABABABu);  // beyond what was asked for
  stats.struct_size -= 8;
  EXPECT_EQ(varve_get_stats(cache_, &stats), VARVE_INVALID_ARGUMENT);
}

}  // namespace c_api_file_test
}  // namespace varve
