#include "cli/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace varve::cli {
namespace interrupt_test {

void FormerHandler(int) {}

TEST(Interrupt, IsNotedInsideAScopeAndForgottenByTheNext) {
  {
    const InterruptScope scope;
    EXPECT_FALSE(InterruptScope::interrupted());
    std::raise(SIGINT);
  }
  EXPECT_TRUE(InterruptScope::interrupted());
  const InterruptScope scope;
  EXPECT_FALSE(InterruptScope::interrupted());
}

TEST(Interrupt, TheFormerHandlerComesBack) {
  const auto before = std::signal(SIGINT, FormerHandler);
  { const InterruptScope scope; }
  EXPECT_EQ(std::signal(SIGINT, before), FormerHandler);
}

TEST(Interrupt, TheSecondCtrlCEndsTheProgram) {
  EXPECT_EXIT(
      {
        const InterruptScope scope;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace interrupt_test
}  // namespace varve::cli
