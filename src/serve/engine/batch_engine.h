// BatchEngine: many requests on one model and one cache, step by step.
//
// A step: requests whose client has gone are dropped, waiting ones get slots, every answer under
// way gets a token (in groups of kFewTokens: step_scheduler.h says why), and one prompt is read a
// chunk further. So a long prompt holds nobody up for longer than a chunk.
//
// Admission is by bytes: a request gets a slot only if all that it and the others can come to need
// (EstimatePlan of prompt and max_tokens) fits into cache_bytes beside the pages that are held;
// pages of the prefix cache make room, the least valuable first. The pool refuses what would pass
// the cap in any case, so the budget holds to the byte; a request that the estimate let in wrongly
// ends with an error, the others go on.
//
// Equal prefixes are computed once: a request waits while another one reads pages that both have,
// and while pages of its prompt are on their way from a tier, which is never longer than computing
// them would take.
//
// Where memory is short of what the conversations under way need, prompts that would push out what
// others have just used wait their turn (CrowdedReads in step_scheduler.h).
//
// Conversations that nobody continues are put to rest, a page or so per step, and may leave memory
// for a tier (batch_idle.cc).
//
// One thread (engine.h has one). No HTTP, no JSON.

#ifndef VARVE_SERVE_ENGINE_BATCH_ENGINE_H_
#define VARVE_SERVE_ENGINE_BATCH_ENGINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/timer.h"
#include "runtime/model/decoder_model.h"
#include "serve/engine/byte_estimate.h"
#include "serve/engine/conversation_ends.h"
#include "serve/engine/engine_snapshot.h"
#include "serve/engine/running_request.h"
#include "serve/engine/step_scheduler.h"
#include "serve/prefix/page_keys.h"
#include "serve/prefix/prefix_cache.h"
#include "serve/prefix/prefix_tiers.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve::serve {

enum class TierWrites { kComputed, kLeaving };

struct EngineOptions {
  Plan plan;
  uint64_t cache_bytes = uint64_t{1} << 30;  // of all pages; > 0
  int num_slots = 8;
  int64_t context = 0;     // positions of a sequence; 0: the model's
  int chunk_tokens = 128;  // of a prompt, while others are answered
  int max_waiting = 256;   // requests without a slot
  bool reuse_prefixes = true;
  // Pages with generated tokens are kept, too. Their rows were computed a token at a time, which
  // rounds otherwise than reading them as a prompt: an answer behind them may take another turn
  // than that of a request which computes everything anew.
  bool reuse_generated = true;
  EvictionOrder eviction = EvictionOrder::kValue;
  ProductPrecision precision = ProductPrecision::kF32;
  TierSettings tiers;  // behind the prefix cache
  // When pages go to the tiers: once they are computed, so that a crash loses none, or when they
  // leave memory, so that nothing is stored twice.
  TierWrites tier_writes = TierWrites::kComputed;
  // Without use, until a conversation is put to rest (idle= in the plan); 0: never.
  double idle_s = 60;
  // Without use, until it leaves memory, once a tier has its pages; 0: only for want of room.
  double spill_s = 0;
  // Between prompts that push out what others have just used, in times of what reading one takes.
  double crowded_pause = 4;
};

class BatchEngine {
 public:
  // Nothing is owned but what the shared pointer holds; tokenizer and executor must outlive this.
  static Result<std::unique_ptr<BatchEngine>> Create(
      const std::shared_ptr<const DecoderModel>& model, const Tokenizer& tokenizer,
      Executor& executor, const EngineOptions& options);
  ~BatchEngine();

  // Why a request can never be answered, if so: its prompt is empty or too long, or it would not
  // fit into the cache if it were alone. Any thread.
  Status Check(const CompletionRequest& request) const;

  // Puts a request in the queue. One that Check refuses, or for which there is no room in the
  // queue, ends at once with an error.
  void Add(CompletionRequest request, std::shared_ptr<AnswerChannel> channel);

  // One step. False: there is nothing to do before SecondsToIdleWork have passed.
  bool Step();
  // Until conversations that nobody uses need something; infinity: nothing falls due.
  double SecondsToIdleWork() const;
  // Ends everything, waiting or running, with an error.
  void EndAll(const Status& why);

  // --- what a slot answered last, in files (batch_slots.cc); for requests of the same tenant ---

  struct SlotFile {
    int64_t num_tokens = 0;  // whole pages
    uint64_t num_bytes = 0;
  };
  // kFailedPrecondition while the slot is busy, kNotFound if it has nothing of that tenant (any
  // more).
  Result<SlotFile> SaveSlot(int slot, const std::string& tenant, const std::string& path);
  // Checks every byte of the file before a page of it is used.
  Result<SlotFile> RestoreSlot(int slot, const std::string& tenant, const std::string& path);
  // The number of tokens that were forgotten.
  Result<int64_t> EraseSlot(int slot, const std::string& tenant);

  int64_t context() const { return context_; }
  const Cache& cache() const { return *cache_; }
  EngineSnapshot Snapshot() const;

 private:
  BatchEngine(std::shared_ptr<const DecoderModel> model, const Tokenizer& tokenizer,
              EngineOptions options, ByteEstimate estimate);

  PrefixOptions MakePrefixOptions();
  void DropCancelled();
  void Admit();
  // The one of waiting_ that is next, if any may begin.
  std::optional<size_t> NextToAdmit();
  // Whose pages, beyond a few, must be read at the cost of others.
  bool IsCrowded(const QueuedRequest& queued);
  // Pages of its prompt that neither memory nor a tier has.
  size_t PagesToRead(const QueuedRequest& queued) const;
  // What it can come to need beyond the pages that are there.
  uint64_t GrowthOf(const QueuedRequest& queued);
  size_t PagesThere(const QueuedRequest& queued) const;
  bool CanAdmit(const QueuedRequest& queued);
  // Whether evicting could make room for `bytes` more, as far as that can be told before.
  bool CanMakeRoom(uint64_t bytes) const;
  void RefuseTooLong(const QueuedRequest& queued);
  bool AwaitsSharedPages(const QueuedRequest& queued) const;
  void Begin(QueuedRequest queued);
  // A sequence with what the prefix cache and its tiers have of its prompt.
  Status FindSequence(RunningRequest& running);
  // The end of the conversation that it continues, if that is still there.
  bool TakeEnd(RunningRequest& running);
  int FreeSlot(int fixed_slot) const;
  void DecodeAll();
  void DecodeGroup(std::span<RunningRequest*> group);
  void ReadChunk();
  Status ReadTokens(RunningRequest& running, int64_t end);
  void KeepPages(RunningRequest& running, int64_t num_tokens);
  // Gives its sequence to ends_, or frees it.
  void KeepEnd(RunningRequest& running);
  void FetchPages(QueuedRequest& queued);
  void ImportPages(RunningRequest& running);
  // Puts up to max_pages pages of idle conversations to rest and lets some leave for a tier; false
  // if there was nothing to do.
  bool TendIdle(size_t max_pages);
  bool SpillIdle(size_t max_pages);
  // Before the end: hands all that is in memory to the tiers.
  void SpillAll();
  double UsPerPage() const { return us_per_prompt_token_ * cache_->shape().page_tokens; }
  void RemoveEnded();
  void EndWaiting(const QueuedRequest& queued, FinishReason reason, const Status& error);

  Status CheckSlot(int slot, const std::string& tenant, bool needs_content);

  uint64_t BytesHeld() const;
  uint64_t GrowthOfRunning();    // that they can come to need beyond what they have
  uint64_t OwnBytesOfRunning();  // about, without what they share
  // Evicts until `bytes` more fit; false if they do not.
  bool MakeRoom(uint64_t bytes);
  double Now() const { return since_start_.seconds(); }

  std::shared_ptr<const DecoderModel> model_;
  const Tokenizer& tokenizer_;
  EngineOptions options_;
  int64_t context_;
  mutable ByteEstimate estimate_;
  std::shared_ptr<PagePool> pool_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<DecoderRunner> runner_;
  std::optional<PageKeys> keys_;
  std::unique_ptr<PrefixCache> prefixes_;  // null: prefixes are not shared
  std::optional<ConversationEnds> ends_;   // none: nothing that was generated is reused
  std::unique_ptr<PrefixTiers> tiers_;     // null: memory is all there is
  std::string prefix_note_;                // why not
  std::deque<QueuedRequest> waiting_;
  std::vector<std::unique_ptr<RunningRequest>> running_;
  // What a slot answered last.
  struct SlotContent {
    std::vector<int32_t> tokens;
    std::string tenant;
  };
  std::vector<SlotContent> slots_;  // [num_slots]
  std::vector<float> logits_;       // [kFewTokens, vocab]
  EngineCounters counters_;
  uint64_t arrivals_ = 0;
  uint64_t turn_ = 0;
  CrowdedReads crowded_;
  double us_per_prompt_token_ = 0;  // of the last chunks
  Timer since_start_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_BATCH_ENGINE_H_
