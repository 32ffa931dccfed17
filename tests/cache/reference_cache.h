// ReferenceCache: what a Cache must hold and compute, written for reading and not for speed.
//
// Every sequence owns its pages: forking copies them, nothing is shared, no memory is counted. A
// row keeps the values that its page's rungs give back. So a page that is sealed or demoted goes
// through Encode and Decode of the new rung once, as the real one does, and stored values are
// predicted bit for bit. Attention is plain softmax in double precision over those values.
//
// Uses nothing of src/cache: page boundaries, sealing, ladders, windows and masks are written a
// second time from the text of include/varve/cache.h and the plan. Calls must be valid: the caller
// decides what is an error. A value type: copy it before a step to roll back.

#ifndef VARVE_TESTS_CACHE_REFERENCE_CACHE_H_
#define VARVE_TESTS_CACHE_REFERENCE_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rungs/pq/pq_descriptor.h"
#include "rungs/rung.h"
#include "varve/cache.h"
#include "varve/codebook.h"
#include "varve/compressor.h"
#include "varve/plan.h"

namespace varve {

struct ReferenceRow {
  int64_t position = 0;  // of a folded row: that of its last token
  bool live = true;
  std::vector<float> key;    // [kv_heads, key_dim] as the page's rung gives it back
  std::vector<float> value;  // [kv_heads, value_dim]
};

struct ReferencePage {
  int64_t first_position = 0;
  std::vector<ReferenceRow> rows;
  const Rung* key_rung = nullptr;
  const Rung* value_rung = nullptr;
  int64_t demoted_age = -1;  // the age up to which the plan has been carried out; -1 while open
  int tokens_per_row = 1;

  int64_t end_position() const {
    return first_position + static_cast<int64_t>(rows.size()) * tokens_per_row;
  }
  int num_live() const;
};

struct ReferenceAttention {
  std::vector<double> output;       // [num_queries, query heads, value_dim]
  std::vector<double> log_sum_exp;  // [num_queries, query heads]
  std::vector<double> mass;         // [num_queries, query heads, pages]
};

class ReferenceCache {
 public:
  // page_tokens of the shape must be filled in. The codebook may be null if no rung is pq.
  // One compressor folds for every rule with fold=, whatever its name.
  ReferenceCache(const CacheShape& shape, const Plan& plan,
                 std::shared_ptr<const Codebook> codebook = nullptr,
                 std::shared_ptr<const Compressor> compressor = nullptr);

  void Create(SequenceId id);
  void Fork(SequenceId source, SequenceId id) {
    sequences_[id.value] = sequences_.at(source.value);
  }
  void Free(SequenceId id) { sequences_.erase(id.value); }
  void Truncate(SequenceId id, int64_t position);
  void RemoveRange(SequenceId id, int64_t begin, int64_t end);
  void KeepOnly(SequenceId id, int64_t begin, int64_t end);
  void SlideWindow(SequenceId id, int64_t num_tokens, int64_t sink_tokens);
  void Rest(SequenceId id, int64_t begin, int64_t end);

  // Dense rows [num_tokens, kv_heads, dim], one token at a time: each grows or begins a page, its
  // query sees the table as it then is, and what is due at its end is carried out. Commit ends the
  // step.
  void Append(int layer, SequenceId id, const float* keys, const float* values, int num_tokens);
  void Commit(SequenceId id, int num_tokens);
  void BeginPrompt(SequenceId id);
  void EndPrompt(SequenceId id, bool fold = true);
  // True if the position lies inside a folded row of some layer: no cut may go there.
  bool IsInsideRow(SequenceId id, int64_t position) const;

  // Dense queries [num_queries, query heads, key_dim]; the first one stands at first_position. A
  // query of the open step sees what its token saw; without causal, what the last one did.
  ReferenceAttention Attend(int layer, SequenceId id, const float* queries, int num_queries,
                            int64_t first_position, const AttendOptions& options) const;

  int64_t next_position(SequenceId id) const { return sequences_.at(id.value).next_position; }
  int64_t tokens_seen(SequenceId id) const {
    int64_t seen = next_position(id);
    for (const auto& [begin, lost] : sequences_.at(id.value).restarts) seen += lost;
    return seen;
  }
  const std::vector<ReferencePage>& pages(SequenceId id, int layer) const {
    return sequences_.at(id.value).layers[layer];
  }
  int64_t live_rows(SequenceId id, int layer) const;
  // As the query of the open step's token `token` sees them.
  const std::vector<ReferencePage>& step_view(SequenceId id, int layer, size_t token) const {
    return sequences_.at(id.value).views[layer][token];
  }
  size_t step_tokens(SequenceId id, int layer) const {
    return sequences_.at(id.value).views[layer].size();
  }

 private:
  struct Sequence {
    int64_t next_position = 0;
    // Folded prompts whose positions have restarted: where they begin, and the positions less.
    std::vector<std::pair<int64_t, int64_t>> restarts;
    bool prompt_open = true;
    int64_t prompt_begin = 0;
    std::vector<std::vector<ReferencePage>> layers;
    // Of the open step, by layer and token: what the token's query sees.
    std::vector<std::vector<std::vector<ReferencePage>>> views;
  };
  using Pages = std::vector<ReferencePage>;
  using RungPair = std::pair<const Rung*, const Rung*>;  // K, V

  const LayerRule& RuleOf(int layer) const;
  RungPair RungsAt(int layer, int64_t age) const;
  RungPair RungsAtRest(int layer) const;
  const Rung* OpenRung(int layer) const;
  const Rung* RungOf(const std::string& name, Part part) const;
  int64_t OpenTokens(int layer) const;
  int64_t ExactTokens(int layer) const;
  bool CanGrow(const Pages& pages, int64_t next_position) const;
  bool Complete(const Pages& pages, size_t index) const;
  bool FallsOutOfWindow(int layer, const ReferencePage& page, int64_t next_position) const;
  bool IsDueToDemote(int layer, const ReferencePage& page, int64_t next_position) const;
  // The layer's prompt will be folded: until then the plan leaves it alone.
  bool Waits(const Sequence& sequence, int layer) const {
    return RuleOf(layer).fold && sequence.prompt_open;
  }
  void Demote(ReferencePage& page, int layer, const RungPair& rungs) const;
  // Drops, seals and demotes what is due.
  void Age(Pages& pages, int layer, int64_t next_position) const;
  // The pages of a layer once its prompt is folded; empty where nothing is long enough.
  Pages Folded(int layer, const Sequence& sequence) const;
  ReferenceRow FoldRow(int layer, bool image, const ReferenceRow* first) const;
  // Passes all rows of one part through a rung.
  void Store(Part part, const Rung& rung, int layer, ReferencePage& page) const;
  void Kill(Pages& pages, int64_t begin, int64_t end) const;

  CacheShape shape_;
  Plan plan_;
  LayerRule uncovered_;
  std::shared_ptr<const Codebook> codebook_;
  std::shared_ptr<const Compressor> compressor_;
  std::map<std::string_view, std::shared_ptr<const Rung>> rungs_;  // by canonical name
  std::map<uint64_t, Sequence> sequences_;
};

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_REFERENCE_CACHE_H_
