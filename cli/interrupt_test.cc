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

TEST(Interrupt, TheFormerHandlersComeBack) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto before = std::signal(signal, FormerHandler);
    { const InterruptScope scope; }
    EXPECT_EQ(std::signal(signal, before), FormerHandler);
  }
}

TEST(Interrupt, AnIgnoredSignalStaysIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const InterruptScope scope;
    std::raise(SIGHUP);
    EXPECT_FALSE(InterruptScope::interrupted());
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

TEST(Interrupt, CtrlCIsForgottenByTheNextScopeAndSigtermIsNot) {
  EXPECT_EXIT(
      {
        {
          const InterruptScope scope;
          std::raise(SIGINT);
          EXPECT_EQ(InterruptScope::exit_code(), 130);
          EXPECT_FALSE(InterruptScope::ending());
        }
        {
          const InterruptScope scope;
          EXPECT_EQ(InterruptScope::exit_code(), 0);
          std::raise(SIGTERM);
        }
        const InterruptScope scope;
        if (!InterruptScope::interrupted() || !InterruptScope::ending()) std::_Exit(1);
        std::_Exit(InterruptScope::exit_code());
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "");
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
