#include "cli/gate/gate_measure.h"

#include <algorithm>
#include <span>
#include <utility>

#include "varve/properties.h"

namespace varve::cli {
namespace {

int32_t BestToken(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

uint64_t LaneBytes(const GateLane& lane) {
  const CacheStats stats = lane.cache().Stats();
  return stats.bytes_held + stats.bytes_tables;
}

// Raw over packed bytes of the layers [first, end); 1 where nothing was packed.
double PackingRatio(const std::vector<LayerReport>& layers, int first, int end) {
  uint64_t raw = 0;
  uint64_t packed = 0;
  for (int i = first; i < std::min(end, static_cast<int>(layers.size())); ++i) {
    for (const int part : {0, 1}) {
      raw += layers[static_cast<size_t>(i)].lossless_raw_bytes[part];
      packed += layers[static_cast<size_t>(i)].lossless_packed_bytes[part];
    }
  }
  return packed == 0 ? 1 : static_cast<double>(raw) / static_cast<double>(packed);
}

bool PlanPacks(const Plan& plan) {
  return std::ranges::any_of(plan.rules,
                             [](const LayerRule& rule) { return rule.pack.has_value(); });
}

}  // namespace

GateBench::GateBench(std::shared_ptr<const DecoderModel> model, Executor& executor,
                     DecoderRunner& runner, GatePrompt prompt, std::function<bool()> go_on)
    : model_(std::move(model)),
      executor_(executor),
      runner_(runner),
      prompt_(std::move(prompt)),
      go_on_(std::move(go_on)) {}

Result<std::unique_ptr<GateBench>> GateBench::Make(std::shared_ptr<const DecoderModel> model,
                                                   Executor& executor, DecoderRunner& runner,
                                                   GatePrompt prompt, std::function<bool()> go_on) {
  std::unique_ptr<GateBench> bench(
      new GateBench(std::move(model), executor, runner, std::move(prompt), std::move(go_on)));
  VARVE_RETURN_IF_ERROR(bench->Prepare());
  return bench;
}

Status GateBench::Prepare() {
  VARVE_ASSIGN_OR_RETURN(baseline_, GateLane::Make(*model_, Plan(), executor_));
  VARVE_ASSIGN_OR_RETURN(again_, GateLane::Make(*model_, Plan(), executor_));
  for (GateTurn& turn : prompt_.turns) {
    VARVE_RETURN_IF_ERROR(baseline_->Read(runner_, turn.tokens, go_on_));
    VARVE_RETURN_IF_ERROR(WriteReply(&turn));
  }
  baseline_bytes_ = LaneBytes(*baseline_);
  return ReadAll(*again_);
}

Status GateBench::WriteReply(GateTurn* turn) {
  const auto count = static_cast<size_t>(turn->reply_tokens);
  turn->reply.resize(std::min(turn->reply.size(), count));
  for (size_t i = 0; i < count; ++i) {
    if (i == turn->reply.size()) turn->reply.push_back(BestToken(baseline_->logits()));
    VARVE_RETURN_IF_ERROR(baseline_->Decode(runner_, {&turn->reply[i], 1}).status());
    if (!go_on_()) return FailedPrecondition("stopped");
  }
  return Status();
}

Status GateBench::ReadAll(GateLane& lane) {
  for (const GateTurn& turn : prompt_.turns) {
    VARVE_RETURN_IF_ERROR(lane.Read(runner_, turn.tokens, go_on_));
    VARVE_RETURN_IF_ERROR(lane.Decode(runner_, turn.reply).status());
  }
  return Status();
}

Result<GateLane*> GateBench::TwinOf(const Plan& plan) {
  const Plan plain = WithoutPacking(plan);
  std::unique_ptr<GateLane>& twin = twins_[PrintPlan(plain)];
  if (twin == nullptr) {
    VARVE_ASSIGN_OR_RETURN(std::unique_ptr<GateLane> lane,
                           GateLane::Make(*model_, plain, executor_));
    VARVE_RETURN_IF_ERROR(ReadAll(*lane));
    twin = std::move(lane);
  }
  return twin.get();
}

Status GateBench::TimeBlock(GateLane& lane, std::span<const int32_t> tokens, size_t first,
                            SpeedBlock* block, Status* plan_status) {
  GateLane* const lanes[] = {baseline_.get(), &lane, again_.get()};
  double* const times[] = {&block->baseline_us, &block->plan_us, &block->again_us};
  for (size_t i = 0; i < std::size(lanes); ++i) {
    const size_t at = (first + i) % std::size(lanes);
    Result<double> us = lanes[at]->Decode(runner_, tokens);
    if (us.ok()) {
      *times[at] = *us;
    } else if (lanes[at] == &lane) {
      *plan_status = us.status();
      return Status();
    } else {
      return us.status();
    }
  }
  return go_on_() ? Status() : FailedPrecondition("stopped");
}

Status GateBench::TimeReply(GateLane& lane, const GateTurn& turn, std::vector<SpeedBlock>* blocks,
                            Status* plan_status) {
  std::span<const int32_t> reply = turn.reply;
  // The first token is for warming up; what does not fill a block is fed all the same.
  for (bool timed = false; !reply.empty() && plan_status->ok(); timed = true) {
    const size_t count = std::min<size_t>(timed ? kGateBlockTokens : 1, reply.size());
    SpeedBlock block;
    VARVE_RETURN_IF_ERROR(TimeBlock(lane, reply.first(count), blocks->size(), &block, plan_status));
    if (count == kGateBlockTokens && plan_status->ok()) blocks->push_back(block);
    reply = reply.subspan(count);
  }
  return Status();
}

Status GateBench::RunTurns(GateLane& lane, PromptFigures* result) {
  const auto first_tokens = static_cast<int64_t>(prompt_.turns[0].tokens.size());
  VARVE_RETURN_IF_ERROR(baseline_->CutTo(first_tokens));
  VARVE_RETURN_IF_ERROR(again_->CutTo(first_tokens));
  for (const GateTurn& turn : prompt_.turns) {
    result->status = lane.Read(runner_, turn.tokens, go_on_);
    if (!go_on_()) return FailedPrecondition("stopped");
    if (!result->status.ok()) return Status();
    if (&turn != &prompt_.turns[0]) {
      VARVE_RETURN_IF_ERROR(baseline_->Read(runner_, turn.tokens, go_on_));
      VARVE_RETURN_IF_ERROR(again_->Read(runner_, turn.tokens, go_on_));
    }
    VARVE_RETURN_IF_ERROR(TimeReply(lane, turn, &result->blocks, &result->status));
    if (!result->status.ok()) return Status();
  }
  return Status();
}

Result<PromptFigures> GateBench::Measure(const GateCase& gate_case, GateFault fault) {
  PromptFigures result;
  result.prompt = prompt_.name;
  result.bucket = prompt_.bucket;
  result.prompt_tokens = prompt_.prompt_tokens();
  result.end_tokens = prompt_.end_tokens();
  VARVE_ASSIGN_OR_RETURN(const std::unique_ptr<GateLane> lane,
                         GateLane::Make(*model_, gate_case.plan, executor_, fault));
  VARVE_RETURN_IF_ERROR(RunTurns(*lane, &result));
  if (!result.status.ok()) return result;
  // Comparing reads every page, and that is work of its own: figures are taken before.
  TakeFigures(*lane, &result);
  if (PlanPacks(gate_case.plan)) {
    const Result<GateLane*> twin = TwinOf(gate_case.plan);
    if (!go_on_()) return FailedPrecondition("stopped");
    result.status = twin.ok() ? CompareLanes(*lane, **twin) : twin.status();
  }
  if (!result.status.ok()) result.figures["kv_content_consistency_pass"] = 0;
  VARVE_ASSIGN_OR_RETURN(result.spans, lane->Spans());
  return result;
}

void GateBench::TakeFigures(const GateLane& lane, PromptFigures* result) const {
  std::map<std::string, double>& figures = result->figures;
  for (const Property& property : Properties(lane.cache())) {
    if (!property.is_text()) figures[property.name] = property.number();
  }
  const int layers = lane.cache().shape().num_layers;
  const uint64_t bytes = LaneBytes(lane);
  result->layers = lane.cache().Report().by_layer;
  result->memory = lane.memory().ByState();
  result->policy_idle = PolicyIdleReason(lane.cache().plan(), result->end_tokens);
  result->front_idle = PackingIdleReason(lane, 0, kFrontLayers);
  result->rest_idle = PackingIdleReason(lane, kFrontLayers, layers);
  figures["cache_bytes"] = static_cast<double>(bytes);
  figures["baseline_bytes"] = static_cast<double>(baseline_bytes_);
  figures["cache_ratio"] = static_cast<double>(baseline_bytes_) / static_cast<double>(bytes);
  // A property that is not there stays missing: the gate says so.
  if (figures.contains("lossy_ratio") && figures.contains("lossy_ratio_run")) {
    figures["lossy_best"] = std::max(figures["lossy_ratio"], figures["lossy_ratio_run"]);
  }
  figures["lossless_front_ratio"] = PackingRatio(result->layers, 0, kFrontLayers);
  figures["lossless_rest_ratio"] = PackingRatio(result->layers, kFrontLayers, layers);
  figures["lossless_selected_value"] = figures["lossless_front_ratio"];
  // The specification's names at the level of the gate.
  for (const char* name : {"async_wait_headroom_us", "async_wait_headroom_ratio"}) {
    const auto at = figures.find(std::string("lossless_") + name);
    if (at != figures.end()) figures[name] = at->second;
  }
  if (result->blocks.empty()) return;
  const SpeedFigures speed = SummariseSpeed(result->blocks);
  figures["decode_gate_tps"] = speed.tokens_per_s;
  figures["decode_drop_ratio"] = speed.drop;
}

}  // namespace varve::cli
