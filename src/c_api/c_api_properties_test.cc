// Everything that a cache knows about itself, from C, by name.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "c_api/c_api_testing.h"

namespace varve {
namespace c_api_properties_test {

std::string Text(const varve_cache* cache, const char* name) {
  char* text = nullptr;
  EXPECT_EQ(varve_property_text(cache, name, &text), VARVE_OK) << varve_last_error();
  std::string copy = text == nullptr ? "" : text;
  varve_free(text);
  return copy;
}

double Number(const varve_cache* cache, const char* name) {
  double number = -1;
  EXPECT_EQ(varve_property_number(cache, name, &number), VARVE_OK) << varve_last_error();
  return number;
}

class CApiProperties : public CApi {};

TEST_F(CApiProperties, EveryRunTimeMetricOfTheSpecificationHasAName) {
  Open("evict=h2o,trigger=16,every=16,sink=16,recent=16,ratio=2,pack=full", OneThread());
  for (int i = 0; i < 8; ++i) Step(kPage);
  for (const char* name : {"keep_ratio",
                           "lossy_ratio",
                           "target_keep_effective",
                           "floor_keep_by_recent_sink",
                           "block_quantized_keep",
                           "evict_us",
                           "codec_us",
                           "last_evict_tokens",
                           "total_evict_tokens",
                           "lossless_ratio",
                           "lossless_raw_bytes",
                           "lossless_compressed_bytes",
                           "lossless_decompressed_bytes",
                           "lossless_compress_us",
                           "lossless_decompress_us",
                           "lossless_queue_depth_peak",
                           "lossless_fallback_count",
                           "lossless_backpressure_skip_count",
                           "lossless_async_queue_peak",
                           "lossless_async_wait_us",
                           "lossless_decode_cache_hit",
                           "lossless_decode_cache_miss",
                           "lossless_async_wait_mean_us",
                           "lossless_async_wait_headroom_us",
                           "lossless_async_wait_headroom_ratio",
                           "kv_content_consistency_pass",
                           "total_ratio",
                           "total_ratio_avg",
                           "resident_bytes"}) {
    EXPECT_GE(Number(cache_, name), 0) << name;
  }
  EXPECT_GT(Number(cache_, "total_evict_tokens"), 0);
  EXPECT_LT(Number(cache_, "keep_ratio"), 1);
  EXPECT_GT(Number(cache_, "lossy_ratio"), 1);
}

TEST_F(CApiProperties, LinesOfThePlanReachTheProgram) {
  std::vector<std::string> lines;
  varve_cache_options options = OneThread();
  options.log = [](const char* line, void* into) {
    static_cast<std::vector<std::string>*>(into)->push_back(line);
  };
  options.log_data = &lines;
  const std::string plan = "evict=h2o,trigger=16,every=16,sink=16,recent=16,ratio=2";
  Open(plan.c_str(), options);
  for (int i = 0; i < 8; ++i) Step(kPage);
  EXPECT_TRUE(lines.empty());
  Open((plan + ",log_stats=1").c_str(), options);
  for (int i = 0; i < 8; ++i) Step(kPage);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0].find("stats: total_ratio="), 0u) << lines[0];
}

TEST_F(CApiProperties, AgreeWithTheTypedStatistics) {
  Step(kPage);
  Step(3);
  const varve_stats stats = Stats();
  EXPECT_EQ(Number(cache_, "bytes_used"), static_cast<double>(stats.bytes_used));
  EXPECT_EQ(Number(cache_, "pages_sealed"), static_cast<double>(stats.pages_sealed));
  EXPECT_EQ(Number(cache_, "resident_bytes"),
            static_cast<double>(stats.bytes_held + stats.bytes_tables + stats.bytes_scratch));
  EXPECT_EQ(Text(cache_, "pages"), std::to_string(stats.pages));
  EXPECT_EQ(Text(cache_, "plan"), "q8_0");
  EXPECT_EQ(Number(cache_, "rung.q8_0.sealed.pages"), kLayers);
  EXPECT_EQ(Number(cache_, "rung.f16.filling.pages"), kLayers);
}

TEST_F(CApiProperties, JsonHasEachOnceAsItsOwnType) {
  Step(kPage);
  char* text = nullptr;
  ASSERT_EQ(varve_properties_json(cache_, &text), VARVE_OK);
  const auto json = nlohmann::json::parse(text);
  varve_free(text);
  EXPECT_EQ(json["plan"], "q8_0");
  EXPECT_TRUE(json["pages"].is_number_unsigned());
  EXPECT_TRUE(json["lossless_ratio"].is_number_float());
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number()) continue;
    EXPECT_EQ(Number(cache_, name.c_str()), value.get<double>()) << name;
  }
  EXPECT_GT(json.size(), 80u);
}

TEST_F(CApiProperties, AFallbackOfThePlanIsText) {
  Open("pq4,fallback=q8_0", OneThread());
  EXPECT_NE(Text(cache_, "fallback.0").find("q8_0 in place of pq"), std::string::npos)
      << Text(cache_, "fallback.0");
}

TEST_F(CApiProperties, ANameThatIsNotKnownIsRefused) {
  double number = 0;
  char* text = nullptr;
  EXPECT_EQ(varve_property_number(cache_, "nonsense", &number), VARVE_NOT_FOUND);
  ErrorSays("property \"nonsense\" is not known");
  EXPECT_EQ(varve_property_text(cache_, "nonsense", &text), VARVE_NOT_FOUND);
  EXPECT_EQ(varve_property_number(cache_, "plan", &number), VARVE_INVALID_ARGUMENT);
  ErrorSays("\"plan\" is text; use varve_property_text");
  EXPECT_EQ(varve_property_number(cache_, nullptr, &number), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(varve_properties_json(cache_, nullptr), VARVE_INVALID_ARGUMENT);
}

}  // namespace c_api_properties_test
}  // namespace varve
