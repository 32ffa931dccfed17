#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "c_api/c_api_guard.h"
#include "c_api/c_api_testing.h"
#include "varve/status.h"

namespace varve {
namespace c_api_test {

// --- status, version, plans ---

TEST(CApiStatus, NumbersAndNamesAreThoseOfStatusCode) {
  for (int code = 0; code <= VARVE_INTERNAL; ++code) {
    EXPECT_STREQ(varve_status_name(code), StatusCodeName(static_cast<StatusCode>(code)));
  }
  EXPECT_EQ(static_cast<int>(StatusCode::kInvalidArgument), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(static_cast<int>(StatusCode::kOutOfMemory), VARVE_OUT_OF_MEMORY);
  EXPECT_EQ(static_cast<int>(StatusCode::kNotFound), VARVE_NOT_FOUND);
  EXPECT_EQ(static_cast<int>(StatusCode::kFailedPrecondition), VARVE_FAILED_PRECONDITION);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnimplemented), VARVE_UNIMPLEMENTED);
  EXPECT_EQ(static_cast<int>(StatusCode::kDataLoss), VARVE_DATA_LOSS);
  EXPECT_EQ(static_cast<int>(StatusCode::kIoError), VARVE_IO_ERROR);
  EXPECT_EQ(static_cast<int>(StatusCode::kInternal), VARVE_INTERNAL);
  EXPECT_STREQ(varve_status_name(99), "unknown code");
}

TEST(CApiStatus, TheVersionIsTheProjects) { EXPECT_STREQ(varve_version(), VARVE_VERSION); }

TEST(CApiStatus, EachThreadHasItsOwnMessage) {
  ASSERT_EQ(varve_plan_check("q9_9"), VARVE_INVALID_ARGUMENT);
  std::string other_before, other_after;
  std::thread([&] {
    other_before = varve_last_error();
    varve_plan_check(nullptr);
    other_after = varve_last_error();
  }).join();
  EXPECT_EQ(other_before, "");
  EXPECT_EQ(other_after, "varve_plan_check: plan is null");
  ErrorSays("q9_9");
  EXPECT_EQ(varve_plan_check("q8_0"), VARVE_OK);
  ErrorSays("q9_9");  // success leaves it
}

TEST(CApiStatus, LongMessagesAreCutBetweenCharacters) {
  for (int shift = 0; shift < 3; ++shift) {
    std::string message(static_cast<size_t>(shift), 'x');
    for (int i = 0; i < 1000; ++i) message += "\u2026";  // three bytes each
    EXPECT_EQ(Report(StatusCode::kDataLoss, message), VARVE_DATA_LOSS);
    const std::string kept = varve_last_error();
    EXPECT_GT(kept.size(), 1020u);
    EXPECT_LT(kept.size(), 1024u);
    EXPECT_EQ((kept.size() - static_cast<size_t>(shift)) % 3, 0u);
    EXPECT_EQ(message.compare(0, kept.size(), kept), 0);
  }
}

TEST(CApiPlan, CanonicalTextOfBothForms) {
  const auto canonical = [](const char* plan) {
    char* text = nullptr;
    EXPECT_EQ(varve_plan_canonical(plan, &text), VARVE_OK) << varve_last_error();
    std::string copy = text == nullptr ? "(null)" : text;
    varve_free(text);
    return copy;
  };
  EXPECT_EQ(canonical(""), "");
  EXPECT_EQ(canonical(" k=q8_0 , v=q8_0"), "q8_0");
  EXPECT_EQ(canonical("\n {\"k\": \"q8_0\", \"v\": \"q4_0r\"}"), "k=q8_0,v=q4_0r");
  EXPECT_EQ(canonical("pack=store"), "pack=store");  // the grammar is wider than the build
}

TEST(CApiPlan, RefusalsNameTheClause) {
  char* text = nullptr;
  EXPECT_EQ(varve_plan_canonical("f16;q8_0", &text), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(varve_plan_canonical(nullptr, &text), VARVE_INVALID_ARGUMENT);
  ErrorSays("varve_plan_canonical: plan is null");
  EXPECT_EQ(varve_plan_canonical("q8_0", nullptr), VARVE_INVALID_ARGUMENT);
  ErrorSays("canonical is null");
  EXPECT_EQ(varve_plan_check("cross=q8_0"), VARVE_UNIMPLEMENTED);
  ErrorSays("cross=q8_0");
  varve_free(nullptr);
}

// --- creation ---

TEST(CApiCreate, ZerosAreDefaults) {
  const varve_shape shape = {sizeof(shape), 1, 1, 0, 64, 0, 0};
  varve_cache* cache = nullptr;
  ASSERT_EQ(varve_cache_create(&shape, nullptr, nullptr, &cache), VARVE_OK) << varve_last_error();
  varve_shape filled = {};
  filled.struct_size = sizeof(filled);
  ASSERT_EQ(varve_cache_shape(cache, &filled), VARVE_OK);
  EXPECT_EQ(filled.struct_size, sizeof(filled));
  EXPECT_EQ(filled.group_size, 1);
  EXPECT_EQ(filled.value_dim, 64);
  EXPECT_EQ(filled.page_tokens, 64);
  varve_cache_destroy(cache);
  varve_cache_destroy(nullptr);
}

TEST(CApiCreate, RefusesNullAndBadValuesByName) {
  varve_cache* cache = nullptr;
  const varve_shape good = SmallShape();
  EXPECT_EQ(varve_cache_create(nullptr, "", nullptr, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("varve_cache_create: shape is null");
  EXPECT_EQ(varve_cache_create(&good, "", nullptr, nullptr), VARVE_INVALID_ARGUMENT);
  ErrorSays("cache is null");
  EXPECT_EQ(varve_cache_create(&good, "k=q9", nullptr, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("q9");
  EXPECT_EQ(varve_cache_create(&good, "cross=q8_0", nullptr, &cache), VARVE_UNIMPLEMENTED);
  ErrorSays("cross=q8_0");
  EXPECT_EQ(varve_cache_create(&good, "pq4", nullptr, &cache), VARVE_FAILED_PRECONDITION);
  ErrorSays("there is no codebook for this model");
  varve_shape shape = good;
  shape.num_layers = 0;
  EXPECT_EQ(varve_cache_create(&shape, "", nullptr, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("num_layers 0");
  shape = good;
  shape.key_dim = 48;
  EXPECT_EQ(varve_cache_create(&shape, "q8_0", nullptr, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("48");
  varve_cache_options options = OneThread();
  options.num_threads = -1;
  EXPECT_EQ(varve_cache_create(&good, "", &options, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("num_threads -1");
  options = OneThread();
  options.reserved = 7;
  EXPECT_EQ(varve_cache_create(&good, "", &options, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.reserved 7");
  EXPECT_EQ(cache, nullptr);
}

TEST(CApiCreate, StructSizeIsChecked) {
  varve_cache* cache = nullptr;
  varve_shape shape = SmallShape();
  for (const size_t size : {size_t{0}, sizeof(shape) - 1, size_t{4097}, ~size_t{0}}) {
    shape.struct_size = size;
    EXPECT_EQ(varve_cache_create(&shape, "", nullptr, &cache), VARVE_INVALID_ARGUMENT);
    ErrorSays("shape.struct_size " + std::to_string(size));
  }
  shape = SmallShape();
  varve_cache_options options = OneThread();
  options.struct_size = 3;
  EXPECT_EQ(varve_cache_create(&shape, "", &options, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.struct_size 3");
}

// What a program compiled against a later header would pass.
struct LaterShape {
  varve_shape known;
  int64_t later;
};

TEST(CApiCreate, ALargerStructIsFineWhileItsNewFieldsAreZero) {
  LaterShape shape = {SmallShape(), 0};
  shape.known.struct_size = sizeof(shape);
  varve_cache* cache = nullptr;
  ASSERT_EQ(varve_cache_create(&shape.known, "", nullptr, &cache), VARVE_OK) << varve_last_error();
  shape.later = -1;
  ASSERT_EQ(varve_cache_shape(cache, &shape.known), VARVE_OK);
  EXPECT_EQ(shape.known.struct_size, sizeof(shape));
  EXPECT_EQ(shape.later, 0);
  varve_cache_destroy(cache);
  shape.later = 1;
  EXPECT_EQ(varve_cache_create(&shape.known, "", nullptr, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("byte " + std::to_string(sizeof(varve_shape)));
}

// --- sequences ---

TEST_F(CApi, SequencesGrowForkAndShrink) {
  for (int i = 0; i < 3; ++i) Step(kPage);
  EXPECT_EQ(NextPosition(), 3 * kPage);
  EXPECT_EQ(LiveRows(1), 3 * kPage);

  uint64_t fork = 0;
  ASSERT_EQ(varve_sequence_fork(cache_, sequence_, &fork), VARVE_OK);
  EXPECT_NE(fork, sequence_);
  EXPECT_EQ(Stats().bytes_copied, 0u);
  EXPECT_EQ(Stats().sequences, 2u);
  ASSERT_EQ(varve_sequence_free(cache_, fork), VARVE_OK);

  ASSERT_EQ(varve_sequence_truncate(cache_, sequence_, 40), VARVE_OK);
  EXPECT_EQ(NextPosition(), 40);
  ASSERT_EQ(varve_sequence_remove_range(cache_, sequence_, 0, 4), VARVE_OK);
  EXPECT_EQ(LiveRows(), 36);
  ASSERT_EQ(varve_sequence_keep_only(cache_, sequence_, 10, 40), VARVE_OK);
  EXPECT_EQ(LiveRows(), 30);
  ASSERT_EQ(varve_sequence_slide_window(cache_, sequence_, 8, 0), VARVE_OK);
  EXPECT_EQ(LiveRows(), 8);
  EXPECT_EQ(NextPosition(), 40);
  ASSERT_EQ(varve_sequence_end_prompt(cache_, sequence_), VARVE_OK);
  ASSERT_EQ(varve_sequence_begin_prompt(cache_, sequence_), VARVE_OK);
  ASSERT_EQ(varve_sequence_end_prompt_unfolded(cache_, sequence_), VARVE_OK);
  int64_t left = 0, position = 0;
  ASSERT_EQ(varve_sequence_find_cut(cache_, sequence_, 30, &left, &position), VARVE_OK);
  EXPECT_EQ(left, 30);
  EXPECT_EQ(position, 30);
  EXPECT_EQ(varve_sequence_find_cut(cache_, sequence_, 41, &left, &position),
            VARVE_INVALID_ARGUMENT);
}

TEST_F(CApi, PagesAreTakenWhenTokensArrive) {
  EXPECT_EQ(Stats().bytes_held, 0u);
  Step(1);
  EXPECT_EQ(Stats().pages, 1u * kLayers);
  Step(kPage - 1);  // the same page
  Step(1);
  EXPECT_EQ(Stats().pages, 2u * kLayers);
}

TEST_F(CApi, AFinishedSequenceLeavesItsPagesToTheNext) {
  for (int i = 0; i < 3; ++i) Step(kPage);
  const uint64_t held = Stats().bytes_held;
  ASSERT_EQ(varve_sequence_free(cache_, sequence_), VARVE_OK);
  EXPECT_EQ(Stats().bytes_used, 0u);
  ASSERT_EQ(varve_sequence_create(cache_, &sequence_), VARVE_OK);
  for (int i = 0; i < 3; ++i) Step(kPage);
  EXPECT_EQ(Stats().bytes_held, held);
}

TEST_F(CApi, AFreedSequenceIsNotFoundByAnyCall) {
  ASSERT_EQ(varve_sequence_free(cache_, sequence_), VARVE_OK);
  uint64_t id = 0;
  int64_t number = 0;
  int32_t tokens = 0;
  EXPECT_EQ(varve_sequence_fork(cache_, sequence_, &id), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_free(cache_, sequence_), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_truncate(cache_, sequence_, 0), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_remove_range(cache_, sequence_, 0, 0), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_keep_only(cache_, sequence_, 0, 0), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_slide_window(cache_, sequence_, 1, 0), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_rest(cache_, sequence_, 0, 0), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_next_position(cache_, sequence_, &number), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_live_rows(cache_, sequence_, 0, &number), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_max_step_tokens(cache_, sequence_, &tokens), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_begin_prompt(cache_, sequence_), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_end_prompt(cache_, sequence_), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_end_prompt_unfolded(cache_, sequence_), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_find_cut(cache_, sequence_, 0, &number, &number), VARVE_NOT_FOUND);
  EXPECT_EQ(Begin(1), VARVE_NOT_FOUND);
  const varve_attend_request request = Request(1);
  EXPECT_EQ(varve_attend(cache_, 0, &request, 1, nullptr), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_read_rows(cache_, sequence_, 0, 0, VARVE_KEY, 0, 1, output_.data(),
                            output_.size(), &number),
            VARVE_NOT_FOUND);
  ErrorSays("has been freed");
}

static void ExpectNull(varve_status status, const std::string& message) {
  EXPECT_EQ(status, VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(varve_last_error(), message + " is null");
}

TEST_F(CApi, NullArgumentsOfSequencesAreNamed) {
  int64_t count = 0;
  ExpectNull(varve_sequence_create(nullptr, &sequence_), "varve_sequence_create: cache");
  ExpectNull(varve_sequence_create(cache_, nullptr), "varve_sequence_create: sequence");
  ExpectNull(varve_sequence_fork(nullptr, 1, &sequence_), "varve_sequence_fork: cache");
  ExpectNull(varve_sequence_fork(cache_, 1, nullptr), "varve_sequence_fork: sequence");
  ExpectNull(varve_sequence_free(nullptr, 1), "varve_sequence_free: cache");
  ExpectNull(varve_sequence_truncate(nullptr, 1, 0), "varve_sequence_truncate: cache");
  ExpectNull(varve_sequence_remove_range(nullptr, 1, 0, 0), "varve_sequence_remove_range: cache");
  ExpectNull(varve_sequence_keep_only(nullptr, 1, 0, 0), "varve_sequence_keep_only: cache");
  ExpectNull(varve_sequence_slide_window(nullptr, 1, 1, 0), "varve_sequence_slide_window: cache");
  ExpectNull(varve_sequence_rest(nullptr, 1, 0, 0), "varve_sequence_rest: cache");
  ExpectNull(varve_sequence_next_position(nullptr, 1, &count),
             "varve_sequence_next_position: cache");
  ExpectNull(varve_sequence_next_position(cache_, 1, nullptr),
             "varve_sequence_next_position: position");
  ExpectNull(varve_sequence_live_rows(nullptr, 1, 0, &count), "varve_sequence_live_rows: cache");
  ExpectNull(varve_sequence_live_rows(cache_, 1, 0, nullptr), "varve_sequence_live_rows: num_rows");
  ExpectNull(varve_sequence_max_step_tokens(cache_, 1, nullptr),
             "varve_sequence_max_step_tokens: num_tokens");
  ExpectNull(varve_sequence_begin_prompt(nullptr, 1), "varve_sequence_begin_prompt: cache");
  ExpectNull(varve_sequence_end_prompt(nullptr, 1), "varve_sequence_end_prompt: cache");
  ExpectNull(varve_sequence_end_prompt_unfolded(nullptr, 1),
             "varve_sequence_end_prompt_unfolded: cache");
  ExpectNull(varve_sequence_find_cut(cache_, 1, 0, nullptr, &count),
             "varve_sequence_find_cut: tokens_left");
  ExpectNull(varve_sequence_find_cut(cache_, 1, 0, &count, nullptr),
             "varve_sequence_find_cut: position");
}

TEST_F(CApi, NullArgumentsOfStepsAreNamed) {
  const varve_rows rows = {rows_.data(), 1, 0, 0};
  const varve_rows no_data = {nullptr, 1, 0, 0};
  ExpectNull(varve_step_begin(nullptr, nullptr, 0), "varve_step_begin: cache");
  ExpectNull(varve_step_begin(cache_, nullptr, 1), "varve_step_begin: entries");
  ExpectNull(varve_step_append(nullptr, 0, 1, &rows, &rows), "varve_step_append: cache");
  ExpectNull(varve_step_append(cache_, 0, 1, nullptr, &rows), "varve_step_append: keys");
  ExpectNull(varve_step_append(cache_, 0, 1, &rows, nullptr), "varve_step_append: values");
  ASSERT_EQ(Begin(1), VARVE_OK);
  ExpectNull(varve_step_append(cache_, 0, sequence_, &no_data, &rows), "Append: keys.data");
  ASSERT_EQ(Begin(1), VARVE_OK);
  ExpectNull(varve_step_append(cache_, 0, sequence_, &rows, &no_data), "Append: values.data");
  ExpectNull(varve_attend(nullptr, 0, nullptr, 0, nullptr), "varve_attend: cache");
  ExpectNull(varve_attend(cache_, 0, nullptr, 1, nullptr), "varve_attend: requests");
  ExpectNull(varve_step_end(nullptr), "varve_step_end: cache");
  ExpectNull(varve_step_abort(nullptr), "varve_step_abort: cache");
}

TEST_F(CApi, NullArgumentsOfReadsAreNamed) {
  varve_shape shape = SmallShape();
  float out = 0;
  int64_t count = 0;
  ExpectNull(varve_cache_shape(nullptr, &shape), "varve_cache_shape: cache");
  ExpectNull(varve_cache_shape(cache_, nullptr), "varve_cache_shape: shape");
  ExpectNull(varve_read_rows(nullptr, 1, 0, 0, VARVE_KEY, 0, 1, &out, 1, &count),
             "varve_read_rows: cache");
  ExpectNull(varve_read_rows(cache_, 1, 0, 0, VARVE_KEY, 0, 1, nullptr, 1, &count),
             "varve_read_rows: out");
  ExpectNull(varve_read_rows(cache_, 1, 0, 0, VARVE_KEY, 0, 1, &out, 1, nullptr),
             "varve_read_rows: num_rows");
  ExpectNull(varve_get_stats(nullptr, nullptr), "varve_get_stats: cache");
  ExpectNull(varve_get_stats(cache_, nullptr), "varve_get_stats: stats");
  ExpectNull(varve_stats_json(nullptr, nullptr), "varve_stats_json: cache");
  ExpectNull(varve_stats_json(cache_, nullptr), "varve_stats_json: json");
}

TEST_F(CApi, RangesOutsideTheSequenceAreRefused) {
  Step(kPage);
  EXPECT_EQ(varve_sequence_truncate(cache_, sequence_, kPage + 1), VARVE_INVALID_ARGUMENT);
  ErrorSays("position 17");
  EXPECT_EQ(varve_sequence_remove_range(cache_, sequence_, 4, 2), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(varve_sequence_keep_only(cache_, sequence_, -1, 2), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(varve_sequence_slide_window(cache_, sequence_, 0, 0), VARVE_INVALID_ARGUMENT);
  ErrorSays("num_tokens 0");
  EXPECT_EQ(varve_sequence_rest(cache_, sequence_, 0, kPage + 1), VARVE_INVALID_ARGUMENT);
  ErrorSays("Rest: [0, 17) is not inside [0, 16)");
  EXPECT_EQ(varve_sequence_rest(cache_, sequence_, 0, kPage), VARVE_FAILED_PRECONDITION);
  ErrorSays("has no idle=; add idle=RUNG to it");
  int64_t rows = 0;
  EXPECT_EQ(varve_sequence_live_rows(cache_, sequence_, kLayers, &rows), VARVE_INVALID_ARGUMENT);
  ErrorSays("layer 2");
}

}  // namespace c_api_test
}  // namespace varve
