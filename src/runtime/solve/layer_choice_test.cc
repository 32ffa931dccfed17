#include "runtime/solve/layer_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace varve {
namespace layer_choice_test {

using Layers = std::vector<std::vector<LayerOption>>;

Layers RandomLayers(int num_layers, int num_options, uint64_t granule, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<uint64_t> bytes(1, 40);
  std::exponential_distribution<double> loss(1.0);
  Layers layers(static_cast<size_t>(num_layers));
  for (auto& options : layers) {
    for (int i = 0; i < num_options; ++i) {
      options.push_back({bytes(random) * granule, loss(random)});
    }
  }
  return layers;
}

void ForEveryChoice(const Layers& layers, const std::function<void(uint64_t, double)>& visit) {
  const std::function<void(size_t, uint64_t, double)> walk = [&](size_t l, uint64_t bytes,
                                                                 double loss) {
    if (l == layers.size()) return visit(bytes, loss);
    for (const LayerOption& option : layers[l])
      walk(l + 1, bytes + option.bytes, loss + option.loss);
  };
  walk(0, 0, 0);
}

LayerChoices MustMake(const Layers& layers) {
  Result<LayerChoices> made = LayerChoices::Make(layers);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

// Sums of the options that a choice names, and that these are there.
void ExpectAddsUp(const LayerChoice& choice, const Layers& layers) {
  ASSERT_EQ(choice.options.size(), layers.size());
  uint64_t bytes = 0;
  double loss = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    ASSERT_LT(static_cast<size_t>(choice.options[l]), layers[l].size());
    bytes += layers[l][static_cast<size_t>(choice.options[l])].bytes;
    loss += layers[l][static_cast<size_t>(choice.options[l])].loss;
  }
  EXPECT_EQ(choice.bytes, bytes);
  EXPECT_DOUBLE_EQ(choice.loss, loss);
}

TEST(LayerChoices, LoseNoMoreThanAnyOtherChoiceWithinTheBytes) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const Layers layers = RandomLayers(5, 4, 256 * 30, seed);
    const LayerChoices choices = MustMake(layers);
    for (const uint64_t budget : {300'000ULL, 500'000ULL, 800'000ULL, 10'000'000ULL}) {
      double least = INFINITY;
      ForEveryChoice(layers, [&](uint64_t bytes, double loss) {
        if (bytes <= budget) least = std::min(least, loss);
      });
      const auto choice = choices.BestWithin(budget);
      ASSERT_EQ(choice.has_value(), std::isfinite(least)) << "seed " << seed;
      if (!choice) continue;
      EXPECT_LE(choice->bytes, budget);
      EXPECT_NEAR(choice->loss, least, 1e-12) << "seed " << seed << " budget " << budget;
      ExpectAddsUp(*choice, layers);
    }
  }
}

TEST(LayerChoices, TakeNoMoreBytesThanAnyOtherChoiceWithinTheLoss) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const Layers layers = RandomLayers(5, 4, 1024, seed);
    const LayerChoices choices = MustMake(layers);
    for (const double allowed : {0.5, 1.5, 4.0, 100.0}) {
      uint64_t fewest = UINT64_MAX;
      ForEveryChoice(layers, [&](uint64_t bytes, double loss) {
        if (loss <= allowed) fewest = std::min(fewest, bytes);
      });
      const auto choice = choices.SmallestWithin(allowed);
      ASSERT_EQ(choice.has_value(), fewest != UINT64_MAX) << "seed " << seed;
      if (!choice) continue;
      EXPECT_EQ(choice->bytes, fewest) << "seed " << seed << " loss " << allowed;
      EXPECT_LE(choice->loss, allowed);
      ExpectAddsUp(*choice, layers);
    }
  }
}

TEST(LayerChoices, AreNeverAboveTheSameOptionInEveryLayer) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    // Options of all layers have the same bytes, as rungs do; losses differ.
    Layers layers = RandomLayers(12, 6, 256, seed);
    for (auto& options : layers) {
      for (size_t i = 0; i < options.size(); ++i) options[i].bytes = (i + 3) * 256 * 31;
    }
    const LayerChoices choices = MustMake(layers);
    for (size_t i = 0; i < layers[0].size(); ++i) {
      uint64_t bytes = 0;
      double loss = 0;
      for (const auto& options : layers) {
        bytes += options[i].bytes;
        loss += options[i].loss;
      }
      const auto choice = choices.BestWithin(bytes);
      ASSERT_TRUE(choice.has_value());
      EXPECT_LE(choice->loss, loss + 1e-12);
      EXPECT_LE(choice->bytes, bytes);
    }
  }
}

TEST(LayerChoices, RoundedSumsStayWithinTheBytes) {
  // Differences without a common divisor: more sums than the table has room for.
  Layers layers = RandomLayers(20, 5, 1, 7);
  std::mt19937 random(3);
  std::uniform_int_distribution<uint64_t> bytes(1'000'000, 9'000'000);
  for (auto& options : layers) {
    for (LayerOption& option : options) option.bytes = bytes(random);
  }
  const LayerChoices choices = MustMake(layers);
  double before = INFINITY;
  for (uint64_t budget = choices.smallest_bytes(); budget < 200'000'000; budget += 9'999'991) {
    const auto choice = choices.BestWithin(budget);
    ASSERT_TRUE(choice.has_value());
    EXPECT_LE(choice->bytes, budget);
    EXPECT_LE(choice->loss, before);
    before = choice->loss;
    ExpectAddsUp(*choice, layers);
  }
  double least = 0;
  for (const auto& options : layers) {
    double of_layer = INFINITY;
    for (const LayerOption& option : options) of_layer = std::min(of_layer, option.loss);
    least += of_layer;
  }
  EXPECT_NEAR(choices.BestWithin(UINT64_MAX)->loss, least, 1e-9);
}

TEST(LayerChoices, BelowTheSmallestThereIsNone) {
  const LayerChoices choices = MustMake({{{100, 1.0}, {200, 0.5}}, {{300, 2.0}, {400, 0.0}}});
  EXPECT_EQ(choices.smallest_bytes(), 400u);
  EXPECT_FALSE(choices.BestWithin(399).has_value());
  EXPECT_EQ(choices.BestWithin(400)->options, (std::vector<int>{0, 0}));
  EXPECT_FALSE(choices.SmallestWithin(0.4).has_value());
  EXPECT_EQ(choices.SmallestWithin(0.5)->options, (std::vector<int>{1, 1}));
}

TEST(LayerChoices, RefuseWhatIsNoLoss) {
  EXPECT_FALSE(LayerChoices::Make({}).ok());
  EXPECT_FALSE(LayerChoices::Make({{}}).ok());
  const auto negative = LayerChoices::Make({{{1, 0.0}}, {{1, -1.0}}});
  ASSERT_FALSE(negative.ok());
  EXPECT_NE(negative.status().message().find("layer 1"), std::string::npos);
  EXPECT_FALSE(LayerChoices::Make({{{1, NAN}}}).ok());
}

}  // namespace layer_choice_test
}  // namespace varve
