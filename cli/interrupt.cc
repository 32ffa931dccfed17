#include "cli/interrupt.h"

#include <csignal>

namespace varve::cli {
namespace {

volatile std::sig_atomic_t interrupt_flag = 0;
struct sigaction action_before;

void OnInterrupt(int) { interrupt_flag = 1; }

}  // namespace

// No SA_RESTART: a read must end. SA_RESETHAND: the second signal is not for us.
InterruptScope::InterruptScope() {
  interrupt_flag = 0;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &action_before);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &action_before, nullptr); }

bool InterruptScope::interrupted() { return interrupt_flag != 0; }

}  // namespace varve::cli
