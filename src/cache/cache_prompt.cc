// Prompts of a sequence: where they begin and end, and where tokens and positions part.

#include <algorithm>
#include <string>

#include "cache/cache_impl.h"

namespace varve {
namespace {

// The last position up to `position` that lies inside no folded row.
int64_t OutsideFoldedRows(const Sequence& sequence, int64_t position) {
  for (bool moved = true; moved;) {
    moved = false;
    for (const LayerTable& table : sequence.layers) {
      for (const TableEntry& entry : table.entries()) {
        const int64_t into = position - entry.page->first_position;
        if (into <= 0 || position >= entry.EndPosition()) continue;
        moved = moved || into % entry.page->tokens_per_row != 0;
        position -= into % entry.page->tokens_per_row;
      }
    }
  }
  return position;
}

}  // namespace

Status CacheImpl::BeginPrompt(SequenceId id) {
  VARVE_ASSIGN_OR_RETURN(auto found, FindIdle(id, "BeginPrompt"));
  Sequence& sequence = *found;
  if (sequence.prompt_open) return Status();
  sequence.prompt_open = true;
  sequence.prompt_begin = sequence.next_position;
  folding_.Begin(sequence);
  return Status();
}

Status CacheImpl::EndPrompt(SequenceId id, const EndPromptOptions& options) {
  VARVE_ASSIGN_OR_RETURN(auto found, FindIdle(id, "EndPrompt"));
  Sequence& sequence = *found;
  if (!options.fold) {
    folding_.Skip(sequence);
  } else if (folding_.active()) {
    const Status status = folding_.Fold(sequence);
    if (!status.ok()) return Status(status.code(), "EndPrompt: " + status.message());
  }
  sequence.prompt_open = false;
  // Folded for good: nothing that follows may fail the call. Age comes before policies, as at the
  // end of a step: they decide with the bytes that pages have once sealed.
  Ageing::Counters counters;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    if (!layer_plans_[static_cast<size_t>(layer)].fold) continue;
    IfMemoryLasts([&] { AgeLayer(sequence, layer, &counters); });
  }
  ageing_.Count(counters);
  IfMemoryLasts([&] { retention_.EndPrompt(sequence); });
  return Status();
}

Result<CutPoint> CacheImpl::FindCut(SequenceId id, int64_t num_tokens) const {
  VARVE_ASSIGN_OR_RETURN(auto found, Find(id));
  const Sequence& sequence = *found;
  if (num_tokens < 0 || num_tokens > sequence.tokens_seen()) {
    return InvalidArgument("FindCut: num_tokens " + std::to_string(num_tokens) +
                           " is outside 0 … " + std::to_string(sequence.tokens_seen()));
  }
  // Tokens that positions before the cut stand for beyond their number.
  int64_t lost = 0;
  int64_t position = num_tokens;
  for (const PositionRestart& restart : sequence.restarts) {
    if (num_tokens >= restart.end + lost + restart.lost) {
      lost += restart.lost;
      position = num_tokens - lost;
    } else {
      position = std::min(position, restart.begin);
      break;
    }
  }
  position = OutsideFoldedRows(sequence, position);
  return CutPoint{position + lost, position};
}

}  // namespace varve
