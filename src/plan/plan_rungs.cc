#include "plan/plan_rungs.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/pinned_name.h"
#include "plan/plan_values.h"

namespace varve {

PlanRungs::PlanRungs(std::shared_ptr<const Codebook> codebook, uint64_t model_fingerprint,
                     const CacheShape& shape, const Kernels& kernels)
    : shape_(shape),
      kernels_(&kernels),
      model_fingerprint_(model_fingerprint),
      codebook_(std::move(codebook)) {}

Status PlanRungs::CheckFits(const Codebook& codebook, const std::string& name) const {
  if (codebook.num_layers != shape_.num_layers) {
    return InvalidArgument(fmt::format("{}: num_layers {} is not {}, the model's", name,
                                       codebook.num_layers, shape_.num_layers));
  }
  if (codebook.num_kv_heads != shape_.num_kv_heads) {
    return InvalidArgument(fmt::format("{}: num_kv_heads {} is not {}, the model's", name,
                                       codebook.num_kv_heads, shape_.num_kv_heads));
  }
  if (codebook.model_fingerprint != 0 && model_fingerprint_ != 0 &&
      codebook.model_fingerprint != model_fingerprint_) {
    return InvalidArgument(fmt::format(
        "{}: model_fingerprint {:016x} (\"{}\") is not {:016x}, that of the model in use", name,
        codebook.model_fingerprint, codebook.model_name, model_fingerprint_));
  }
  return Status();
}

Result<std::shared_ptr<const Codebook>> PlanRungs::CodebookOf(const LayerRule& rule) {
  if (!rule.codebook) {
    if (codebook_ == nullptr) {
      return FailedPrecondition(
          "there is no codebook for this model; train one with `varve codebook train` and name it "
          "with codebook=FILE");
    }
    if (!codebook_checked_) {
      VARVE_RETURN_IF_ERROR(CheckCodebook(*codebook_));
      VARVE_RETURN_IF_ERROR(CheckFits(*codebook_, "codebook"));
      codebook_checked_ = true;
    }
    return codebook_;
  }
  std::shared_ptr<const Codebook>& file = files_[*rule.codebook];
  if (file == nullptr) {
    VARVE_ASSIGN_OR_RETURN(const PinnedName pinned, ParsePinnedName(*rule.codebook));
    VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const Codebook> loaded, LoadCodebook(pinned.name));
    if (pinned.hash) VARVE_RETURN_IF_ERROR(pinned.Check(CodebookHash(*loaded)));
    VARVE_RETURN_IF_ERROR(CheckFits(*loaded, pinned.name));
    file = loaded;
  }
  return file;
}

Status PlanRungs::CheckRung(const std::string& name, Part part, const LayerRule& rule) {
  const int dim = DimOf(part);
  const RungDescriptor* rung = FindRung(name, dim);
  if (rung == nullptr) return Internal(fmt::format("rung {} is missing", name));
  VARVE_RETURN_IF_ERROR(rung->CheckDim(dim));
  if (!rung->needs_codebook()) return Status();
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const Codebook> codebook, CodebookOf(rule));
  return rung->check_codebook(*rung, *codebook, part, dim);
}

Status PlanRungs::SettleName(Part part, bool both, const LayerRule& rule, std::string* name) {
  Status status = CheckRung(*name, part, rule);
  if (status.ok() && both) status = CheckRung(*name, Part::kValue, rule);
  if (status.ok()) return Status();
  if (!rule.fallback) return status;
  const int last = rule.last_layer == -1 ? shape_.num_layers - 1 : rule.last_layer;
  for (const Part each : {Part::kKey, Part::kValue}) {
    if (each != part && !both) continue;
    const Status instead = CheckRung(*rule.fallback, each, rule);
    if (!instead.ok()) {
      return Status(instead.code(), fmt::format("{}; nor can fallback={}: {}", status.message(),
                                                *rule.fallback, instead.message()));
    }
    const auto spelled_out = [&](const std::string& rung_name) {
      const RungDescriptor* rung = FindRung(rung_name, DimOf(each));
      return rung != nullptr ? std::string(rung->name) : rung_name;
    };
    fallbacks_.push_back({rule.first_layer, last, each, spelled_out(*name),
                          spelled_out(*rule.fallback), status.message()});
  }
  *name = *rule.fallback;
  return Status();
}

Status PlanRungs::SettleRule(LayerRule* rule) {
  const size_t fallbacks_before = fallbacks_.size();
  bool uses_codebook = false;
  const auto settle = [&](Part part, bool both, const std::string& clause,
                          std::string* name) -> Status {
    const Status status = SettleName(part, both, *rule, name);
    if (!status.ok()) {
      return Status(status.code(), fmt::format("plan: layers {}, clause \"{}\": {}",
                                               LayersText(*rule), clause, status.message()));
    }
    uses_codebook = uses_codebook || FindRung(*name, DimOf(part))->needs_codebook();
    return Status();
  };
  if (rule->k) VARVE_RETURN_IF_ERROR(settle(Part::kKey, false, "k=" + *rule->k, &*rule->k));
  if (rule->v) VARVE_RETURN_IF_ERROR(settle(Part::kValue, false, "v=" + *rule->v, &*rule->v));
  // A ladder is of the parts that k= and v= leave open.
  const std::string age = "age=" + AgeText(rule->age);
  for (AgeStep& step : rule->age) {
    VARVE_RETURN_IF_ERROR(
        settle(rule->k ? Part::kValue : Part::kKey, !rule->k && !rule->v, age, &step.rung));
  }
  if (rule->idle_k)
    VARVE_RETURN_IF_ERROR(settle(Part::kKey, false, "idle_k=" + *rule->idle_k, &*rule->idle_k));
  if (rule->idle_v)
    VARVE_RETURN_IF_ERROR(settle(Part::kValue, false, "idle_v=" + *rule->idle_v, &*rule->idle_v));
  rule->fallback.reset();
  // Where every rung that needs the codebook has fallen back, codebook= is not a mistake.
  if (fallbacks_.size() > fallbacks_before && !uses_codebook) rule->codebook.reset();
  return Status();
}

Result<Plan> PlanRungs::Settle(const Plan& plan) {
  Plan settled = plan;
  for (LayerRule& rule : settled.rules) VARVE_RETURN_IF_ERROR(SettleRule(&rule));
  return settled;
}

const Rung* PlanRungs::Bound(const RungDescriptor* rung, Part part, const LayerForm& layer) {
  const std::shared_ptr<const Codebook> codebook =
      rung->needs_codebook() ? layer.codebook : nullptr;
  auto found = std::find_if(made_.begin(), made_.end(), [&](const Made& made) {
    return &made.rung->descriptor() == rung && made.codebook == codebook;
  });
  if (found == made_.end()) {
    made_.push_back({codebook, rung->Make({kernels_, codebook})});
    found = made_.end() - 1;
  }
  (part == Part::kKey ? found->keys : found->values) = true;
  return found->rung.get();
}

std::vector<LayerPlan> PlanRungs::Bind(std::span<const LayerForm> layers) {
  std::vector<LayerPlan> bound;
  for (const LayerForm& layer : layers) {
    LayerPlan plan;
    static_cast<LayerTerms&>(plan) = layer;
    Bound(layer.open_rung, Part::kKey, layer);
    plan.open_rung = Bound(layer.open_rung, Part::kValue, layer);
    for (const LayerForm::Stage& stage : layer.stages) {
      plan.stages.push_back(
          {Bound(stage.k, Part::kKey, layer), Bound(stage.v, Part::kValue, layer), stage.from_age});
    }
    bound.push_back(std::move(plan));
  }
  return bound;
}

uint64_t PlanRungs::codebook_bytes() const {
  uint64_t bytes = 0;
  for (const Made& made : made_) {
    if (made.keys) bytes += made.rung->TableBytes(Part::kKey);
    if (made.values) bytes += made.rung->TableBytes(Part::kValue);
  }
  return bytes;
}

}  // namespace varve
