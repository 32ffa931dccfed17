#include "cli/interrupt.h"

#include <array>
#include <atomic>
#include <csignal>

namespace varve::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// Set by the handler, read by any thread.
std::atomic<int> last_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // or a handler must not touch it
std::array<struct sigaction, kSignals.size()> actions_before;

void OnSignal(int signal) { last_signal = signal; }

}  // namespace

// No SA_RESTART: a read must end. SA_RESETHAND: the second signal is not for us. A signal that is
// ignored (nohup) stays ignored.
InterruptScope::InterruptScope() {
  if (!ending()) last_signal = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &actions_before[i]);
    if (actions_before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_before[i], nullptr);
}

bool InterruptScope::interrupted() { return last_signal != 0; }

bool InterruptScope::ending() {
  const int signal = last_signal;
  return signal == SIGTERM || signal == SIGHUP;
}

int InterruptScope::exit_code() {
  const int signal = last_signal;
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace varve::cli
