// Step and Prefill: the short way to feed tokens to a cache.
//
// A Step is a step of a cache that is open as long as the object lives: Commit keeps its tokens,
// the destructor rolls back what was not committed, and so does the first call that fails. A step
// may hold tokens of many sequences, each at most Cache::MaxStepTokens. Prefill cuts an input of
// any length into such steps. Both are thin layers over the calls of Cache (varve/cache.h) and add
// no memory of their own. A cache has one open step at a time and must outlive it; one thread at a
// time.

#ifndef VARVE_STEP_H_
#define VARVE_STEP_H_

#include <cstdint>
#include <functional>
#include <span>

#include "varve/cache.h"
#include "varve/export.h"
#include "varve/status.h"

namespace varve {

class VARVE_API Step {
 public:
  // Reserves the memory of all tokens in all layers. On failure nothing has changed.
  static Result<Step> Begin(Cache& cache, std::span<const StepEntry> entries);
  static Result<Step> Begin(Cache& cache, SequenceId sequence, int num_tokens = 1);

  Step(Step&& other) noexcept;
  Step& operator=(Step&& other) noexcept;
  ~Step();

  // Each does what Cache's call of the same name does. After a failure the step is closed, and
  // every further call fails with kFailedPrecondition.
  Status Append(int layer, SequenceId sequence, const RowsView& keys, const RowsView& values);
  Status ImportBlocks(int layer, SequenceId sequence, const BlockRowsView& keys,
                      const BlockRowsView& values);
  Status Attend(int layer, std::span<const AttendRequest> requests,
                const AttendOptions& options = {});
  // Ends the step and keeps its tokens. Every layer must have all rows.
  Status Commit();
  // Ends the step and forgets its tokens; the destructor does the same.
  void Abort();
  // False after Commit, Abort, a failure, or a move.
  bool is_open() const { return cache_ != nullptr; }

 private:
  explicit Step(Cache* cache) : cache_(cache) {}
  // Closes the step if a call of the cache has failed, which has rolled it back.
  Status Pass(Status status);

  Cache* cache_;  // null once the step is closed
};

// Runs the layers of one step: appends `count` rows to every layer, and attends if it wants
// outputs. They are the tokens [first, first + count) of the input. It must not end the step.
using PrefillLayers = std::function<Status(Step& step, int64_t first, int count)>;

// Feeds num_tokens tokens of a sequence in as few steps as MaxStepTokens allows and calls `layers`
// for each. Stops at the first error, of `layers` or of the cache, and returns it: steps before
// stay committed (NextPosition tells how far), the one that failed is rolled back. The prompt has
// not ended: see Cache::EndPrompt.
VARVE_API Status Prefill(Cache& cache, SequenceId sequence, int64_t num_tokens,
                         const PrefillLayers& layers);

}  // namespace varve

#endif  // VARVE_STEP_H_
