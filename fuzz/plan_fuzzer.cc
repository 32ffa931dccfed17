// Plans from strangers: no input may crash a parser, and what parses must print and parse again to
// the same value, in the text form and in the JSON form. Each input is tried as both.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "plan/resolved_plan.h"
#include "varve/plan.h"

namespace {

using varve::Plan;
using varve::Result;

// Printing may be longer than the input (presets, escapes); below this size it stays within the
// parsers' limit of 64 KiB.
constexpr size_t kMaxRoundTripBytes = 8 << 10;

void CheckRoundTrips(const Plan& plan) {
  Result<Plan> from_text = varve::ParsePlan(varve::PrintPlan(plan));
  if (!from_text.ok() || !(*from_text == plan)) std::abort();
  Result<Plan> from_json = varve::ParsePlanJson(varve::PrintPlanJson(plan));
  if (!from_json.ok() || !(*from_json == plan)) std::abort();
}

void Resolve(const Plan& plan) {
  varve::CacheShape shape;
  shape.num_layers = 8;
  shape.num_kv_heads = 2;
  shape.key_dim = 64;
  shape.value_dim = 64;
  Result<varve::ResolvedPlan> resolved = varve::ResolvePlan(plan, shape);
  if (!resolved.ok()) {
    if (resolved.status().code() == varve::StatusCode::kInternal) std::abort();
    return;
  }
  for (const varve::LayerForm& layer : resolved->layers) {
    if (layer.open_rung == nullptr || layer.stages.empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const Result<Plan>& plan : {varve::ParsePlan(input), varve::ParsePlanJson(input)}) {
    if (!plan.ok()) {
      if (plan.status().message().empty()) std::abort();
      continue;
    }
    if (size > kMaxRoundTripBytes) continue;
    CheckRoundTrips(*plan);
    Resolve(*plan);
  }
  return 0;
}
