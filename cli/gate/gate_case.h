// GateCase: one case of `varve gate`: a plan, the prompts that it runs on, and what must hold.
//
// A case is a JSON file that users copy and change (docs/format/gate-summary.md has the fields):
//
//   {"name": "q8_0", "purpose": "8 bits lose nothing that anybody sees.", "plan": "q8_0",
//    "buckets": [128, 512, 2048],
//    "gates": [{"figure": "cache_ratio", "min": 1.7, "bucket": "2048"},
//              {"figure": "decode_drop_ratio", "max": 0.08},
//              {"figure": "kl_mean", "max": {"varve-books-29m": 0.001, "*": 0.01}}]}
//
// A plain value.

#ifndef VARVE_CLI_GATE_GATE_CASE_H_
#define VARVE_CLI_GATE_GATE_CASE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/gate/gate_files.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve::cli {

enum class GateOp { kMin, kMax, kAbove, kEqual };

// ">=", "<=", ">", "=".
const char* GateOpText(GateOp op);

struct GateLimit {
  std::string figure;  // a property of the cache, or a figure of the gate itself
  GateOp op = GateOp::kMin;
  std::map<std::string, double> by_model;  // by the model's name; "*": any other
  std::string bucket;                      // "2048", "all": over all; empty: each, and over all

  // The limit for a model, or nothing where the case has none for it.
  std::optional<double> For(const std::string& model) const;
};

struct GateCase {
  std::string file;  // that it came from, for messages
  std::string name;
  std::string purpose;
  std::string plan_text;  // as written
  Plan plan;
  std::vector<int64_t> buckets;  // tokens of the prompts; ascending
  std::vector<GateLimit> gates;
  std::vector<std::string> metrics;  // that must be there, beside those of every case

  bool Wants(const std::string& bucket) const;
};

// Refuses, by file and key: no JSON, unknown keys, a plan that cannot be parsed or is not in this
// build, a gate without a limit.
Result<GateCase> ParseGateCase(const GateFile& file);

// All cases of the embedded folder, or of `folder` if it is not empty; only those in `names` unless
// that is empty. Refuses two cases of one name, and a name that is no case.
Result<std::vector<GateCase>> LoadGateCases(const std::string& folder,
                                            const std::vector<std::string>& names);

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_GATE_CASE_H_
