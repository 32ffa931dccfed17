#include "cli/run/run_probe.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/tiny_model.h"

namespace varve::cli {
namespace run_probe_test {

class RunProbe : public ::testing::Test {
 protected:
  RunProbe() {
    TinyModel().Write(folder_.File("tiny.gguf"));
    RunOptions options;
    options.model = folder_.File("tiny.gguf");
    options.threads = 2;
    auto setup = PrepareRun(options);
    EXPECT_TRUE(setup.ok()) << setup.status().message();
    setup_ = std::move(*setup);
  }

  std::string Warning(const std::string& plan, double max_kl, const ProbeMemory& memory) const {
    const auto warning = ProbeWarning(setup_, plan, *ParsePlan(plan), memory, max_kl);
    EXPECT_TRUE(warning.ok()) << warning.status().message();
    return warning.ok() ? *warning : "";
  }

  TempFolder folder_;
  RunSetup setup_;
  ProbeMemory none_{""};
};

TEST_F(RunProbe, WarnsOfAPlanThatLosesMoreAndNamesABetterOne) {
  EXPECT_EQ(Warning("q4_0", 10, none_), "");
  const std::string warning = Warning("q4_0", 1e-5, none_);
  EXPECT_NE(warning.find("q4_0 loses much on this model: KL "), std::string::npos) << warning;
  EXPECT_NE(warning.find("--kv "), std::string::npos) << warning;
  EXPECT_EQ(warning.find("--kv q4_0"), std::string::npos) << warning;
  // Where everything loses more than is allowed.
  EXPECT_NE(Warning("q4_0", 1e-12, none_).find("--kv f16 loses nothing"), std::string::npos);
}

TEST_F(RunProbe, RemembersWhatItFound) {
  const ProbeMemory memory(folder_.File("cache/varve/probes"));
  const Plan plan = *ParsePlan("q4_0");
  const uint64_t fingerprint = setup_.model.model->fingerprint();
  EXPECT_FALSE(memory.Find(fingerprint, plan).has_value());
  const std::string first = Warning("q4_0", 1e-5, memory);
  ASSERT_TRUE(memory.Find(fingerprint, plan).has_value());
  EXPECT_GT(*memory.Find(fingerprint, plan), 0);
  EXPECT_FALSE(memory.Find(fingerprint + 1, plan).has_value());
  EXPECT_FALSE(memory.Find(fingerprint, *ParsePlan("q4_0,open=64")).has_value());
  // What is remembered is not measured again.
  memory.Remember(fingerprint, *ParsePlan("q4_0r"), 7.5);
  EXPECT_NE(Warning("q4_0r", 1, memory).find("KL 7.5"), std::string::npos);
}

TEST(ProbeMemory, ALineThatIsNoProbeIsSkipped) {
  const TempFolder folder;
  const ProbeMemory memory(folder.File("probes"));
  std::ofstream(folder.File("probes")) << "nonsense\n\n" << VARVE_VERSION << " 12 nan q8_0\n";
  memory.Remember(0x12, *ParsePlan("q8_0"), 0.25);
  memory.Remember(0, *ParsePlan("q4_0"), 0.5);
  EXPECT_EQ(memory.Find(0x12, *ParsePlan("q8_0")), 0.25);
  EXPECT_FALSE(memory.Find(0, *ParsePlan("q4_0")).has_value());
}

TEST(NeedsProbe, OnlyOfRungsThatMayRuinAModel) {
  for (const char* safe : {"", "f16", "q8_0", "k=q8_0", "balanced", "age=f16:64/q8_0",
                           "q4_0,evict=h2o,ratio=2", "fold"}) {
    EXPECT_FALSE(NeedsProbe(*ParsePlan(safe))) << safe;
  }
  for (const char* lossy :
       {"q4_0", "t3", "v=q4_0r", "age=f16:64/q4_0", "0-1: q8_0; 2-: q4_0r", "pq4"}) {
    EXPECT_TRUE(NeedsProbe(*ParsePlan(lossy))) << lossy;
  }
}

}  // namespace run_probe_test
}  // namespace varve::cli
