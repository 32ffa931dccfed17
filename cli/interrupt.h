// Signals that ask a program to end, as a question that long commands ask between pieces of work,
// so that they end with what was measured so far: Ctrl-C (SIGINT), a terminal that closes (SIGHUP),
// `kill` and shutdowns (SIGTERM). A second signal of a kind ends the program at once.

#ifndef VARVE_CLI_INTERRUPT_H_
#define VARVE_CLI_INTERRUPT_H_

namespace varve::cli {

// While one exists, these signals set a flag and end a blocking read; afterwards they do what they
// did before. One at a time per process.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // True once a signal came in the last scope, and for ever once `ending()`.
  static bool interrupted();
  // True once SIGTERM or SIGHUP came: they end the program, not only a piece of its work.
  static bool ending();
  // What the program returns if it had nothing else to tell: 0, or 128 + the signal that ended its
  // last scope (130 for Ctrl-C), as shells have it.
  static int exit_code();
};

}  // namespace varve::cli

#endif  // VARVE_CLI_INTERRUPT_H_
