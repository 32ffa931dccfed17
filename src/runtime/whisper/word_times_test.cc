#include "runtime/whisper/word_times.h"

#include <gtest/gtest.h>

#include "tests/whisper_testing.h"

namespace varve {
namespace word_times_test {

TEST(CheapestPath, FollowsTheValley) {
  // Rows are spoken during columns 0-1, 2-4 and 5.
  const std::vector<float> cost = {
      0, 0, 9, 9, 9, 9,  //
      9, 9, 0, 0, 0, 9,  //
      9, 9, 9, 9, 9, 0,  //
  };
  EXPECT_EQ(CheapestPath(cost, 3, 6), (std::vector<int>{0, 2, 5}));
}

TEST(CheapestPath, WorksWithMoreRowsThanColumnsAndWithOne) {
  EXPECT_EQ(CheapestPath(std::vector<float>(4, 1.0f), 4, 1), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(CheapestPath(std::vector<float>(4, 1.0f), 1, 4), (std::vector<int>{0}));
}

TEST(AlignmentHeads, KnownModelsHaveTheirsAndOthersTheUpperHalf) {
  WhisperConfig config = TinyWhisperConfig();
  EXPECT_EQ(AlignmentHeads(config), (std::vector<AlignmentHead>{{1, 0}, {1, 1}}));
  config.text_layers = 4;
  config.text_state = 384;
  config.text_heads = 6;
  const std::vector<AlignmentHead> tiny = AlignmentHeads(config);
  EXPECT_EQ(tiny.size(), 8u);
  EXPECT_EQ(tiny.front(), (AlignmentHead{1, 0}));
  for (const auto& [layer, head] : tiny) {
    EXPECT_LT(layer, 4);
    EXPECT_LT(head, 6);
  }
}

}  // namespace word_times_test
}  // namespace varve
