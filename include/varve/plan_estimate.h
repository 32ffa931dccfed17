// EstimatePlan: what a plan means and costs, before anything runs: the states that pages of each
// layer range pass through, and the bytes of one sequence at a length. It settles fallback= as
// Cache::Create does.
//
// `bytes` is what the page pool holds: a page takes a slot, rounded up to 256 bytes. The payload in
// it stands beside. Page tables (below 1 % but for tiny pages) are not counted. Thread-safe.

#ifndef VARVE_PLAN_ESTIMATE_H_
#define VARVE_PLAN_ESTIMATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "varve/cache.h"
#include "varve/codebook.h"
#include "varve/compressor.h"
#include "varve/export.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

// What a cache would be given beside the plan; the same fields as in CacheOptions.
struct PlanResources {
  std::shared_ptr<const Codebook> codebook = nullptr;
  std::shared_ptr<const Compressor> compressor = nullptr;
  uint64_t model_fingerprint = 0;
  // Codebooks are taken to be there, and fold= counts nothing: no file is read. For plans whose
  // codebooks are yet to be made.
  bool assumed = false;
};

// Pages of one layer that are in one state.
struct StageCost {
  std::string state;  // "filling", "exact", "open", "sealed", "dropped" or "idle"
  std::string age;    // "0-127", "512-"; empty where it does not matter
  std::string k;      // rung names; empty where dropped
  std::string v;
  int64_t pages = 0;
  int64_t tokens = 0;          // rows in those pages
  uint64_t layer_bytes = 0;    // slots in one layer; a filling page counts whole
  uint64_t layer_payload = 0;  // what of them is rows and scales
};

struct RangeCost {
  int first_layer = 0;
  int last_layer = 0;  // inclusive
  std::vector<StageCost> stages;
  uint64_t bytes = 0;  // all layers of the range
  uint64_t payload = 0;
  // What evict= aims at, in these layers or, with budget=, in all; 0 without it and before its
  // trigger. `bytes` is without it.
  uint64_t policy_bytes = 0;
  bool has_budget = false;
  // idle=: the pages that Cache::Rest brings to that form, those that are open or sealed now; and
  // what all of the range hold then, `bytes` where the layers have no idle=.
  std::optional<StageCost> idle;
  uint64_t idle_bytes = 0;

  uint64_t num_layers() const { return static_cast<uint64_t>(last_layer) - first_layer + 1; }
};

struct PlanCost {
  std::vector<RangeCost> ranges;  // neighbouring layers with the same plan are one range
  int page_tokens = 0;
  uint64_t bytes = 0;
  uint64_t payload = 0;
  uint64_t bytes_f16 = 0;  // every token of every layer in plain f16
  // Of a sequence that is at rest; `bytes` for a plan without idle=.
  uint64_t idle_bytes = 0;
  // Once for the model; 0 where they were assumed.
  uint64_t codebook_bytes = 0;
  uint64_t compressor_bytes = 0;
  std::vector<FallbackUse> fallbacks;  // where fallback= took the place of a rung
  std::vector<std::string> notes;      // what the plan says and runs otherwise, rounded
};

// The cost of one sequence of num_tokens, page by page. Fails as Cache::Create would. fold= counts
// as if all tokens were the prompt.
VARVE_API Result<PlanCost> EstimatePlan(const Plan& plan, const CacheShape& shape,
                                        const PlanResources& resources, int64_t num_tokens);

}  // namespace varve

#endif  // VARVE_PLAN_ESTIMATE_H_
