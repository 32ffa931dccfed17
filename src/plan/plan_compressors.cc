#include "plan/plan_compressors.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/pinned_name.h"

namespace varve {

Status PlanCompressors::CheckFits(const Compressor& compressor, const std::string& name) const {
  const auto differs = [&name](const char* field, int value, const char* what, int expected) {
    return InvalidArgument(
        fmt::format("{}: {} {} is not {}, the model's {}", name, field, value, expected, what));
  };
  if (compressor.num_layers() != shape_.num_layers)
    return differs("num_layers", compressor.num_layers(), "layers", shape_.num_layers);
  if (compressor.num_heads != 0 && compressor.num_heads != shape_.num_kv_heads)
    return differs("num_heads", compressor.num_heads, "KV heads", shape_.num_kv_heads);
  if (compressor.head_dim != shape_.key_dim)
    return differs("head_dim", compressor.head_dim, "key_dim", shape_.key_dim);
  if (compressor.head_dim != shape_.value_dim)
    return differs("head_dim", compressor.head_dim, "value_dim", shape_.value_dim);
  return Status();
}

Result<const Compressor*> PlanCompressors::Get(const LayerRule& rule) {
  std::shared_ptr<const Compressor>& given = given_[{*rule.fold, rule.fold_order.value_or("")}];
  if (given != nullptr) return given.get();
  VARVE_ASSIGN_OR_RETURN(const PinnedName pinned, ParsePinnedName(*rule.fold));
  std::shared_ptr<const Compressor> found = shipped_;
  if (pinned.name != kShippedCompressor) {
    std::optional<CompressorOrder> order;
    if (rule.fold_order) {
      VARVE_ASSIGN_OR_RETURN(order, ParseCompressorOrder(*rule.fold_order));
    }
    VARVE_ASSIGN_OR_RETURN(found, LoadCompressor(pinned.name, order));
  } else if (rule.fold_order) {
    return InvalidArgument("fold_order= is for a file; leave it out");
  } else if (found == nullptr) {
    return FailedPrecondition(
        "no compressor comes with this model; name a file that `varve fold convert` has made");
  } else {
    VARVE_RETURN_IF_ERROR(CheckCompressor(*found));
  }
  if (pinned.hash) VARVE_RETURN_IF_ERROR(pinned.Check(CompressorHash(*found)));
  VARVE_RETURN_IF_ERROR(CheckFits(*found, pinned.name));
  given = std::move(found);
  return given.get();
}

uint64_t PlanCompressors::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [clauses, compressor] : given_) {
    if (compressor != nullptr) bytes += compressor->bytes();
  }
  return bytes;
}

}  // namespace varve
