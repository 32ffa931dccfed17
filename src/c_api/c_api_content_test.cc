#include <cstdint>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "c_api/c_api_testing.h"

namespace varve {
namespace c_api_content_test {

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

}  // namespace c_api_content_test
}  // namespace varve
