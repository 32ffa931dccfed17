// `varve lossless`: what packing would save on a KV dump.

#ifndef VARVE_CLI_LOSSLESS_LOSSLESS_COMMAND_H_
#define VARVE_CLI_LOSSLESS_LOSSLESS_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

struct LosslessOptions {
  std::string folder;
  std::vector<std::string> modes = {"per_meta", "aggregate", "chunked", "chunked_grouped"};
  int64_t chunk = 128;     // chunked: tokens packed together
  int64_t bootstrap = 32;  // chunked_grouped: the first piece …
  int64_t group = 192;     // … and the others
  bool strict = false;     // f32 is skipped and counted, not rounded to f16
  int reps = 3;
  std::string json;
};

// Prints a table to stdout, writes JSON if asked. Every entry is unpacked and compared before it is
// timed; entries that fail are counted and are part of no figure. Fails if no entry was left.
Status EvaluateLossless(const LosslessOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_LOSSLESS_LOSSLESS_COMMAND_H_
