// The implementation of Cache: sequences, steps and statistics on top of tables, ageing and
// the back end. Split over cache_impl.cc (creation, sequences, content), cache_step.cc (steps),
// cache_step_need.cc (what a step takes), cache_attend.cc, cache_tensors.cc (numbers that are
// not f32), cache_blocks.cc (ggml's blocks), cache_properties.cc, cache_save_load.cc (files),
// cache_page_images.cc and cache_rest.cc (idle=).

#ifndef VARVE_CACHE_CACHE_IMPL_H_
#define VARVE_CACHE_CACHE_IMPL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <unordered_set>
#include <vector>

#include "attention/backend.h"
#include "attention/stage_clock.h"
#include "cache/ageing.h"
#include "cache/cache_services.h"
#include "cache/folding.h"
#include "cache/packing.h"
#include "cache/retention_driver.h"
#include "cache/step_state.h"
#include "file/cache_file_reader.h"
#include "pages/page_store.h"
#include "pages/sequence.h"
#include "plan/resolved_plan.h"
#include "varve/cache.h"

namespace varve {

// What a cache may have besides; null: it has none.
struct CacheParts {
  std::unique_ptr<Backend> device;  // in place of the CPU's
  std::unique_ptr<SpillFile> spill;
};

class CacheImpl final : public Cache {
 public:
  CacheImpl(CacheOptions options, const CacheServices& services, ResolvedPlan plan,
            std::unique_ptr<PlanRungs> rungs, std::unique_ptr<PlanCompressors> compressors,
            CacheParts parts);
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
  Result<int64_t> Rest(SequenceId id, int64_t begin, int64_t end) override;
  Result<SequenceInfo> Describe(SequenceId id, int layer) const override;

  Result<int64_t> NextPosition(SequenceId id) const override;
  Result<int64_t> TokensSeen(SequenceId id) const override;
  Result<CutPoint> FindCut(SequenceId id, int64_t num_tokens) const override;
  Result<int> MaxStepTokens(SequenceId id) const override;
  Status BeginStep(std::span<const StepEntry> entries) override;
  Status Append(int layer, SequenceId id, const RowsView& keys, const RowsView& values) override;
  Status Attend(int layer, std::span<const AttendRequest> requests,
                const AttendOptions& options) override;
  Status ImportBlocks(int layer, SequenceId id, const BlockRowsView& keys,
                      const BlockRowsView& values) override;
  Status EndStep() override;
  void AbortStep() override;
  Status SetStream(void* stream) override { return backend_->SetStream(stream); }
  Status BeginPrompt(SequenceId id) override;
  Status EndPrompt(SequenceId id, const EndPromptOptions& options) override;

  Result<int64_t> ReadRows(SequenceId id, int layer, int kv_head, Part part, int64_t begin,
                           int64_t end, float* out) const override;
  Result<int64_t> ExportBlocks(SequenceId id, int layer, Part part, BlockFormat format,
                               int64_t begin, int64_t end, std::byte* out) const override;
  CacheStats Stats() const override;
  CacheReport Report() const override;
  void WaitForPacking() override {
    packing_.Wait();
    if (!step_open_) packing_.Collect();
  }

  Status Save(const std::string& path, const SaveOptions& options) const override;
  Result<std::vector<SequenceTokens>> Load(const std::string& path,
                                           const LoadOptions& options) override;
  Result<std::vector<std::byte>> ExportPages(SequenceId id, int64_t begin, int64_t end,
                                             const ExportOptions& options) override;
  Status ImportPages(SequenceId id, std::span<const std::byte> image) override;
  // Load of a file that is open already.
  Result<std::vector<SequenceTokens>> LoadFrom(const std::shared_ptr<const CacheFile>& file,
                                               const LoadOptions& options);

 private:
  // Some queries of a request that see the same pages.
  struct QueryRun {
    AttendRequest request;
    std::span<const TableEntry> pages;
    int64_t first_position = 0;
  };

  Result<Sequence*> Find(SequenceId id) const;
  // Find, and no step may be open.
  Result<Sequence*> FindIdle(SequenceId id, const char* call) const;
  StepSequence* FindInStep(SequenceId id);

  // Refuses to cut inside a folded row.
  Status CheckCut(const Sequence& sequence, int64_t begin, int64_t end) const;

  Status CheckFile(const CacheFile& file, const LoadOptions& options) const;
  // This cache's rung, with its codebook, for a rung of a file.
  const Rung& OwnRung(int layer, const RungDescriptor& rung) const;
  // The plan as files have it.
  std::string SavedPlanText() const;
  // The pages of a file, unread, in its order.
  std::vector<PageRef> MakePages(const std::shared_ptr<const CacheFile>& file);
  // Refuses plans whose pages do not depend on the tokens before their ends alone.
  Status CheckImages(const char* call) const;
  // The id of the first; the others follow it.
  uint64_t AddSequences(const std::shared_ptr<const CacheFile>& file);
  // Brings pages of the table that still are in a file into memory.
  Status ReadIn(const PageTable& table) const;

  // Rows of blocks as f32 in scratch; refuses what ExportBlocks would not give back.
  Result<RowsView> DecodeBlocks(int layer, Part part, const BlockRowsView& rows,
                                std::vector<float>* scratch) const;

  // What a step takes. Without `seen` only what must be reserved; else also what must be read and
  // encoded, each page in `seen` once.
  LayerNeed NeedOf(const Sequence& sequence, int layer, int tokens,
                   std::unordered_set<const Page*>* seen) const;
  void AddForms(const Sequence& sequence, int layer, int tokens,
                std::unordered_set<const Page*>* seen, LayerNeed* need) const;
  uint64_t BytesFor(std::span<const StepEntry> entries) const;
  Status CheckRoom(std::span<const StepEntry> entries);

  Status CheckEntries(std::span<const StepEntry> entries) const;
  Status ReserveLayer(Sequence& sequence, int layer, int tokens, StepLayer* step);
  Status ReopenLast(LayerTable& table, int layer, StepLayer* step);
  void RollBackLayer(LayerTable& table, StepLayer& step);
  // Runs a part of a step; an error, or an exception, rolls the step back.
  Status InStep(const std::function<Status()>& work);
  Status CheckRows(int layer, const StepSequence& step, const RowsView& keys,
                   const RowsView& values) const;
  // Rows of any dtype; f32 rows.
  Status AppendTensors(int layer, SequenceId id, const RowsView& keys, const RowsView& values);
  Status AppendRows(int layer, SequenceId id, const RowsView& keys, const RowsView& values);
  // The forms of pages that fall due before the step's last token; once per step and layer.
  Status AgeInStep(StepSequence& step, int layer);
  Status CompleteStep();
  void CommitLayer(StepSequence& step, int layer);
  // What falls due with the step's last token.
  void AgeAtEnd(StepSequence& step);

  // Work behind a change that is made already and must not fail its call any more. What finds no
  // memory is left for the next step: a page stays exact, a decision is not made, a group is not
  // packed.
  template <class Work>
  void IfMemoryLasts(const Work& work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      ++put_off_;
    }
  }
  // Brings the pages of a layer to the forms that are due where the sequence stands.
  void AgeLayer(Sequence& sequence, int layer, Ageing::Counters* counters);

  Status CheckRequest(int layer, const AttendRequest& request, bool causal);
  AttendRequest Piece(const AttendRequest& whole, int first, int count) const;
  Status CutRequest(int layer, const AttendRequest& request, bool causal,
                    std::vector<QueryRun>* runs);
  Status CheckAttend(int layer, std::span<const AttendRequest> requests,
                     const AttendOptions& options);
  // Queries and outputs of any dtype, converted or as they are; then all f32.
  Status AttendTensors(int layer, std::span<const AttendRequest> requests,
                       const AttendOptions& options);
  Status CheckTensor(const char* field, DType dtype, Device device) const;
  Status AttendWidened(int layer, std::span<const AttendRequest> requests,
                       const AttendOptions& options);
  Status AttendLayer(int layer, std::span<const AttendRequest> requests,
                     const AttendOptions& options);
  Status AttendRuns(int layer, std::span<const QueryRun> runs, const AttendOptions& options);
  // Hears every Attend for the policies, and passes it on to the observer of the options.
  class MassTap;

  // What the live sequences have seen, in f16, and what they hold; tables included.
  struct Footprint {
    double f16_bytes = 0;
    double held_bytes = 0;
    double ratio() const { return held_bytes > 0 ? f16_bytes / held_bytes : 1; }
    Footprint& operator+=(const Footprint& other) {
      f16_bytes += other.f16_bytes;
      held_bytes += other.held_bytes;
      return *this;
    }
  };
  Footprint FootprintNow() const;
  uint64_t TableBytes() const;
  // One line, where the plan asks for them and something has happened since the last.
  void LogStep();
  // Sums over the tables of all sequences.
  void AddTables(CacheReport* report) const;
  // Of one token in one layer, f16.
  uint64_t RowBytes() const {
    return 2 * static_cast<uint64_t>(shape_.num_kv_heads) * (shape_.key_dim + shape_.value_dim);
  }

  // f32 copies of tensors that came as something else, kept from call to call.
  struct TensorScratch {
    std::vector<float> keys;
    std::vector<float> values;
    std::vector<float> queries;
    std::vector<float> output;
    size_t bytes() const {
      return (keys.capacity() + values.capacity() + queries.capacity() + output.capacity()) *
             sizeof(float);
    }
  };

  CacheShape shape_;
  CacheOptions options_;
  CacheServices services_;
  Plan settled_plan_;  // fallbacks in place
  std::unique_ptr<PlanRungs> rungs_;
  std::unique_ptr<PlanCompressors> compressors_;
  std::vector<LayerPlan> layer_plans_;
  std::vector<LayerSpaces> layer_spaces_;
  std::vector<PageSchedule> schedules_;  // by layer
  std::unique_ptr<Executor> own_executor_;
  Executor* executor_;
  StageTotals stages_;
  std::unique_ptr<Backend> backend_;
  mutable PageStore store_;  // what is asked for is read in: no change that a caller sees
  Ageing ageing_;
  SequenceMap sequences_;
  RetentionDriver retention_;
  Folding folding_;
  Packing packing_;
  uint64_t next_id_ = 1;
  bool step_open_ = false;
  std::vector<StepSequence> step_;
  uint64_t put_off_ = 0;  // how often IfMemoryLasts found no memory
  TensorScratch tensors_;
  Footprint run_footprint_;  // summed over steps
  std::vector<std::string> plan_notes_;
  uint64_t logged_ = 0;  // pages dropped, demoted and packed by the last line
};

}  // namespace varve

#endif  // VARVE_CACHE_CACHE_IMPL_H_
