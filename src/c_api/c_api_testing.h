// What the tests of the C ABI share: a small cache with one sequence, and its calls in one line.

#ifndef VARVE_C_API_C_API_TESTING_H_
#define VARVE_C_API_C_API_TESTING_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "varve/varve.h"

namespace varve {

inline constexpr int kLayers = 2;
inline constexpr int kKvHeads = 2;
inline constexpr int kGroup = 2;
inline constexpr int kDim = 32;
inline constexpr int kPage = 16;

inline varve_shape SmallShape() {
  return {sizeof(varve_shape), kLayers, kKvHeads, kGroup, kDim, 0, kPage};
}

inline varve_cache_options OneThread() {
  varve_cache_options options = {};
  options.struct_size = sizeof(options);
  options.num_threads = 1;
  return options;
}

inline bool ErrorSays(const std::string& part) {
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

}  // namespace varve

#endif  // VARVE_C_API_C_API_TESTING_H_
