#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "varve/plan.h"

namespace varve {
namespace plan_support_test {

TEST(PlanSupport, WhatIsBuiltIsAccepted) {
  for (const char* text :
       {"",
        "f32",
        "f16",
        "bf16",
        "q8_0",
        "q4_0",
        "q8_0r",
        "q4_0r",
        "balanced",
        "k=q8_0,v=f16",
        "age=f16:512/q8_0:4096/q4_0",
        "k=f16,age=q8_0:64/q4_0",
        "q8_0,open=128,open_rung=f32",
        "page=32",
        "window=4096,sink=4",
        "0-1: f16; 2-: q4_0r,open=128",
        "h2o",
        "evict=window",
        "evict=random",
        "evict=tova",
        "evict=snapkv",
        "evict=demote",
        "evict=h2o,ratio=3.5",
        "fold=a.bin,image=576,fold_positions=restart",
        "evict=h2o,budget=64MiB,sink=32,recent=256,trigger=512,every=16,ema=0.9"}) {
    const Status status = CheckSupported(*ParsePlan(text));
    EXPECT_TRUE(status.ok()) << text << ": " << status.message();
  }
}

TEST(PlanSupport, WhatIsForOtherCachesIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"cross=q8_0", "clause \"cross=q8_0\": is for the encoder's rows"},
      {"0: f16; 1-: evict=tova,cross=f16", "clause \"cross=f16\": is for the encoder's rows"},
  };
  for (const auto& [text, message] : cases) {
    const Status status = CheckSupported(*ParsePlan(text));
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << text;
    EXPECT_NE(status.message().find(message), std::string::npos) << text << status.message();
  }
}

}  // namespace plan_support_test
}  // namespace varve
