// The decisions of a step, as pure functions: who of those that wait gets a slot, whose prompt is
// read next, and how far. No model, no cache, no clock: tests call them with made-up states.
//
// Two rules keep answers equal to those that a request gets alone. Products of more than kFewTokens
// tokens round otherwise than those of fewer (runtime/kernels/linear.h), but neither depends on how
// many tokens there are otherwise. So decoding goes in groups of at most kFewTokens, and a prompt
// is cut at the borders of pages, with a last piece of at most kFewTokens on its own, whatever was
// read before it or came from the prefix cache.

#ifndef VARVE_SERVE_ENGINE_STEP_SCHEDULER_H_
#define VARVE_SERVE_ENGINE_STEP_SCHEDULER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/kernels/linear.h"

namespace varve::serve {

inline constexpr int kFewTokens = LinearLayers::kMaxFewTokens;

// A prompt that is being read.
struct ReadingPrompt {
  size_t slot = 0;
  uint64_t arrival = 0;     // ascending with time
  int64_t tokens_read = 0;  // by computing, what came from the cache does not count
};

// Whose turn it is. Every other chunk goes to the one that has read least, so that a short prompt
// does not wait for a long one; the others go to the oldest, so that a long one ends however many
// short ones come. `turn` counts chunks. None of an empty list.
std::optional<size_t> NextReader(std::span<const ReadingPrompt> reading, uint64_t turn);

// The end of the chunk that begins at `begin` of a prompt of `num_tokens`. That is the border of a
// page, or the end of generated tokens that are reused (conversation_ends.h).
int64_t ChunkEnd(int64_t begin, int64_t num_tokens, int page_tokens, int64_t max_chunk);

// A request that waits for a slot.
struct WaitingRequest {
  uint64_t arrival = 0;
  int running_of_tenant = 0;  // slots that its tenant has now
  bool ready = true;          // false: it waits for pages that another one is computing
};

// Who is next: of the tenant with the fewest slots, the one that came first. One tenant's thousand
// requests do not keep others waiting.
std::optional<size_t> NextWaiting(std::span<const WaitingRequest> waiting);

// Prompts that are read at the cost of pages which others have just used. Whoever loses those reads
// them again, at the cost of the next: with a little less memory than the conversations under way
// need, a server would do nothing else. So they are read one at a time, with a pause after each:
// `pause` times as long as reading it took, kMostSeconds at most. Whoever finds its pages in memory
// goes ahead of them.
class CrowdedReads {
 public:
  static constexpr double kMostSeconds = 60;

  explicit CrowdedReads(double pause) : pause_(pause) {}

  bool MayBegin(double now_s) const { return num_reading_ == 0 && now_s >= next_s_; }
  void Begin() { ++num_reading_; }
  // It has been read, or has ended before.
  void End(double now_s, double reading_s) {
    --num_reading_;
    next_s_ = now_s + std::min(pause_ * reading_s, kMostSeconds);
  }

 private:
  double pause_;
  int num_reading_ = 0;
  double next_s_ = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_STEP_SCHEDULER_H_
