// PlanRungs: the rungs that a plan names, for one cache. Those of the process (float, block) are
// found; pq rungs are made from a codebook: the file that the plan names, or the cache's own.
//
// Where an asked-for rung cannot run and the rule has fallback=RUNG, that takes its place, and the
// use is recorded. Without fallback it is an error that says why.
//
// Owns the rungs it makes and keeps their codebooks: it must outlive every page. Not thread-safe.

#ifndef VARVE_PLAN_PLAN_RUNGS_H_
#define VARVE_PLAN_PLAN_RUNGS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rungs/pq/pq_rung.h"
#include "rungs/rung.h"
#include "varve/cache.h"
#include "varve/codebook.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

class PlanRungs {
 public:
  // `codebook` may be null. `shape` is what codebooks must fit.
  PlanRungs(std::shared_ptr<const Codebook> codebook, uint64_t model_fingerprint,
            const CacheShape& shape);

  // The rung of that name for one part of a rule's layers. The message says what is wrong, without
  // the clause.
  Result<const Rung*> Get(const std::string& name, Part part, const LayerRule& rule);

  // The plan with every fallback that is needed put in place: nothing in it fails in Get. Nothing
  // counts as used by it.
  Result<Plan> Settle(const Plan& plan);

  const std::vector<FallbackUse>& fallbacks() const { return fallbacks_; }
  // Of the tables behind what Get has given, each once.
  uint64_t codebook_bytes() const;

 private:
  Result<std::shared_ptr<const Codebook>> CodebookOf(const LayerRule& rule);
  Status CheckFits(const Codebook& codebook, const std::string& name) const;
  Status SettleName(Part part, bool both, const LayerRule& rule, std::string* name);

  CacheShape shape_;
  uint64_t model_fingerprint_;
  std::shared_ptr<const Codebook> codebook_;
  bool codebook_checked_ = false;
  std::map<std::string, std::shared_ptr<const Codebook>> files_;
  struct Made {
    std::unique_ptr<const PqRung> rung;
    bool keys = false;  // in use for
    bool values = false;
  };
  std::vector<Made> made_;
  std::vector<FallbackUse> fallbacks_;
};

// The hash of the codebook behind a rung; 0 without one.
uint64_t CodebookHashOf(const Rung& rung);

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_RUNGS_H_
