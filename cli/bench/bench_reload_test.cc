#include "cli/bench/bench_reload.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/model/open_model.h"
#include "tests/gguf_testing.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace bench_reload_test {

TEST(BenchReload, MeasuresAPlanAndLeavesNoFile) {
  const TempFolder folder;
  const std::vector<std::byte> bytes = TinyModel().Build();
  const std::shared_ptr<const DecoderModel> model =
      *LoadDecoderModel(*GgufFile::FromMemory(bytes, "tiny"));
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  BenchReloadOptions options;
  options.tokens = 200;
  options.steps = 3;
  options.file = folder.File("a.varve");
  Result<nlohmann::ordered_json> row = MeasureReload(options, "q8_0", *model, *executor);
  ASSERT_TRUE(row.ok()) << row.status().message();
  for (const char* key : {"prefill_s", "save_s", "load_s", "first_token_s", "decode_token_s",
                          "speedup", "file_bytes"}) {
    EXPECT_GT((*row)[key], 0) << key;
  }
  EXPECT_EQ((*row)["equal_steps"], 3);
  EXPECT_FALSE(std::filesystem::exists(options.file));
  EXPECT_FALSE(MeasureReload(options, "q9_0", *model, *executor).ok());
}

}  // namespace bench_reload_test
}  // namespace varve::cli
