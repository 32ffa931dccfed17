#include "runtime/eval/recall_prompts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include <fmt/format.h>

#include "tests/byte_tokenizer.h"

namespace varve {
namespace recall_prompts_test {

std::string Haystack(int sentences) {
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    text += fmt::format("{}Sentence {} tells of the weather and the sea.",
                        i == 0       ? ""
                        : i % 9 == 0 ? "\n\n"
                                     : " ",
                        i);
  }
  return text;
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SentenceEnds, LieBehindTheStopWhereOneBlankFollows) {
  const std::string text = "One went. \"Two came!\" He saw. Three";
  EXPECT_EQ(SentenceEnds(text), (std::vector<size_t>{9, 21, 29}));
}

TEST(SentenceEnds, AbbreviationsAndSpeechAreNoEnds) {
  // Neither "Mr." nor "J." nor speech that goes on, nor the end of a paragraph or a wrapped line.
  const std::string text =
      "Mr. J. Fox came. \"Do come!\" he said.\n\nAll went. So did I.\nIndeed. No";
  const size_t came = text.find(" \"Do");
  const size_t went = text.find(" So");
  EXPECT_EQ(SentenceEnds(text), (std::vector<size_t>{came, went, text.find(" No")}));
}

TEST(SentenceEnds, ATextWithoutSentencesGivesItsBlanks) {
  EXPECT_EQ(SentenceEnds("a b c  d"), (std::vector<size_t>{1, 3}));
  EXPECT_TRUE(SentenceEnds("").empty());
}

TEST(RecallPrompts, StateEachFactOnceAtItsDepthBetweenSentences) {
  const ByteTokenizer tokenizer;
  RecallOptions options;
  options.ctx = 4000;
  options.asked = 23;
  options.facts = 4;
  options.depths = {0, 0.5, 0.9};
  const auto prompts = MakeRecallPrompts(tokenizer, Haystack(1000), options);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 6u);
  EXPECT_EQ(prompts->back().facts.size(), 3u);
  size_t asked = 0;
  for (const RecallPrompt& prompt : *prompts) {
    ASSERT_EQ(prompt.questions.size(), prompt.facts.size());
    for (const RecallFact& fact : prompt.facts) {
      EXPECT_EQ(fact.depth_index, asked++ % 3);
      EXPECT_EQ(CountOf(prompt.text, fact.number), 1u);
      ASSERT_EQ(CountOf(prompt.text, fact.Statement()), 1u);
      const size_t at = prompt.text.find(fact.Statement());
      const size_t behind = at + fact.Statement().size();
      EXPECT_EQ(prompt.text[at - 1], '.');
      EXPECT_TRUE(behind == prompt.text.size() || prompt.text[behind] == ' ');
      // Sentences are 50 bytes, facts as much again: a few of both of 3900 bytes.
      const double depth = static_cast<double>(at) / static_cast<double>(prompt.text.size());
      EXPECT_NEAR(depth, options.depths[fact.depth_index], 0.07);
    }
  }
  EXPECT_EQ(asked, 23u);
}

TEST(RecallPrompts, FillTheContextAndNeverPassIt) {
  for (const bool adds_bos : {false, true}) {
    const ByteTokenizer tokenizer(adds_bos);
    RecallOptions options;
    options.ctx = 2500;
    const auto prompts = MakeRecallPrompts(tokenizer, Haystack(300), options);
    ASSERT_TRUE(prompts.ok()) << prompts.status().message();
    for (const RecallPrompt& prompt : *prompts) {
      EXPECT_EQ(prompt.tokens.front() == tokenizer.bos(), adds_bos);
      size_t longest = 0;
      for (const auto& question : prompt.questions) longest = std::max(longest, question.size());
      EXPECT_LE(prompt.tokens.size() + longest, 2500u);
      EXPECT_GT(prompt.tokens.size() + longest, 2400u);
      EXPECT_EQ(prompt.text.back(), '.');
    }
  }
}

TEST(RecallPrompts, HaveTheWordingThatModelsAreTrainedOn) {
  RecallFact fact;
  fact.thing = "silver tower";
  fact.number = "48213";
  EXPECT_EQ(fact.Statement(), " Remember that the number of the silver tower is 48213.");
  EXPECT_EQ(fact.Question(),
            "\n\nWhat is the number of the silver tower? The number of the silver tower is");
}

TEST(RecallPrompts, ThingsAndNumbersDifferWithinAPrompt) {
  const ByteTokenizer tokenizer;
  RecallOptions options;
  options.ctx = 20000;
  options.asked = options.facts = 200;
  const auto prompts = MakeRecallPrompts(tokenizer, Haystack(1000), options);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  std::set<std::string> things;
  std::set<std::string> numbers;
  for (const RecallFact& fact : prompts->front().facts) {
    EXPECT_EQ(fact.number.size(), 5u);
    things.insert(fact.thing);
    numbers.insert(fact.number);
  }
  EXPECT_EQ(things.size(), 200u);
  EXPECT_EQ(numbers.size(), 200u);
}

TEST(RecallPrompts, ComeFromTheSeedAlone) {
  const ByteTokenizer tokenizer;
  const std::string haystack = Haystack(300);
  RecallOptions options;
  options.ctx = 2500;
  const auto once = MakeRecallPrompts(tokenizer, haystack, options);
  const auto again = MakeRecallPrompts(tokenizer, haystack, options);
  options.seed = 2;
  const auto other = MakeRecallPrompts(tokenizer, haystack, options);
  ASSERT_TRUE(once.ok() && again.ok() && other.ok());
  std::set<std::string> beginnings;
  for (size_t i = 0; i < once->size(); ++i) {
    EXPECT_EQ((*once)[i].text, (*again)[i].text);
    EXPECT_NE((*once)[i].text, (*other)[i].text);
    beginnings.insert((*once)[i].text.substr(0, 12));
  }
  EXPECT_GT(beginnings.size(), 5u);  // of 10: the text is read from different places
}

TEST(RecallPrompts, RefuseWhatCannotBe) {
  const ByteTokenizer tokenizer;
  const auto message = [&](const std::string& haystack, const RecallOptions& options) {
    return MakeRecallPrompts(tokenizer, haystack, options).status().message();
  };
  RecallOptions options;
  EXPECT_EQ(message("", options), "the text is empty");
  EXPECT_EQ(message("word", options), "the text has no two sentences to put a fact between");
  EXPECT_NE(message(Haystack(20), options).find("tokens, a recall prompt of ctx 3500 needs more"),
            std::string::npos);
  options.ctx = 100;
  EXPECT_NE(message(Haystack(20), options).find("ctx 100 has no room for 4 facts"),
            std::string::npos);
  options = {};
  options.depths = {0.5, 1.5};
  EXPECT_EQ(message(Haystack(20), options), "depth 1.5 is not in 0 … 1");
  options.depths = {};
  EXPECT_EQ(message(Haystack(20), options), "depths: there is none");
  options = {};
  options.facts = 0;
  EXPECT_EQ(message(Haystack(20), options), "facts 0 is not in 1 … 256");
  options = {};
  options.ctx = 0;
  EXPECT_EQ(message(Haystack(20), options), "ctx 0 is not in 1 … 1073741824");
}

TEST(RecallVerdict, AHitIsTheNumberAndNothingElse) {
  const auto judge = [](const char* text, bool ended = false) {
    return JudgeAnswer(text, "48213", ended);
  };
  EXPECT_EQ(judge(" 48213."), RecallVerdict::kHit);
  EXPECT_EQ(judge(" 48213\n"), RecallVerdict::kHit);
  EXPECT_EQ(judge(" 48213", true), RecallVerdict::kHit);
  EXPECT_EQ(judge(" 482139"), RecallVerdict::kMiss);
  EXPECT_EQ(judge(" 48214."), RecallVerdict::kMiss);
  EXPECT_EQ(judge("48213."), RecallVerdict::kMiss);
  EXPECT_EQ(judge("  48213."), RecallVerdict::kMiss);
  EXPECT_EQ(judge(" 4821", true), RecallVerdict::kMiss);
  EXPECT_EQ(judge(" 4821."), RecallVerdict::kMiss);
  EXPECT_EQ(judge(" the"), RecallVerdict::kMiss);
  EXPECT_EQ(judge(""), RecallVerdict::kUndecided);
  EXPECT_EQ(judge(" 48"), RecallVerdict::kUndecided);
  EXPECT_EQ(judge(" 48213"), RecallVerdict::kUndecided);
}

}  // namespace recall_prompts_test
}  // namespace varve
