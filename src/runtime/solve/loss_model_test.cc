#include "runtime/solve/loss_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace varve {
namespace loss_model_test {

const PartLosses kKeys{.rungs = {0, 0.01, 0.2}, .layers = {0.003, 0.001, 0.0, 0.004}};
const PartLosses kValues{.rungs = {0, 0.002, 0.03}, .layers = {0.001, 0.001, 0.001, 0.001}};

TEST(LossModel, LayersAddUpToWhatTheRungCostsInAll) {
  for (const double sharpness : {1.0, 0.5, 0.0}) {
    const auto model = LossModel::Make(kKeys, kValues, sharpness);
    ASSERT_TRUE(model.ok()) << model.status().message();
    ASSERT_EQ(model->num_layers(), 4u);
    for (size_t rung = 0; rung < 3; ++rung) {
      double keys = 0;
      double values = 0;
      for (size_t l = 0; l < 4; ++l) {
        keys += model->KeyLoss(l, rung);
        values += model->ValueLoss(l, rung);
      }
      EXPECT_NEAR(keys, kKeys.rungs[rung], 1e-15);
      EXPECT_NEAR(values, kValues.rungs[rung], 1e-15);
    }
  }
}

TEST(LossModel, LayersShareARungsLossAsTheyShareTheLowRungs) {
  const auto model = LossModel::Make(kKeys, kValues);
  ASSERT_TRUE(model.ok());
  EXPECT_DOUBLE_EQ(model->KeyLoss(3, 2), 0.2 * 0.5);
  EXPECT_DOUBLE_EQ(model->KeyLoss(2, 2), 0);
  EXPECT_DOUBLE_EQ(model->ValueLoss(1, 1), 0.002 / 4);
}

TEST(LossModel, LessSharpnessBringsLayersCloser) {
  const auto sharp = LossModel::Make(kKeys, kValues);
  const auto soft = LossModel::Make(kKeys, kValues, 0.5);
  ASSERT_TRUE(sharp.ok() && soft.ok());
  EXPECT_LT(soft->KeyLoss(0, 1) / soft->KeyLoss(1, 1), sharp->KeyLoss(0, 1) / sharp->KeyLoss(1, 1));
  EXPECT_GT(soft->KeyLoss(0, 1), soft->KeyLoss(1, 1));
}

TEST(LossModel, WithoutAnyLossLayersAreEqual) {
  const auto model = LossModel::Make({{0, 0.01}, {0, 0}}, {{0, 0.01}, {0, 0}});
  ASSERT_TRUE(model.ok());
  EXPECT_DOUBLE_EQ(model->KeyLoss(0, 1), 0.005);
}

TEST(LossModel, RefusesWhatIsNoLoss) {
  EXPECT_FALSE(LossModel::Make({{0, NAN}, {1}}, {{0}, {1}}).ok());
  EXPECT_FALSE(LossModel::Make({{0}, {-1}}, {{0}, {1}}).ok());
  EXPECT_FALSE(LossModel::Make({{0}, {}}, {{0}, {1}}).ok());
  EXPECT_FALSE(LossModel::Make({{0}, {1, 2}}, {{0}, {1}}).ok());
}

}  // namespace loss_model_test
}  // namespace varve
