// ProbeMemory: what probes of plans have found, kept in a file of the user, so that a model is
// probed once with a plan and not at every start.
//
// The file is $XDG_CACHE_HOME/varve/probes, or ~/.cache/varve/probes: a line per probe with the
// program's version, the model's fingerprint, the KL and the canonical plan. It may be removed at
// any time. A file that cannot be read or written is as good as none: a probe is repeated then.

#ifndef VARVE_CLI_RUN_PROBE_MEMORY_H_
#define VARVE_CLI_RUN_PROBE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "varve/plan.h"

namespace varve::cli {

class ProbeMemory {
 public:
  // An empty path remembers nothing.
  explicit ProbeMemory(std::string path) : path_(std::move(path)) {}
  // The file of the user; empty where the environment names no place for it.
  static std::string UserPath();

  std::optional<double> Find(uint64_t model_fingerprint, const Plan& plan) const;
  // Nothing is kept of a model without a fingerprint.
  void Remember(uint64_t model_fingerprint, const Plan& plan, double kl) const;

 private:
  std::string path_;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_PROBE_MEMORY_H_
