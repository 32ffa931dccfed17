// PlanSpace: the plans that a solver chooses among, and what they cost in bytes.
//
// A plan of the space gives every layer a pair of rungs, one for K and one for V, out of a list of
// candidates, and all layers the same exact= and open=. Bytes are those of one sequence of a given
// length, all-in: slots of pages, exact and open tokens, tables. They add up over layers. Codebooks
// of rungs that have one are constants of the model and, as everywhere, in no other figure. A
// value; thread-safe.

#ifndef VARVE_RUNTIME_SOLVE_PLAN_SPACE_H_
#define VARVE_RUNTIME_SOLVE_PLAN_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/plan_estimate.h"
#include "varve/status.h"

namespace varve {

// The tokens that stay in the open rung, whatever the rungs.
struct ExactTokens {
  int64_t first = 0;  // exact=
  int64_t last = 0;   // open=
  bool operator==(const ExactTokens&) const = default;
};

class PlanSpace {
 public:
  // `rungs`: names of candidates, each once. `num_tokens`: the length that bytes are of.
  PlanSpace(const CacheShape& shape, PlanResources resources, std::vector<std::string> rungs,
            int64_t num_tokens, double table_bytes_per_page);

  const std::vector<std::string>& rungs() const { return rungs_; }
  int num_layers() const { return shape_.num_layers; }
  int64_t num_tokens() const { return num_tokens_; }
  uint64_t f16_bytes() const;  // every token of every layer in plain f16

  // Pairs of rungs are numbered; pair p has K in rung KeyRung(p) and V in rung ValueRung(p).
  size_t num_pairs() const { return rungs_.size() * rungs_.size(); }
  size_t KeyRung(size_t pair) const { return pair / rungs_.size(); }
  size_t ValueRung(size_t pair) const { return pair % rungs_.size(); }
  size_t PairOf(size_t key_rung, size_t value_rung) const {
    return key_rung * rungs_.size() + value_rung;
  }

  // Bytes of one layer for each pair, [num_pairs].
  Result<std::vector<uint64_t>> LayerBytes(const ExactTokens& exact) const;
  // `pairs`: [layers]. Neighbouring layers with the same pair become one rule.
  Result<Plan> MakePlan(std::span<const int> pairs, const ExactTokens& exact) const;
  Result<Plan> UniformPlan(size_t pair, const ExactTokens& exact) const;

 private:
  std::string RuleText(size_t pair, const ExactTokens& exact) const;

  CacheShape shape_;
  PlanResources resources_;
  std::vector<std::string> rungs_;
  int64_t num_tokens_;
  double table_bytes_per_page_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SOLVE_PLAN_SPACE_H_
