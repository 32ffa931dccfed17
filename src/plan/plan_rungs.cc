#include "plan/plan_rungs.h"

#include <algorithm>

#include <fmt/format.h>

#include "plan/plan_values.h"

namespace varve {

PlanRungs::PlanRungs(std::shared_ptr<const Codebook> codebook, uint64_t model_fingerprint,
                     const CacheShape& shape)
    : shape_(shape), model_fingerprint_(model_fingerprint), codebook_(std::move(codebook)) {}

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
    VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const Codebook> loaded, LoadCodebook(*rule.codebook));
    VARVE_RETURN_IF_ERROR(CheckFits(*loaded, *rule.codebook));
    file = loaded;
  }
  return file;
}

Result<const Rung*> PlanRungs::Get(const std::string& name, Part part, const LayerRule& rule) {
  const int dim = part == Part::kKey ? shape_.key_dim : shape_.value_dim;
  const std::optional<PqSize> size = ParsePqName(name, dim);
  if (!size) {
    const Rung* rung = FindRung(name, dim);
    if (rung == nullptr) return Internal(fmt::format("rung {} is missing", name));
    VARVE_RETURN_IF_ERROR(rung->CheckDim(dim));
    return rung;
  }
  VARVE_RETURN_IF_ERROR(PqRung(*size).CheckDim(dim));
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const Codebook> codebook, CodebookOf(rule));
  auto found = std::find_if(made_.begin(), made_.end(), [&](const Made& made) {
    return made.rung->codebook() == codebook.get() && made.rung->size() == *size;
  });
  if (found == made_.end()) {
    auto rung = std::make_unique<const PqRung>(*size, codebook);
    VARVE_RETURN_IF_ERROR(rung->CheckPart(part, dim));
    made_.push_back({std::move(rung), false, false});
    found = made_.end() - 1;
  }
  VARVE_RETURN_IF_ERROR(found->rung->CheckPart(part, dim));
  (part == Part::kKey ? found->keys : found->values) = true;
  return found->rung.get();
}

Status PlanRungs::SettleName(Part part, bool both, const LayerRule& rule, std::string* name) {
  Status status = Get(*name, part, rule).status();
  if (status.ok() && both) status = Get(*name, Part::kValue, rule).status();
  if (status.ok()) return Status();
  if (!rule.fallback) return status;
  const int last = rule.last_layer == -1 ? shape_.num_layers - 1 : rule.last_layer;
  for (const Part each : {Part::kKey, Part::kValue}) {
    if (each != part && !both) continue;
    const int dim = each == Part::kKey ? shape_.key_dim : shape_.value_dim;
    const std::optional<PqSize> size = ParsePqName(*name, dim);
    Result<const Rung*> instead = Get(*rule.fallback, each, rule);
    if (!instead.ok()) {
      return Status(instead.status().code(),
                    fmt::format("{}; nor can fallback={}: {}", status.message(), *rule.fallback,
                                instead.status().message()));
    }
    fallbacks_.push_back({rule.first_layer, last, each, size ? PqName(*size) : *name,
                          std::string((*instead)->name()), status.message()});
  }
  *name = *rule.fallback;
  return Status();
}

Result<Plan> PlanRungs::Settle(const Plan& plan) {
  Plan settled = plan;
  for (LayerRule& rule : settled.rules) {
    const size_t fallbacks_before = fallbacks_.size();
    const auto settle = [&](Part part, bool both, const std::string& clause,
                            std::string* name) -> Status {
      const Status status = SettleName(part, both, rule, name);
      if (status.ok()) return status;
      return Status(status.code(), fmt::format("plan: layers {}, clause \"{}\": {}",
                                               LayersText(rule), clause, status.message()));
    };
    if (rule.k) {
      VARVE_RETURN_IF_ERROR(settle(Part::kKey, false, "k=" + *rule.k, &*rule.k));
    }
    if (rule.v) {
      VARVE_RETURN_IF_ERROR(settle(Part::kValue, false, "v=" + *rule.v, &*rule.v));
    }
    // A ladder is of the parts that k= and v= leave open.
    const std::string age = "age=" + AgeText(rule.age);
    for (AgeStep& step : rule.age) {
      VARVE_RETURN_IF_ERROR(
          settle(rule.k ? Part::kValue : Part::kKey, !rule.k && !rule.v, age, &step.rung));
    }
    rule.fallback.reset();
    const auto is_pq = [](const std::optional<std::string>& name) {
      return name && IsPqName(*name);
    };
    const bool any_pq = is_pq(rule.k) || is_pq(rule.v) ||
                        std::any_of(rule.age.begin(), rule.age.end(),
                                    [](const AgeStep& step) { return IsPqName(step.rung); });
    // A codebook whose every use has fallen back is no clause without meaning.
    if (fallbacks_.size() > fallbacks_before && !any_pq) rule.codebook.reset();
  }
  // What was only tried is not in use.
  for (Made& made : made_) made.keys = made.values = false;
  return settled;
}

uint64_t PlanRungs::codebook_bytes() const {
  uint64_t bytes = 0;
  for (const Made& made : made_) {
    if (made.keys) bytes += made.rung->TableBytes(Part::kKey);
    if (made.values) bytes += made.rung->TableBytes(Part::kValue);
  }
  return bytes;
}

uint64_t CodebookHashOf(const Rung& rung) {
  const auto* pq = dynamic_cast<const PqRung*>(&rung);
  return pq != nullptr ? pq->codebook_hash() : 0;
}

}  // namespace varve
