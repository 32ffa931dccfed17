// ConversationEnds: the sequences of conversations that were answered a moment ago, whole, so that
// the next turn goes on where the answer ended. The prefix cache has full pages alone: without
// this, a turn computes half a page of what was said before, which is as much as a short question.
//
// Only for a turn that takes up the answer: a sequence is given out if generated tokens of it are
// reused, so that whoever reuses none reads prompts in the pieces that step_scheduler.h promises.
//
// An end shares its full pages with the prefix cache and lives no longer than they do there
// (DropEvicted), nor longer than kSeconds without use; there are at most `most`. Belongs to the
// engine's thread, as the Cache does.

#ifndef VARVE_SERVE_ENGINE_CONVERSATION_ENDS_H_
#define VARVE_SERVE_ENGINE_CONVERSATION_ENDS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serve/prefix/prefix_cache.h"
#include "varve/cache.h"

namespace varve::serve {

class ConversationEnds {
 public:
  static constexpr double kSeconds = 50;

  // `cache` and `prefixes` are not owned and must outlive this. cuts_full_pages: whether a full
  // page that is cut can grow again. Where it is sealed in another rung it cannot, and all pages
  // behind the cut would begin at odd places, where no key stands for them.
  ConversationEnds(Cache& cache, const PrefixCache& prefixes, size_t most, bool cuts_full_pages)
      : cache_(cache), prefixes_(prefixes), most_(most), cuts_full_pages_(cuts_full_pages) {}
  ~ConversationEnds();
  ConversationEnds(const ConversationEnds&) = delete;
  ConversationEnds& operator=(const ConversationEnds&) = delete;

  struct End {
    SequenceId sequence;
    std::vector<int32_t> tokens;  // in the sequence
    int64_t prompt_tokens = 0;    // of those; the others were generated
    std::string tenant;
    std::vector<PageKey> keys;  // of its full pages
    double kept_s = 0;
  };
  // Takes the sequence over.
  void Keep(End end);

  struct Hit {
    SequenceId sequence;  // the caller's to free
    int64_t num_tokens = 0;
  };
  // The end that has the longest beginning of `prompt`, at least `least` tokens and some that were
  // generated, cut there; none if there is no such end.
  std::optional<Hit> Take(std::span<const int32_t> prompt, const std::string& tenant,
                          int64_t least);

  // Frees the oldest; false if there is none.
  bool DropOldest();
  void DropOlderThan(double time_s);
  // Frees those whose pages the prefix cache has given up: they would hold the memory.
  void DropEvicted();
  // Frees those of a conversation.
  void Forget(std::span<const int32_t> tokens, const std::string& tenant);

  size_t size() const { return ends_.size(); }

 private:
  using Place = std::list<End>::iterator;
  Place Drop(Place place);
  // Before which token it may not be cut.
  int64_t FirstCut(const End& end) const;

  Cache& cache_;
  const PrefixCache& prefixes_;
  size_t most_;
  bool cuts_full_pages_;
  std::list<End> ends_;  // the oldest first
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_CONVERSATION_ENDS_H_
