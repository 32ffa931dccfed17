// The recall task: facts that a long text states once, and questions about them at its end.
//
//   … A sentence of the text. Remember that the number of the silver tower is 48213. Another …
//
//   What is the number of the silver tower? The number of the silver tower is
//
// A model that finds the fact goes on with " 48213.". The wording is fixed: the embedded model was
// trained on it, and figures of different versions stay comparable. A prompt states several facts;
// each is asked for on its own, after the same text. Made from a seed, the same everywhere.

#ifndef VARVE_RUNTIME_EVAL_RECALL_PROMPTS_H_
#define VARVE_RUNTIME_EVAL_RECALL_PROMPTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve {

struct RecallOptions {
  int64_t ctx = 3500;  // most tokens of text and question together
  int asked = 40;      // questions in all
  int facts = 4;       // facts in one prompt; the last prompt may have fewer
  // Places in the text, 0 (after its first sentence) to 1 (its end). Questions take them in turn.
  std::vector<double> depths = {0, 0.225, 0.45, 0.675, 0.9};
  uint64_t seed = 1;
};

struct RecallFact {
  std::string thing;   // "silver tower"
  std::string number;  // "48213"
  size_t depth_index = 0;

  std::string Statement() const;  // " Remember that …", with the blank that joins it
  std::string Question() const;   // paragraph break to "is"
};

struct RecallPrompt {
  std::string text;             // with the facts in it
  std::vector<int32_t> tokens;  // of the text, with BOS where the model has one
  std::vector<RecallFact> facts;
  std::vector<std::vector<int32_t>> questions;  // [facts], tokens of Question()
};

// Ends of sentences in running text: byte offsets just behind the full stop (and closing quotes),
// where a single blank follows. A text without sentences gives its blanks in place of them.
std::vector<size_t> SentenceEnds(std::string_view text);

// Prompts of at most options.ctx tokens, cut from different places of `haystack`. Refuses options
// that cannot be and a haystack that does not fill one prompt, naming both lengths.
Result<std::vector<RecallPrompt>> MakeRecallPrompts(const Tokenizer& tokenizer,
                                                    std::string_view haystack,
                                                    const RecallOptions& options);

enum class RecallVerdict { kUndecided, kHit, kMiss };

// A hit begins with a blank and the number, and goes on with anything but a digit. Undecided as
// long as more text may make it one; `ended` says that there is no more.
RecallVerdict JudgeAnswer(std::string_view generated, std::string_view number, bool ended);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_RECALL_PROMPTS_H_
