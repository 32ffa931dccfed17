#include "serve/engine/batch_engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/generate.h"
#include "runtime/model_cache.h"
#include "serve/engine/step_scheduler.h"

namespace varve::serve {
namespace {

constexpr std::chrono::microseconds kFetchPoll{300};
// Pages that are put to rest between two steps: as long as somebody waits for the next step, and
// else.
constexpr size_t kBusyPages = 1;
constexpr size_t kIdlePages = 8;

}  // namespace

BatchEngine::BatchEngine(std::shared_ptr<const DecoderModel> model, const Tokenizer& tokenizer,
                         EngineOptions options, ByteEstimate estimate)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      context_(options_.context > 0 ? options_.context : model_->context()),
      estimate_(std::move(estimate)),
      pool_(MakePagePool(options_.cache_bytes)),
      slots_(static_cast<size_t>(options_.num_slots)),
      logits_(static_cast<size_t>(kFewTokens) * static_cast<size_t>(model_->vocab_size())),
      crowded_(options_.crowded_pause) {}

BatchEngine::~BatchEngine() = default;

Result<std::unique_ptr<BatchEngine>> BatchEngine::Create(
    const std::shared_ptr<const DecoderModel>& model, const Tokenizer& tokenizer,
    Executor& executor, const EngineOptions& options) {
  CacheOptions cache_options = CacheOptionsFor(*model);
  const PlanResources resources{.codebook = cache_options.codebook,
                                .compressor = cache_options.compressor,
                                .model_fingerprint = model->fingerprint()};
  VARVE_ASSIGN_OR_RETURN(ByteEstimate estimate,
                         ByteEstimate::Create(options.plan, model->cache_shape(), resources));
  std::unique_ptr<BatchEngine> engine(
      new BatchEngine(model, tokenizer, options, std::move(estimate)));
  cache_options.plan = options.plan;
  cache_options.executor = &executor;
  cache_options.pool = engine->pool_;
  VARVE_ASSIGN_OR_RETURN(engine->cache_,
                         Cache::Create(model->cache_shape(), std::move(cache_options)));
  engine->runner_ = model->MakeRunner(executor, options.precision);
  Status shared = Cacheable(options.plan);
  if (!options.reuse_prefixes) shared = FailedPrecondition("switched off");
  if (!shared.ok()) {
    if (!options.tiers.empty())
      return FailedPrecondition(fmt::format("a disk cache or Redis: {}", shared.message()));
    engine->prefix_note_ = shared.message();
    return engine;
  }
  const int page_tokens = engine->cache_->shape().page_tokens;
  engine->keys_.emplace(model->fingerprint(), PrintPlan(options.plan), page_tokens);
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<PageTiers> tiers, OpenTiers(options.tiers));
  if (!tiers->empty()) {
    engine->tiers_ =
        std::make_unique<PrefixTiers>(*engine->cache_, std::move(tiers), options.tiers.queue_bytes);
  }
  engine->prefixes_ = std::make_unique<PrefixCache>(*engine->cache_, engine->MakePrefixOptions());
  if (options.reuse_generated) {
    engine->ends_.emplace(*engine->cache_, *engine->prefixes_,
                          static_cast<size_t>(options.num_slots),
                          engine->estimate_.pages_keep_their_rung());
  }
  return engine;
}

PrefixOptions BatchEngine::MakePrefixOptions() {
  PrefixOptions prefix{.order = options_.eviction,
                       .page_bytes = static_cast<double>(estimate_.page_bytes())};
  if (estimate_.rest_page_bytes() > 0) prefix.idle_s = options_.idle_s;
  for (const LayerRule& rule : options_.plan.rules) prefix.packs = prefix.packs || rule.pack;
  if (tiers_ == nullptr) return prefix;
  prefix.spill_s = options_.spill_s;
  if (options_.tier_writes == TierWrites::kLeaving) {
    prefix.before_eviction = [this](SequenceId sequence, size_t page, const PageKey& key) {
      tiers_->KeepPage(sequence, page, key, UsPerPage());
    };
  }
  return prefix;
}

Status BatchEngine::Check(const CompletionRequest& request) const {
  VARVE_RETURN_IF_ERROR(CheckSamplerOptions(request.sampler));
  VARVE_RETURN_IF_ERROR(CheckPrompt(request.prompt, 0, context_, model_->vocab_size()));
  return Status();
}

void BatchEngine::EndWaiting(const QueuedRequest& queued, FinishReason reason,
                             const Status& error) {
  ++(reason == FinishReason::kCancelled ? counters_.cancelled : counters_.refused);
  AnswerEnd end;
  end.reason = reason;
  end.error = error;
  end.prompt_tokens = static_cast<int64_t>(queued.request.prompt.size());
  end.times.queue_us = queued.since_arrival.us();
  queued.channel->Push(
      {.choice = queued.request.choice, .text = {}, .token = {}, .end = std::move(end)});
}

void BatchEngine::Add(CompletionRequest request, std::shared_ptr<AnswerChannel> channel) {
  ++counters_.requests;
  QueuedRequest queued{
      .request = std::move(request), .channel = std::move(channel), .arrival = ++arrivals_};
  Status refused = Check(queued.request);
  if (refused.ok() && waiting_.size() >= static_cast<size_t>(options_.max_waiting)) {
    refused = FailedPrecondition(fmt::format("queue: {} requests wait, the limit is {}",
                                             waiting_.size(), options_.max_waiting));
  }
  if (!refused.ok()) return EndWaiting(queued, FinishReason::kError, refused);
  if (prefixes_ != nullptr) {
    // The last token is always computed: its logits are wanted.
    const std::span<const int32_t> prompt(queued.request.prompt);
    queued.keys = keys_->Of(queued.request.tenant, prompt.first(prompt.size() - 1));
    FetchPages(queued);
  }
  waiting_.push_back(std::move(queued));
}

void BatchEngine::DropCancelled() {
  std::erase_if(waiting_, [this](const QueuedRequest& queued) {
    if (!queued.channel->cancelled()) return false;
    if (queued.fetch.pages != nullptr) queued.fetch.pages->Cancel();
    EndWaiting(queued, FinishReason::kCancelled, Status());
    return true;
  });
  for (const auto& running : running_) {
    if (running->queued().channel->cancelled()) running->End(FinishReason::kCancelled);
  }
  RemoveEnded();
}

bool BatchEngine::Step() {
  if (ends_) ends_->DropOlderThan(Now() - ConversationEnds::kSeconds);
  DropCancelled();
  Admit();
  if (running_.empty()) {
    // Those who wait do so for pages of a tier.
    if (!waiting_.empty()) std::this_thread::sleep_for(kFetchPoll);
    return TendIdle(kIdlePages) || !waiting_.empty();
  }
  DecodeAll();
  RemoveEnded();
  ReadChunk();
  RemoveEnded();
  TendIdle(kBusyPages);
  return true;
}

void BatchEngine::DecodeAll() {
  std::vector<RunningRequest*> writing;
  for (const auto& running : running_) {
    if (running->is_writing()) writing.push_back(running.get());
  }
  for (size_t begin = 0; begin < writing.size(); begin += kFewTokens) {
    const size_t count = std::min<size_t>(kFewTokens, writing.size() - begin);
    DecodeGroup({writing.data() + begin, count});
  }
}

void BatchEngine::DecodeGroup(std::span<RunningRequest*> group) {
  const Timer timer;
  std::vector<DecodeEntry> entries;
  uint64_t growth = 0;
  for (const RunningRequest* running : group) {
    entries.push_back({running->sequence, running->tokens().back()});
    growth += estimate_.Bytes(running->fed + 1) -
              std::min(estimate_.Bytes(running->fed + 1), estimate_.Bytes(running->fed));
  }
  MakeRoom(growth);
  const Status decoded = runner_->Decode(*cache_, entries, logits_.data());
  if (!decoded.ok()) {
    // Whoever came last gives way; the others try again in the next step.
    const bool is_full = decoded.code() == StatusCode::kOutOfMemory;
    if (is_full) return group.back()->End(FinishReason::kError, decoded);
    for (RunningRequest* running : group) running->End(FinishReason::kError, decoded);
    return;
  }
  const auto vocab = static_cast<size_t>(model_->vocab_size());
  for (size_t i = 0; i < group.size(); ++i) {
    ++group[i]->fed;
    counters_.longest = std::max(counters_.longest, static_cast<uint64_t>(group[i]->fed));
    group[i]->Take({logits_.data() + i * vocab, vocab});
  }
  ++counters_.decode_steps;
  counters_.decode_sequences += group.size();
  counters_.tokens += group.size();
  counters_.decode_s += timer.seconds();
}

void BatchEngine::ReadChunk() {
  std::vector<ReadingPrompt> reading;
  bool others_write = false;
  for (size_t i = 0; i < running_.size(); ++i) {
    const RunningRequest& running = *running_[i];
    if (running.is_writing()) others_write = true;
    if (running.is_reading()) {
      reading.push_back({i, running.queued().arrival, running.fed - running.cached_tokens});
    }
  }
  const std::optional<size_t> next = NextReader(reading, turn_++);
  if (!next) return;
  RunningRequest& running = *running_[*next];
  const int64_t most = others_write ? options_.chunk_tokens : kMaxForwardTokens;
  const int64_t end =
      ChunkEnd(running.fed, running.prompt_tokens(), cache_->shape().page_tokens, most);
  const Status read = ReadTokens(running, end);
  if (!read.ok()) running.End(FinishReason::kError, read);
}

Status BatchEngine::ReadTokens(RunningRequest& running, int64_t end) {
  const Timer timer;
  const int64_t begin = running.fed;
  const bool is_last = end == running.prompt_tokens();
  MakeRoom(estimate_.Bytes(end) - std::min(estimate_.Bytes(end), estimate_.Bytes(begin)));
  const std::span<const int32_t> tokens(running.tokens());
  VARVE_RETURN_IF_ERROR(
      runner_->Forward(*cache_, running.sequence,
                       tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                       is_last ? Logits::kLast : Logits::kNone, logits_.data()));
  running.fed = end;
  counters_.longest = std::max(counters_.longest, static_cast<uint64_t>(end));
  counters_.prompt_s += timer.seconds();
  running.reading_s += timer.seconds();
  // Short pieces take longer by the token than what this is used for.
  if (end - begin >= cache_->shape().page_tokens || us_per_prompt_token_ == 0)
    us_per_prompt_token_ = timer.us() / static_cast<double>(end - begin);
  KeepPages(running, end);
  if (!is_last) return Status();
  if (running.queued().is_crowded) crowded_.End(Now(), running.reading_s);
  VARVE_RETURN_IF_ERROR(cache_->EndPrompt(running.sequence));
  counters_.prompt_tokens += static_cast<uint64_t>(running.prompt_tokens());
  counters_.prompt_tokens_cached += static_cast<uint64_t>(running.cached_tokens);
  ++counters_.tokens;
  running.Take({logits_.data(), static_cast<size_t>(model_->vocab_size())});
  return Status();
}

void BatchEngine::KeepPages(RunningRequest& running, int64_t num_tokens) {
  if (prefixes_ == nullptr || !running.request().reuse_prefix) return;
  const std::span<const int32_t> tokens(running.tokens());
  const std::vector<PageKey> keys =
      keys_->Of(running.request().tenant, tokens.first(static_cast<size_t>(num_tokens)));
  if (keys.empty()) return;
  const Result<PrefixNode*> kept =
      prefixes_->Keep(running.sequence, keys, UsPerPage(), Now(), running.pin);
  // Without memory for tables nothing is kept; the answer does not depend on it.
  if (kept.ok()) running.pin = *kept;
  if (tiers_ != nullptr && options_.tier_writes == TierWrites::kComputed) {
    running.pages_in_tiers =
        tiers_->Keep(running.sequence, keys, running.pages_in_tiers, UsPerPage());
  }
}

void BatchEngine::KeepEnd(RunningRequest& running) {
  const bool is_wanted = ends_ && running.request().reuse_prefix && !running.has_failed() &&
                         running.fed > running.prompt_tokens();
  if (!is_wanted) {
    // A sequence that is not there any more has no pages either.
    static_cast<void>(cache_->Free(running.sequence));
    return;
  }
  const std::span<const int32_t> tokens =
      std::span(running.tokens()).first(static_cast<size_t>(running.fed));
  const std::string& tenant = running.request().tenant;
  ends_->Keep({.sequence = running.sequence,
               .tokens = {tokens.begin(), tokens.end()},
               .prompt_tokens = running.prompt_tokens(),
               .tenant = tenant,
               .keys = keys_->Of(tenant, tokens),
               .kept_s = Now()});
}

void BatchEngine::RemoveEnded() {
  for (const auto& running : running_) {
    if (!running->has_ended()) continue;
    const bool was_read = running->fed >= running->prompt_tokens();
    if (running->queued().is_crowded && !was_read) crowded_.End(Now(), running->reading_s);
    if (options_.reuse_generated) KeepPages(*running, running->fed);
    if (running->pin != nullptr) {
      prefixes_->Touch(*running->pin, Now());
      prefixes_->Unpin(running->pin);
    }
    slots_[static_cast<size_t>(running->slot())] = {running->tokens(), running->request().tenant};
    KeepEnd(*running);
    ++(running->queued().channel->cancelled() ? counters_.cancelled : counters_.finished);
  }
  std::erase_if(running_, [](const auto& running) { return running->has_ended(); });
}

void BatchEngine::EndAll(const Status& why) {
  for (const QueuedRequest& queued : waiting_) EndWaiting(queued, FinishReason::kError, why);
  waiting_.clear();
  for (const auto& running : running_) running->End(FinishReason::kError, why);
  RemoveEnded();
  // What leaves memory now goes where it would have gone later.
  if (tiers_ != nullptr && options_.tier_writes == TierWrites::kLeaving) SpillAll();
}

}  // namespace varve::serve
