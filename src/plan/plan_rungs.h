// PlanRungs: the codebooks and rungs that a plan names, for one cache. It finds the codebook of a
// rule (the file that the rule names, or the cache's own), puts fallback=RUNG in place where an
// asked-for rung cannot run, and makes the rungs, bound to the cache's kernels.
//
// Owns the rungs it makes and keeps their codebooks: it must outlive every page. Not thread-safe.

#ifndef VARVE_PLAN_PLAN_RUNGS_H_
#define VARVE_PLAN_PLAN_RUNGS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/layer_plan.h"
#include "rungs/rung.h"
#include "varve/cache.h"
#include "varve/codebook.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

class PlanRungs {
 public:
  // `codebook` may be null. `shape` is what codebooks must fit. `kernels` lives for the process.
  PlanRungs(std::shared_ptr<const Codebook> codebook, uint64_t model_fingerprint,
            const CacheShape& shape, const Kernels& kernels = ActiveKernels());

  // The plan with every fallback that is needed put in place, and recorded. Without fallback= a
  // rung that cannot run is an error that names the clause and says why.
  Result<Plan> Settle(const Plan& plan);

  // The codebook for the rules' rungs that need one. The message says what is wrong, without the
  // clause.
  Result<std::shared_ptr<const Codebook>> CodebookOf(const LayerRule& rule);

  // The layers with rungs in place of descriptors. They come from a plan that Settle has given.
  std::vector<LayerPlan> Bind(std::span<const LayerForm> layers);

  const std::vector<FallbackUse>& fallbacks() const { return fallbacks_; }
  // Of the tables behind what Bind has given, each once.
  uint64_t codebook_bytes() const;

 private:
  Status CheckFits(const Codebook& codebook, const std::string& name) const;
  // Ok if the rung can store that part of the rule's layers; else the reason, without the clause.
  Status CheckRung(const std::string& name, Part part, const LayerRule& rule);
  Status SettleName(Part part, bool both, const LayerRule& rule, std::string* name);
  Status SettleRule(LayerRule* rule);
  const Rung* Bound(const RungDescriptor* rung, Part part, const LayerForm& layer);
  int DimOf(Part part) const { return part == Part::kKey ? shape_.key_dim : shape_.value_dim; }

  CacheShape shape_;
  const Kernels* kernels_;
  uint64_t model_fingerprint_;
  std::shared_ptr<const Codebook> codebook_;
  bool codebook_checked_ = false;
  std::map<std::string, std::shared_ptr<const Codebook>> files_;
  struct Made {
    std::shared_ptr<const Codebook> codebook;  // null where the rung needs none
    std::unique_ptr<const Rung> rung;
    bool keys = false;  // in use for
    bool values = false;
  };
  std::vector<Made> made_;
  std::vector<FallbackUse> fallbacks_;
};

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_RUNGS_H_
