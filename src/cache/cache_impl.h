// The implementation of Cache: sequences, steps and statistics on top of tables, ageing and
// attention. Split over cache_impl.cc (creation, sequences, content), cache_step.cc (steps) and
// cache_save_load.cc (files).

#ifndef VARVE_CACHE_CACHE_IMPL_H_
#define VARVE_CACHE_CACHE_IMPL_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "attention/attention.h"
#include "attention/stage_clock.h"
#include "base/atomic_file.h"
#include "cache/ageing.h"
#include "cache/folding.h"
#include "cache/packing.h"
#include "cache/retention_driver.h"
#include "file/cache_file_reader.h"
#include "pages/page.h"
#include "pages/page_store.h"
#include "plan/resolved_plan.h"
#include "varve/cache.h"

namespace varve {

class CacheImpl final : public Cache {
 public:
  CacheImpl(CacheOptions options, ResolvedPlan plan, std::unique_ptr<PlanRungs> rungs,
            std::unique_ptr<PlanCompressors> compressors);
  ~CacheImpl() override;

  const CacheShape& shape() const override { return shape_; }
  const Plan& plan() const override { return options_.plan; }

  Result<SequenceId> CreateSequence() override;
  Result<SequenceId> Fork(SequenceId source) override;
  Status Free(SequenceId id) override;
  Status Truncate(SequenceId id, int64_t position) override;
  Status RemoveRange(SequenceId id, int64_t begin, int64_t end) override;
  Status KeepOnly(SequenceId id, int64_t begin, int64_t end) override;
  Status SlideWindow(SequenceId id, int64_t num_tokens, int64_t sink_tokens) override;
  Result<SequenceInfo> Describe(SequenceId id, int layer) const override;

  Result<int64_t> NextPosition(SequenceId id) const override;
  Result<int64_t> TokensSeen(SequenceId id) const override;
  Result<CutPoint> FindCut(SequenceId id, int64_t num_tokens) const override;
  Result<int> MaxStepTokens(SequenceId id) const override;
  Status BeginStep(std::span<const StepEntry> entries) override;
  Status Append(int layer, SequenceId id, const RowsView& keys, const RowsView& values) override;
  Status Attend(int layer, std::span<const AttendRequest> requests,
                const AttendOptions& options) override;
  Status EndStep() override;
  void AbortStep() override;
  Status BeginPrompt(SequenceId id) override;
  Status EndPrompt(SequenceId id, const EndPromptOptions& options) override;

  Result<int64_t> ReadRows(SequenceId id, int layer, int kv_head, Part part, int64_t begin,
                           int64_t end, float* out) const override;
  CacheStats Stats() const override;
  void WaitForPacking() override {
    packing_.Wait();
    if (!step_open_) packing_.Collect();
  }
  Packing& packing() { return packing_; }
  PageStore& store() { return store_; }
  const Sequence* FindForTesting(SequenceId id) const { return *Find(id); }

  Status Save(const std::string& path, const SaveOptions& options) const override;
  Result<std::vector<SequenceTokens>> Load(const std::string& path,
                                           const LoadOptions& options) override;
  // Save through other system calls, for tests.
  Status SaveThrough(const std::string& path, const SaveOptions& options, FileOps* ops) const;
  // Load of a file that is open already.
  Result<std::vector<SequenceTokens>> LoadFrom(const std::shared_ptr<const CacheFile>& file,
                                               const LoadOptions& options);

 private:
  // One sequence of the open step.
  struct StepSequence {
    SequenceId id;
    Sequence* sequence = nullptr;
    int tokens = 0;
    struct Layer {
      int appended = 0;
      int rows_before = 0;     // of the last entry
      bool new_entry = false;  // the last entry was made by this step
      // For a roll-back: the shared page that a copy has replaced, held until the step ends; or
      // the state of the page that the step writes to in place.
      Page* original = nullptr;
      PageState state_before = PageState::kFilling;
      StepMass mass;  // where the layer's policy needs it
    };
    std::vector<Layer> layers;
  };

  Result<Sequence*> Find(SequenceId id) const;
  // Find, and no step may be open.
  Result<Sequence*> FindIdle(SequenceId id, const char* call) const;
  StepSequence* FindInStep(SequenceId id);

  void ReleaseSequence(Sequence& sequence);
  // Kills rows at positions [begin, end) of one layer; refuses to cut inside a folded row.
  Status CheckCut(const Sequence& sequence, int64_t begin, int64_t end) const;
  void KillRows(int layer, LayerTable& table, int64_t begin, int64_t end);

  Status CheckFile(const CacheFile& file, const LoadOptions& options) const;
  // This cache's rung, with its codebook, for a rung of a file.
  const Rung& OwnRung(int layer, const RungDescriptor& rung) const;
  void AddSequences(const std::shared_ptr<const CacheFile>& file, std::vector<uint64_t>* ids);
  // Brings pages of the table that still are in a file into memory.
  Status ReadIn(const LayerTable& table) const;

  bool CanGrow(int layer, const Sequence& sequence) const;
  Status CheckEntries(std::span<const StepEntry> entries) const;
  Status CheckRoom(std::span<const StepEntry> entries);
  Status ReserveLayer(Sequence& sequence, int layer, StepSequence::Layer& undo);
  Status CheckRows(int layer, const StepSequence* step, const RowsView& keys,
                   const RowsView& values) const;
  Status CheckRequests(int layer, std::span<const AttendRequest> requests,
                       const AttendOptions& options, std::vector<AttentionRequest>* checked);
  AttendRequest Piece(const AttendRequest& whole, int first) const;
  // Hears every Attend for the policies, and passes it on to the observer of the options.
  class MassTap;
  // Rolls the step back and passes the status on.
  Status Fail(Status status);

  CacheShape shape_;
  CacheOptions options_;
  Plan settled_plan_;  // fallbacks in place
  std::unique_ptr<PlanRungs> rungs_;
  std::unique_ptr<PlanCompressors> compressors_;
  std::vector<LayerPlan> layer_plans_;
  std::vector<LayerSpaces> layer_spaces_;
  std::unique_ptr<Executor> own_executor_;
  Executor* executor_;
  StageTotals stages_;
  mutable PageStore store_;  // what is asked for is read in: no change that a caller sees
  Ageing ageing_;
  Attention attention_;
  SequenceMap sequences_;
  RetentionDriver retention_;
  Folding folding_;
  Packing packing_;
  uint64_t next_id_ = 1;
  bool step_open_ = false;
  std::vector<StepSequence> step_;
};

}  // namespace varve

#endif  // VARVE_CACHE_CACHE_IMPL_H_
