// Ctrl-C as a question that long commands ask between pieces of work, so that they end with what
// was measured so far. A second Ctrl-C ends the program at once.

#ifndef VARVE_CLI_INTERRUPT_H_
#define VARVE_CLI_INTERRUPT_H_

namespace varve::cli {

// While one exists, SIGINT sets a flag and ends a blocking read; afterwards it is what it was
// before. One at a time per process.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // True once Ctrl-C came in the last scope.
  static bool interrupted();
};

}  // namespace varve::cli

#endif  // VARVE_CLI_INTERRUPT_H_
