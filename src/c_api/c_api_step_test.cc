#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "c_api/c_api_testing.h"

namespace varve {
namespace c_api_step_test {

// --- steps ---

TEST_F(CApi, MaxStepTokensIsWhatBeginAccepts) {
  int32_t most = 0;
  ASSERT_EQ(varve_sequence_max_step_tokens(cache_, sequence_, &most), VARVE_OK);
  EXPECT_GE(most, 64 * kPage);
  EXPECT_EQ(Begin(most + 1), VARVE_INVALID_ARGUMENT);
  ErrorSays("num_tokens " + std::to_string(most + 1));
  ASSERT_EQ(Begin(5 * kPage + 1), VARVE_OK);
  EXPECT_EQ(varve_step_abort(cache_), VARVE_OK);
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

}  // namespace c_api_step_test
}  // namespace varve
