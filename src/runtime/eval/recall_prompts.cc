#include "runtime/eval/recall_prompts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"

namespace varve {
namespace {

constexpr std::array<std::string_view, 32> kAdjectives = {
    "amber", "ancient", "black",   "blue",   "broken", "copper", "crimson", "crooked",
    "dusty", "eastern", "frozen",  "gilded", "golden", "green",  "hidden",  "hollow",
    "iron",  "ivory",   "lonely",  "marble", "narrow", "old",    "painted", "quiet",
    "red",   "round",   "scarlet", "silver", "stone",  "tall",   "western", "wooden"};
constexpr std::array<std::string_view, 32> kNouns = {
    "abbey",  "anchor", "bell", "boat",  "bridge",  "candle",  "castle",  "chapel",
    "clock",  "door",   "farm", "flag",  "forest",  "garden",  "gate",    "harbor",
    "house",  "island", "key",  "lamp",  "lantern", "library", "market",  "mill",
    "mirror", "palace", "pond", "river", "ship",    "tower",   "village", "window"};

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  // Below `bound`, which is tiny against 2^64: the bias does not show.
  uint64_t Below(uint64_t bound) { return bits_.Next() % bound; }

 private:
  SplitMix64 bits_;
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }

// Behind closing quotes and brackets at `at`.
size_t SkipClosing(std::string_view text, size_t at) {
  static constexpr std::string_view kClosing[] = {"\"", "'", ")", "]", "\u201D", "\u2019"};
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view mark : kClosing) {
      if (!text.substr(at).starts_with(mark)) continue;
      at += mark.size();
      found = true;
    }
  }
  return at;
}

// "Mr. Smith" and "J. Smith" are no ends of sentences: a full stop counts after a word of three or
// more lower-case letters.
bool EndsSentence(std::string_view text, size_t mark) {
  if (text[mark] == '!' || text[mark] == '?') return true;
  return text[mark] == '.' && mark >= 3 && IsLower(text[mark - 1]) && IsLower(text[mark - 2]) &&
         IsLower(text[mark - 3]);
}

// A single blank at `at`, with text on both sides.
bool IsSingleBlank(std::string_view text, size_t at) {
  return at > 0 && at + 1 < text.size() && text[at] == ' ' && text[at + 1] != ' ' &&
         text[at + 1] != '\n' && text[at - 1] != ' ' && text[at - 1] != '\n';
}

template <typename T>
bool Contains(const std::vector<RecallFact>& facts, const T& member, const std::string& value) {
  return std::any_of(facts.begin(), facts.end(),
                     [&](const RecallFact& fact) { return fact.*member == value; });
}

// Facts [first, first + count) of the run.
std::vector<RecallFact> MakeFacts(int first, int count, size_t num_depths, Random& random) {
  std::vector<RecallFact> facts;
  while (static_cast<int>(facts.size()) < count) {
    RecallFact fact;
    fact.thing = fmt::format("{} {}", kAdjectives[random.Below(kAdjectives.size())],
                             kNouns[random.Below(kNouns.size())]);
    fact.number = fmt::format("{}", 10000 + random.Below(90000));
    fact.depth_index = (static_cast<size_t>(first) + facts.size()) % num_depths;
    if (Contains(facts, &RecallFact::thing, fact.thing)) continue;
    if (Contains(facts, &RecallFact::number, fact.number)) continue;
    facts.push_back(std::move(fact));
  }
  return facts;
}

Status CheckOptions(const RecallOptions& options) {
  constexpr int64_t kMaxPromptTokens = int64_t{1} << 30;
  constexpr int kMaxAsked = 100000;
  // Each fact is a distinct thing.
  constexpr int kMaxFacts = static_cast<int>(kAdjectives.size() * kNouns.size() / 4);
  if (options.ctx < 1 || options.ctx > kMaxPromptTokens) {
    return InvalidArgument(fmt::format("ctx {} is not in 1 … {}", options.ctx, kMaxPromptTokens));
  }
  if (options.asked < 1 || options.asked > kMaxAsked) {
    return InvalidArgument(fmt::format("asked {} is not in 1 … {}", options.asked, kMaxAsked));
  }
  if (options.facts < 1 || options.facts > kMaxFacts) {
    return InvalidArgument(fmt::format("facts {} is not in 1 … {}", options.facts, kMaxFacts));
  }
  if (options.depths.empty()) return InvalidArgument("depths: there is none");
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 1)) {
      return InvalidArgument(fmt::format("depth {} is not in 0 … 1", depth));
    }
  }
  return Status();
}

class PromptMaker {
 public:
  PromptMaker(const Tokenizer& tokenizer, std::string_view haystack, const RecallOptions& options)
      : tokenizer_(tokenizer), haystack_(haystack), options_(options), random_(options.seed) {}

  Result<std::vector<RecallPrompt>> Run();

 private:
  // The sentences ends_[first] … ends_[last] of the haystack, with the facts in them.
  std::string Compose(size_t first, size_t last, std::span<const RecallFact> facts) const;
  int64_t CountTokens(std::string_view text) const {
    return static_cast<int64_t>(tokenizer_.Encode(text, {}).size());
  }
  // The largest `last` whose prompt fits, `first` if none does; `most` is the last to consider.
  size_t LastThatFits(size_t first, size_t most, std::span<const RecallFact> facts,
                      int64_t max_tokens) const;
  // The last sentence end that a prompt from `first` on may reach: tokens hardly ever stand for
  // more than 16 bytes on average, and looking at all of a long file would take long.
  size_t MostFrom(size_t first) const;
  Result<RecallPrompt> MakePrompt(int first_fact);

  const Tokenizer& tokenizer_;
  std::string_view haystack_;
  const RecallOptions& options_;
  Random random_;
  std::vector<size_t> ends_;
  size_t last_start_ = 0;  // prompts begin at ends_[0 … last_start_]
};

std::string PromptMaker::Compose(size_t first, size_t last,
                                 std::span<const RecallFact> facts) const {
  size_t begin = ends_[first];
  const size_t end = ends_[last];
  std::vector<std::pair<size_t, const RecallFact*>> places;
  for (const RecallFact& fact : facts) {
    const double depth = options_.depths[fact.depth_index];
    const double wanted = static_cast<double>(begin) + depth * static_cast<double>(end - begin);
    // Not in front of the first sentence, at or behind the place wanted.
    auto place = std::lower_bound(ends_.begin() + static_cast<ptrdiff_t>(first) + 1,
                                  ends_.begin() + static_cast<ptrdiff_t>(last),
                                  static_cast<size_t>(std::ceil(wanted)));
    places.emplace_back(*place, &fact);
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (const auto& [place, fact] : places) {
    text += haystack_.substr(begin, place - begin);
    text += fact->Statement();
    begin = place;
  }
  text += haystack_.substr(begin, end - begin);
  text.erase(0, text.find_first_not_of(" \n"));
  return text;
}

size_t PromptMaker::MostFrom(size_t first) const {
  const uint64_t reach = ends_[first] + static_cast<uint64_t>(options_.ctx) * 16;
  const auto behind = std::upper_bound(ends_.begin(), ends_.end(), reach);
  return static_cast<size_t>(behind - ends_.begin()) - 1;
}

size_t PromptMaker::LastThatFits(size_t first, size_t most, std::span<const RecallFact> facts,
                                 int64_t max_tokens) const {
  size_t fits = first;
  while (fits < most) {
    const size_t middle = fits + (most - fits + 1) / 2;
    if (CountTokens(Compose(first, middle, facts)) <= max_tokens) {
      fits = middle;
    } else {
      most = middle - 1;
    }
  }
  return fits;
}

Result<RecallPrompt> PromptMaker::MakePrompt(int first_fact) {
  RecallPrompt prompt;
  prompt.facts = MakeFacts(first_fact, std::min(options_.facts, options_.asked - first_fact),
                           options_.depths.size(), random_);
  size_t question_tokens = 0;
  for (const RecallFact& fact : prompt.facts) {
    // A question comes when the text has been read: it is encoded by itself.
    EncodeOptions encode;
    encode.add_special = false;
    prompt.questions.push_back(tokenizer_.Encode(fact.Question(), encode));
    question_tokens = std::max(question_tokens, prompt.questions.back().size());
  }
  const int64_t max_tokens = options_.ctx - static_cast<int64_t>(question_tokens);

  // Fills the prompt from ends_[first] on. False if the text ran out first.
  size_t last = 0;
  const auto fill = [&](size_t first) {
    const size_t most = MostFrom(first);
    last = LastThatFits(first, most, prompt.facts, max_tokens);
    prompt.text = last > first ? Compose(first, last, prompt.facts) : std::string();
    return last < most || most + 1 < ends_.size();
  };
  if (first_fact == 0) {
    if (!fill(0)) {
      return InvalidArgument(
          fmt::format("the text has {} tokens, a recall prompt of ctx {} needs more",
                      CountTokens(haystack_), options_.ctx));
    }
    // Later prompts begin where as much text is left, and a tenth more: sentences differ.
    const size_t bytes = (ends_[last] - ends_[0]) / 10 * 11;
    while (last_start_ + 1 < ends_.size() && ends_[last_start_ + 1] + bytes < ends_.back()) {
      ++last_start_;
    }
  } else if (!fill(static_cast<size_t>(random_.Below(last_start_ + 1)))) {
    fill(0);
  }
  prompt.tokens = tokenizer_.Encode(prompt.text, {});
  if (prompt.text.empty() || static_cast<int64_t>(prompt.tokens.size()) > max_tokens) {
    return InvalidArgument(
        fmt::format("ctx {} has no room for {} facts and a question of {} tokens", options_.ctx,
                    prompt.facts.size(), question_tokens));
  }
  return prompt;
}

Result<std::vector<RecallPrompt>> PromptMaker::Run() {
  VARVE_RETURN_IF_ERROR(CheckOptions(options_));
  if (haystack_.empty()) return InvalidArgument("the text is empty");
  ends_ = SentenceEnds(haystack_);
  ends_.insert(ends_.begin(), 0);
  if (ends_.size() < 3) {
    return InvalidArgument("the text has no two sentences to put a fact between");
  }
  std::vector<RecallPrompt> prompts;
  for (int first = 0; first < options_.asked; first += options_.facts) {
    VARVE_ASSIGN_OR_RETURN(RecallPrompt prompt, MakePrompt(first));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

std::string RecallFact::Statement() const {
  return fmt::format(" Remember that the number of the {} is {}.", thing, number);
}

std::string RecallFact::Question() const {
  return fmt::format("\n\nWhat is the number of the {0}? The number of the {0} is", thing);
}

std::vector<size_t> SentenceEnds(std::string_view text) {
  std::vector<size_t> ends;
  std::vector<size_t> blanks;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsSingleBlank(text, i)) blanks.push_back(i);
    if (!EndsSentence(text, i)) continue;
    const size_t behind = SkipClosing(text, i + 1);
    // A small letter goes on with the sentence: "Stop!" he said.
    if (IsSingleBlank(text, behind) && !IsLower(text[behind + 1])) ends.push_back(behind);
  }
  return ends.size() >= 2 ? ends : blanks;
}

Result<std::vector<RecallPrompt>> MakeRecallPrompts(const Tokenizer& tokenizer,
                                                    std::string_view haystack,
                                                    const RecallOptions& options) {
  return PromptMaker(tokenizer, haystack, options).Run();
}

RecallVerdict JudgeAnswer(std::string_view generated, std::string_view number, bool ended) {
  const std::string expected = fmt::format(" {}", number);
  if (generated.size() > expected.size()) {
    const bool hit = generated.starts_with(expected) && !IsDigit(generated[expected.size()]);
    return hit ? RecallVerdict::kHit : RecallVerdict::kMiss;
  }
  if (!std::string_view(expected).starts_with(generated)) return RecallVerdict::kMiss;
  if (!ended) return RecallVerdict::kUndecided;
  return generated.size() == expected.size() ? RecallVerdict::kHit : RecallVerdict::kMiss;
}

}  // namespace varve
