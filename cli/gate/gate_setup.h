// What `varve gate` runs on: cases, model, threads, prompts and baseline, all read and checked
// before anything is measured.

#ifndef VARVE_CLI_GATE_GATE_SETUP_H_
#define VARVE_CLI_GATE_GATE_SETUP_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/gate/gate_baseline.h"
#include "cli/gate/gate_case.h"
#include "cli/gate/gate_prompts.h"
#include "cli/gate/gate_quality.h"
#include "cli/gate/gate_run.h"
#include "cli/model_argument.h"

namespace varve::cli {

// How much is measured: a full run, or one in two minutes.
struct GateEffort {
  int per_bucket = 2;  // prompts
  int blocks = 12;     // of decode steps, per prompt
  int retries = 3;     // of a speed within the noise
  GateQualityOptions quality;

  int64_t reply_tokens() const;  // a token to warm up, and the blocks
};
GateEffort EffortOf(const GateOptions& options);

struct GateSetup {
  GateEffort effort;
  std::vector<GateCase> cases;
  LoadedModel model;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<DecoderRunner> runner;
  std::string text;  // for KL and recall
  GatePlace place;
  GateBaseline baseline;
  std::vector<GatePrompt> prompts;  // that fit the model's context
};

Result<GateSetup> PrepareGate(const GateOptions& options);

// The fields of summary.json that say what was run on what: command to settings.
nlohmann::ordered_json GateHead(const GateOptions& options, const GateSetup& setup, double seconds);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_SETUP_H_
