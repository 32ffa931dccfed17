// What the gate compares and explains (gate_measure.h).

#include <gtest/gtest.h>

#include "cli/gate/gate_measure.h"

namespace varve::cli {
namespace gate_checks_test {

std::string Plain(const std::string& text) {
  const Result<Plan> plan = ParsePlan(text);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  std::string plain = PrintPlan(WithoutPacking(*plan));
  // What is left stands on its own.
  EXPECT_TRUE(ParsePlan(plain).ok()) << plain << ": " << ParsePlan(plain).status().message();
  return plain;
}

TEST(GateChecks, APlanWithoutPackingKeepsEverythingElse) {
  EXPECT_EQ(Plain("q8_0,pack=store,hot=16/96,bootstrap=16,step=384,layer_cache=8"), Plain("q8_0"));
  EXPECT_EQ(Plain("0-1: page=32,pack=full,pack_threads=2,decode_cache=4; 2-: h2o,pack=full"),
            Plain("2-: page=32,h2o"));
  EXPECT_EQ(Plain("h2o,pack=store,pack_codec=gear,predictors_k=raw,predictors_v=raw,pack_zstd=0"),
            Plain("h2o"));
  EXPECT_EQ(Plain("pack=store,strict=1,pack_block=64"), Plain(""));
  EXPECT_EQ(Plain("pack=probe,sample_every=2"), Plain(""));
}

TEST(GateChecks, APolicyIsIdleBeforeItsTrigger) {
  const Plan plan = *ParsePlan("h2o,trigger=384");
  EXPECT_NE(PolicyIdleReason(plan, 200).find("from 384 tokens on, this ends at 200"),
            std::string::npos);
  EXPECT_EQ(PolicyIdleReason(plan, 600), "");
  EXPECT_EQ(PolicyIdleReason(*ParsePlan("q8_0"), 200), "");
  EXPECT_NE(PolicyIdleReason(*ParsePlan("h2o"), 400), "");
}

}  // namespace gate_checks_test
}  // namespace varve::cli
