// PlanCompressors: the learned compressors that a plan names (fold=), for one cache: the file, or
// the one that the cache was given ("shipped"). Each is read once and must fit the shape.
//
// Keeps what it gives. Not thread-safe.

#ifndef VARVE_PLAN_PLAN_COMPRESSORS_H_
#define VARVE_PLAN_PLAN_COMPRESSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "varve/cache.h"
#include "varve/compressor.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

// fold=shipped: the compressor that comes with the model.
inline constexpr char kShippedCompressor[] = "shipped";

class PlanCompressors {
 public:
  // `shipped` may be null.
  PlanCompressors(std::shared_ptr<const Compressor> shipped, const CacheShape& shape)
      : shipped_(std::move(shipped)), shape_(shape) {}

  // Requires rule.fold. The message says what is wrong, without the clause.
  Result<const Compressor*> Get(const LayerRule& rule);

  // Of all that Get has given, each once.
  uint64_t bytes() const;

 private:
  Status CheckFits(const Compressor& compressor, const std::string& name) const;

  std::shared_ptr<const Compressor> shipped_;
  CacheShape shape_;
  // By the values of fold= and fold_order=.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const Compressor>> given_;
};

}  // namespace varve

#endif  // VARVE_PLAN_PLAN_COMPRESSORS_H_
