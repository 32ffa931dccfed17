#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "cache/c_api_guard.h"
#include "varve/status.h"
#include "varve/varve.h"

namespace varve {
namespace {

constexpr int kLayers = 2;
constexpr int kKvHeads = 2;
constexpr int kGroup = 2;
constexpr int kDim = 32;
constexpr int kPage = 16;

varve_shape SmallShape() {
  return {sizeof(varve_shape), kLayers, kKvHeads, kGroup, kDim, 0, kPage};
}

varve_cache_options OneThread() {
  varve_cache_options options = {};
  options.struct_size = sizeof(options);
  options.num_threads = 1;
  return options;
}

bool ErrorSays(const std::string& part) {
  if (std::string(varve_last_error()).find(part) != std::string::npos) return true;
  ADD_FAILURE() << "\"" << varve_last_error() << "\" does not say \"" << part << "\"";
  return false;
}

// A cache with one sequence, and rows enough for a page.
class CApi : public testing::Test {
 protected:
  void SetUp() override { Open("q8_0", OneThread()); }
  void TearDown() override { varve_cache_destroy(cache_); }

  void Open(const char* plan, const varve_cache_options& options) {
    varve_cache_destroy(cache_);
    cache_ = nullptr;
    const varve_shape shape = SmallShape();
    ASSERT_EQ(varve_cache_create(&shape, plan, &options, &cache_), VARVE_OK) << varve_last_error();
    ASSERT_EQ(varve_sequence_create(cache_, &sequence_), VARVE_OK);
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = std::sin(0.37f * static_cast<float>(i));
  }

  varve_status Begin(int num_tokens) {
    const varve_step_entry entry = {sequence_, num_tokens};
    return varve_step_begin(cache_, &entry, 1);
  }
  varve_status Append(int layer, int num_tokens) {
    const varve_rows rows = {rows_.data(), num_tokens, 0, 0};
    return varve_step_append(cache_, layer, sequence_, &rows, &rows);
  }
  varve_attend_request Request(int num_queries) {
    varve_attend_request request = {};
    request.sequence = sequence_;
    request.num_queries = num_queries;
    request.queries = rows_.data();
    request.output = output_.data();
    return request;
  }
  // A whole step, as a user writes it.
  void Step(int num_tokens) {
    ASSERT_EQ(Begin(num_tokens), VARVE_OK) << varve_last_error();
    const varve_attend_request request = Request(num_tokens);
    for (int layer = 0; layer < kLayers; ++layer) {
      ASSERT_EQ(Append(layer, num_tokens), VARVE_OK) << varve_last_error();
      ASSERT_EQ(varve_attend(cache_, layer, &request, 1, nullptr), VARVE_OK) << varve_last_error();
    }
    ASSERT_EQ(varve_step_end(cache_), VARVE_OK) << varve_last_error();
  }
  int64_t NextPosition() {
    int64_t position = -1;
    EXPECT_EQ(varve_sequence_next_position(cache_, sequence_, &position), VARVE_OK);
    return position;
  }
  int64_t LiveRows(int layer = 0) {
    int64_t rows = -1;
    EXPECT_EQ(varve_sequence_live_rows(cache_, sequence_, layer, &rows), VARVE_OK);
    return rows;
  }
  varve_stats Stats() {
    varve_stats stats = {};
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(varve_get_stats(cache_, &stats), VARVE_OK);
    return stats;
  }
  bool StepIsOpen() {
    uint64_t unused = 0;
    return varve_sequence_fork(cache_, sequence_, &unused) == VARVE_FAILED_PRECONDITION;
  }

  varve_cache* cache_ = nullptr;
  uint64_t sequence_ = 0;
  std::vector<float> rows_ = std::vector<float>(kPage * kKvHeads * kGroup * kDim);
  std::vector<float> output_ = std::vector<float>(kPage * kKvHeads * kGroup * kDim);
};

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
  EXPECT_EQ(varve_plan_check("fold=a.bin"), VARVE_UNIMPLEMENTED);
  ErrorSays("fold=a.bin");
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
  EXPECT_EQ(varve_cache_create(&good, "pq4", nullptr, &cache), VARVE_UNIMPLEMENTED);
  ErrorSays("pq4");
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
  EXPECT_EQ(varve_sequence_next_position(cache_, sequence_, &number), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_live_rows(cache_, sequence_, 0, &number), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_max_step_tokens(cache_, sequence_, &tokens), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_sequence_end_prompt(cache_, sequence_), VARVE_NOT_FOUND);
  EXPECT_EQ(Begin(1), VARVE_NOT_FOUND);
  const varve_attend_request request = Request(1);
  EXPECT_EQ(varve_attend(cache_, 0, &request, 1, nullptr), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_read_rows(cache_, sequence_, 0, 0, VARVE_KEY, 0, 1, output_.data(),
                            output_.size(), &number),
            VARVE_NOT_FOUND);
  ErrorSays("has been freed");
}

TEST_F(CApi, NullArgumentsAreNamed) {
  const auto expect_null = [](varve_status status, const std::string& message) {
    EXPECT_EQ(status, VARVE_INVALID_ARGUMENT);
    EXPECT_EQ(varve_last_error(), message + " is null");
  };
  const varve_rows rows = {rows_.data(), 1, 0, 0};
  const varve_rows no_data = {nullptr, 1, 0, 0};
  varve_shape shape = SmallShape();
  float out = 0;
  int64_t count = 0;
  expect_null(varve_cache_shape(nullptr, &shape), "varve_cache_shape: cache");
  expect_null(varve_cache_shape(cache_, nullptr), "varve_cache_shape: shape");
  expect_null(varve_sequence_create(nullptr, &sequence_), "varve_sequence_create: cache");
  expect_null(varve_sequence_create(cache_, nullptr), "varve_sequence_create: sequence");
  expect_null(varve_sequence_fork(nullptr, 1, &sequence_), "varve_sequence_fork: cache");
  expect_null(varve_sequence_fork(cache_, 1, nullptr), "varve_sequence_fork: sequence");
  expect_null(varve_sequence_free(nullptr, 1), "varve_sequence_free: cache");
  expect_null(varve_sequence_truncate(nullptr, 1, 0), "varve_sequence_truncate: cache");
  expect_null(varve_sequence_remove_range(nullptr, 1, 0, 0), "varve_sequence_remove_range: cache");
  expect_null(varve_sequence_keep_only(nullptr, 1, 0, 0), "varve_sequence_keep_only: cache");
  expect_null(varve_sequence_slide_window(nullptr, 1, 1, 0), "varve_sequence_slide_window: cache");
  expect_null(varve_sequence_next_position(nullptr, 1, &count),
              "varve_sequence_next_position: cache");
  expect_null(varve_sequence_next_position(cache_, 1, nullptr),
              "varve_sequence_next_position: position");
  expect_null(varve_sequence_live_rows(nullptr, 1, 0, &count), "varve_sequence_live_rows: cache");
  expect_null(varve_sequence_live_rows(cache_, 1, 0, nullptr),
              "varve_sequence_live_rows: num_rows");
  expect_null(varve_sequence_max_step_tokens(cache_, 1, nullptr),
              "varve_sequence_max_step_tokens: num_tokens");
  expect_null(varve_sequence_end_prompt(nullptr, 1), "varve_sequence_end_prompt: cache");
  expect_null(varve_step_begin(nullptr, nullptr, 0), "varve_step_begin: cache");
  expect_null(varve_step_begin(cache_, nullptr, 1), "varve_step_begin: entries");
  expect_null(varve_step_append(nullptr, 0, 1, &rows, &rows), "varve_step_append: cache");
  expect_null(varve_step_append(cache_, 0, 1, nullptr, &rows), "varve_step_append: keys");
  expect_null(varve_step_append(cache_, 0, 1, &rows, nullptr), "varve_step_append: values");
  ASSERT_EQ(Begin(1), VARVE_OK);
  expect_null(varve_step_append(cache_, 0, sequence_, &no_data, &rows), "Append: keys.data");
  ASSERT_EQ(Begin(1), VARVE_OK);
  expect_null(varve_step_append(cache_, 0, sequence_, &rows, &no_data), "Append: values.data");
  expect_null(varve_attend(nullptr, 0, nullptr, 0, nullptr), "varve_attend: cache");
  expect_null(varve_attend(cache_, 0, nullptr, 1, nullptr), "varve_attend: requests");
  expect_null(varve_step_end(nullptr), "varve_step_end: cache");
  expect_null(varve_step_abort(nullptr), "varve_step_abort: cache");
  expect_null(varve_read_rows(nullptr, 1, 0, 0, VARVE_KEY, 0, 1, &out, 1, &count),
              "varve_read_rows: cache");
  expect_null(varve_read_rows(cache_, 1, 0, 0, VARVE_KEY, 0, 1, nullptr, 1, &count),
              "varve_read_rows: out");
  expect_null(varve_read_rows(cache_, 1, 0, 0, VARVE_KEY, 0, 1, &out, 1, nullptr),
              "varve_read_rows: num_rows");
  expect_null(varve_get_stats(nullptr, nullptr), "varve_get_stats: cache");
  expect_null(varve_get_stats(cache_, nullptr), "varve_get_stats: stats");
  expect_null(varve_stats_json(nullptr, nullptr), "varve_stats_json: cache");
  expect_null(varve_stats_json(cache_, nullptr), "varve_stats_json: json");
}

TEST_F(CApi, RangesOutsideTheSequenceAreRefused) {
  Step(kPage);
  EXPECT_EQ(varve_sequence_truncate(cache_, sequence_, kPage + 1), VARVE_INVALID_ARGUMENT);
  ErrorSays("position 17");
  EXPECT_EQ(varve_sequence_remove_range(cache_, sequence_, 4, 2), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(varve_sequence_keep_only(cache_, sequence_, -1, 2), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(varve_sequence_slide_window(cache_, sequence_, 0, 0), VARVE_INVALID_ARGUMENT);
  ErrorSays("num_tokens 0");
  int64_t rows = 0;
  EXPECT_EQ(varve_sequence_live_rows(cache_, sequence_, kLayers, &rows), VARVE_INVALID_ARGUMENT);
  ErrorSays("layer 2");
}

// --- steps ---

TEST_F(CApi, MaxStepTokensIsWhatBeginAccepts) {
  int32_t most = 0;
  ASSERT_EQ(varve_sequence_max_step_tokens(cache_, sequence_, &most), VARVE_OK);
  EXPECT_EQ(most, kPage);
  EXPECT_EQ(Begin(kPage + 1), VARVE_INVALID_ARGUMENT);
  ErrorSays("num_tokens 17");
  Step(5);
  ASSERT_EQ(varve_sequence_max_step_tokens(cache_, sequence_, &most), VARVE_OK);
  EXPECT_EQ(most, kPage - 5);
}

TEST_F(CApi, BeginRefusesWithoutHarmToAnOpenStep) {
  const varve_step_entry entries[2] = {{sequence_, 1}, {sequence_, 1}};
  EXPECT_EQ(varve_step_begin(cache_, entries, 0), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(varve_step_begin(cache_, entries, 2), VARVE_INVALID_ARGUMENT);
  ErrorSays("twice");
  ASSERT_EQ(Begin(1), VARVE_OK);
  EXPECT_EQ(Begin(1), VARVE_FAILED_PRECONDITION);
  uint64_t id = 0;
  EXPECT_EQ(varve_sequence_create(cache_, &id), VARVE_FAILED_PRECONDITION);
  for (int layer = 0; layer < kLayers; ++layer) ASSERT_EQ(Append(layer, 1), VARVE_OK);
  EXPECT_EQ(varve_step_end(cache_), VARVE_OK);
  EXPECT_EQ(NextPosition(), 1);
}

TEST_F(CApi, AnyFailureInsideAStepRollsItBack) {
  Step(3);
  const varve_attend_request request = Request(1);
  varve_attend_options options = {};
  options.struct_size = sizeof(options);
  options.see_all_rows = 2;
  const auto expect_rolled_back = [&](varve_status status, const std::string& message) {
    EXPECT_NE(status, VARVE_OK);
    ErrorSays(message);
    EXPECT_FALSE(StepIsOpen());
    EXPECT_EQ(NextPosition(), 3);
    EXPECT_EQ(LiveRows(), 3);
    ASSERT_EQ(Begin(2), VARVE_OK);
    ASSERT_EQ(Append(0, 1), VARVE_OK);
  };
  ASSERT_EQ(Begin(2), VARVE_OK);
  expect_rolled_back(Append(kLayers, 1), "layer 2");
  expect_rolled_back(Append(0, 2), "num_tokens 2 is outside 1");
  expect_rolled_back(varve_step_append(cache_, 0, sequence_, nullptr, nullptr), "keys is null");
  expect_rolled_back(varve_attend(cache_, 0, &request, 1, nullptr), "1 of 2 rows appended");
  expect_rolled_back(varve_attend(cache_, 0, nullptr, 1, nullptr), "requests is null");
  expect_rolled_back(varve_attend(cache_, 0, &request, 1, &options), "see_all_rows 2");
  expect_rolled_back(varve_step_end(cache_), "1 of 2 rows appended");
  ASSERT_EQ(varve_step_abort(cache_), VARVE_OK);
  EXPECT_EQ(LiveRows(), 3);
  EXPECT_EQ(varve_step_abort(cache_), VARVE_OK);  // nothing open, nothing happens
  EXPECT_EQ(varve_step_end(cache_), VARVE_FAILED_PRECONDITION);
  EXPECT_EQ(Append(0, 1), VARVE_FAILED_PRECONDITION);
}

TEST_F(CApi, AttendOptionsAreChecked) {
  Step(2);
  varve_attend_request request = Request(1);
  varve_attend_options options = {};
  const auto attend = [&] { return varve_attend(cache_, 0, &request, 1, &options); };
  EXPECT_EQ(attend(), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.struct_size 0");
  options.struct_size = sizeof(options);
  EXPECT_EQ(attend(), VARVE_OK);
  options.reserved = 1;
  EXPECT_EQ(attend(), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.reserved 1");
  options.reserved = 0;
  options.scale = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(attend(), VARVE_INVALID_ARGUMENT);
  ErrorSays("scale");
  options.scale = 0;
  options.window = -1;
  EXPECT_EQ(attend(), VARVE_INVALID_ARGUMENT);
  ErrorSays("window -1");
  options.window = 0;
  request.output = nullptr;
  EXPECT_EQ(attend(), VARVE_INVALID_ARGUMENT);
  ErrorSays("output is null");
  EXPECT_EQ(varve_attend(cache_, 0, nullptr, 0, nullptr), VARVE_OK);
}

TEST_F(CApi, SeeAllRowsIsCausalSwitchedOff) {
  Step(8);
  std::vector<float> causal(output_.size()), all(output_.size());
  varve_attend_request request = Request(8);
  request.output = causal.data();
  ASSERT_EQ(varve_attend(cache_, 0, &request, 1, nullptr), VARVE_OK);
  varve_attend_options options = {};
  options.struct_size = sizeof(options);
  options.see_all_rows = 1;
  request.output = all.data();
  ASSERT_EQ(varve_attend(cache_, 0, &request, 1, &options), VARVE_OK);
  // The first query sees more rows now, the last one the same.
  const auto query_of = [](const std::vector<float>& rows, size_t query) {
    const size_t floats = kKvHeads * kGroup * kDim;
    return std::vector<float>(rows.begin() + query * floats, rows.begin() + (query + 1) * floats);
  };
  EXPECT_NE(query_of(causal, 0), query_of(all, 0));
  EXPECT_EQ(query_of(causal, 7), query_of(all, 7));
}

TEST_F(CApi, TheCapIsAStatus) {
  varve_cache_options options = OneThread();
  options.max_bytes = 3 * 4096;
  Open("f16", options);
  varve_status status = VARVE_OK;
  for (int i = 0; i < 8 && status == VARVE_OK; ++i) {
    status = Begin(kPage);
    for (int layer = 0; layer < kLayers && status == VARVE_OK; ++layer) {
      ASSERT_EQ(Append(layer, kPage), VARVE_OK);
    }
    if (status != VARVE_OK) break;
    ASSERT_EQ(varve_step_end(cache_), VARVE_OK);
  }
  EXPECT_EQ(status, VARVE_OUT_OF_MEMORY);
  ErrorSays("max_bytes 12288");
  EXPECT_FALSE(StepIsOpen());
}

// --- observer ---

struct Told {
  int calls = 0;
  varve_attention_mass last = {};
  std::vector<float> mass;
  std::vector<varve_page_span> pages;
};

void Remember(const varve_attention_mass* mass, void* user_data) {
  auto* told = static_cast<Told*>(user_data);
  ++told->calls;
  told->last = *mass;
  told->pages.assign(mass->pages, mass->pages + mass->num_pages);
  told->mass.assign(mass->mass, mass->mass + mass->num_queries * mass->num_heads * mass->num_pages);
}

TEST_F(CApi, TheObserverSeesTheMassOfEveryPage) {
  Told told;
  varve_cache_options options = OneThread();
  options.observer = Remember;
  options.user_data = &told;
  Open("q8_0", options);
  Step(kPage);
  Step(3);
  EXPECT_EQ(told.calls, 2 * kLayers);
  EXPECT_EQ(told.last.struct_size, sizeof(varve_attention_mass));
  EXPECT_EQ(told.last.layer, kLayers - 1);
  EXPECT_EQ(told.last.sequence, sequence_);
  EXPECT_EQ(told.last.num_queries, 3);
  EXPECT_EQ(told.last.num_heads, kKvHeads * kGroup);
  ASSERT_EQ(told.last.num_pages, 2u);
  EXPECT_EQ(told.pages[1].first_position, kPage);
  EXPECT_EQ(told.pages[1].num_positions, 3);
  EXPECT_EQ(told.pages[1].num_rows, 3);
  EXPECT_EQ(told.pages[1].num_live_rows, 3);
  for (size_t row = 0; row < told.mass.size(); row += 2) {
    EXPECT_NEAR(told.mass[row] + told.mass[row + 1], 1.0f, 1e-5f);
  }
}

void ThrowError(const varve_attention_mass*, void*) { throw std::runtime_error("from a callback"); }
void ThrowNumber(const varve_attention_mass*, void*) { throw 7; }

TEST_F(CApi, NoExceptionGetsOut) {
  for (const varve_attention_observer observer : {ThrowError, ThrowNumber}) {
    varve_cache_options options = OneThread();
    options.observer = observer;
    Open("q8_0", options);
    ASSERT_EQ(Begin(1), VARVE_OK);
    ASSERT_EQ(Append(0, 1), VARVE_OK);
    const varve_attend_request request = Request(1);
    EXPECT_EQ(varve_attend(cache_, 0, &request, 1, nullptr), VARVE_INTERNAL);
    ErrorSays(observer == ThrowError ? "from a callback" : "unknown exception");
    EXPECT_FALSE(StepIsOpen());
    EXPECT_EQ(LiveRows(), 0);
  }
}

TEST_F(CApi, MemoryThatTheSystemDoesNotHaveIsAStatus) {
#ifdef VARVE_SANITIZED
  GTEST_SKIP() << "the sanitizer ends the process at an allocation of this size";
#endif
  const varve_step_entry entry = {sequence_, 1};
  // More than an address space: reserving the copy fails before an entry is read.
  EXPECT_EQ(varve_step_begin(cache_, &entry, size_t{1} << 58), VARVE_OUT_OF_MEMORY);
  ErrorSays("no memory");
}

// --- content and statistics ---

TEST_F(CApi, ReadRowsGivesWhatWasAppended) {
  Open("f32,open_rung=f32", OneThread());
  Step(4);
  std::vector<float> out(2 * kDim);
  int64_t num_rows = 0;
  ASSERT_EQ(varve_read_rows(cache_, sequence_, 1, 1, VARVE_VALUE, 1, 3, out.data(), out.size(),
                            &num_rows),
            VARVE_OK)
      << varve_last_error();
  ASSERT_EQ(num_rows, 2);
  for (int token = 1; token < 3; ++token) {
    for (int d = 0; d < kDim; ++d) {
      EXPECT_EQ(out[(token - 1) * kDim + d], rows_[(token * kKvHeads + 1) * kDim + d]);
    }
  }
}

TEST_F(CApi, ReadRowsNeverWritesBeyondItsBuffer) {
  Step(4);
  std::vector<float> out(2 * kDim);
  int64_t num_rows = 0;
  const auto read = [&](int layer, int head, int part, int64_t begin, int64_t end) {
    return varve_read_rows(cache_, sequence_, layer, head, part, begin, end, out.data(), out.size(),
                           &num_rows);
  };
  EXPECT_EQ(read(0, 0, VARVE_KEY, 0, 2), VARVE_OK);
  EXPECT_EQ(read(0, 0, VARVE_KEY, 0, 3), VARVE_INVALID_ARGUMENT);
  ErrorSays("out_floats 64 < 3 rows of 32");
  EXPECT_EQ(read(0, 0, VARVE_KEY, 0, std::numeric_limits<int64_t>::max()), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, 0, VARVE_KEY, -1, 1), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, 0, VARVE_KEY, 2, 1), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, 0, 2, 0, 1), VARVE_INVALID_ARGUMENT);
  ErrorSays("part 2");
  EXPECT_EQ(read(kLayers, 0, VARVE_KEY, 0, 1), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, kKvHeads, VARVE_KEY, 0, 1), VARVE_INVALID_ARGUMENT);
}

TEST_F(CApi, StatsAgreeWithTheirJson) {
  for (int i = 0; i < 2; ++i) Step(kPage);
  Step(1);
  const varve_stats stats = Stats();
  EXPECT_EQ(stats.pages, 3u * kLayers);
  EXPECT_EQ(stats.pages_sealed, 2u * kLayers);
  EXPECT_EQ(stats.bytes_f16, (2u * kPage + 1) * kLayers * kKvHeads * 2 * kDim * 2);

  char* text = nullptr;
  ASSERT_EQ(varve_stats_json(cache_, &text), VARVE_OK);
  const nlohmann::json json = nlohmann::json::parse(text);
  varve_free(text);
  EXPECT_EQ(json["plan"], "q8_0");
  EXPECT_EQ(json["bytes_held"], stats.bytes_held);
  EXPECT_EQ(json["bytes_f16"], stats.bytes_f16);
  EXPECT_EQ(json["pages_sealed"], stats.pages_sealed);
  uint64_t bytes = 0;
  for (const auto& rung : json["rungs"]) bytes += rung["bytes"].get<uint64_t>();
  EXPECT_EQ(bytes, stats.bytes_used);
  EXPECT_EQ(json["rungs"][0]["state"], "filling");
  EXPECT_EQ(json["rungs"][1]["rung"], "q8_0");
}

TEST_F(CApi, StatsStructSizeIsChecked) {
  varve_stats stats = {};
  EXPECT_EQ(varve_get_stats(cache_, &stats), VARVE_INVALID_ARGUMENT);
  ErrorSays("stats.struct_size 0");
}

}  // namespace
}  // namespace varve
