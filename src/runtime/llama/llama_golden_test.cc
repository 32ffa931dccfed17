// The forward pass against the transformers library (tools/make_llama_golden.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>

#include "runtime/llama/llama_testing.h"

namespace varve {
namespace llama_golden_test {

constexpr double kMaxDifference = 2e-3;

class LlamaGolden : public testing::TestWithParam<const char*> {
 protected:
  LlamaGolden() : golden_(GetParam()), runner_(golden_.model, *executor_) {}

  size_t vocab_size() const { return golden_.model->config().vocab_size; }

  // Logits of all tokens, fed in pieces of these sizes, over and over.
  std::vector<float> AllLogits(std::vector<size_t> pieces) {
    const std::unique_ptr<Cache> cache = golden_.NewCache(kExactPlan, executor_.get());
    const SequenceId sequence = *cache->CreateSequence();
    std::vector<float> logits(golden_.tokens.size() * vocab_size());
    size_t done = 0;
    for (size_t i = 0; done < golden_.tokens.size(); ++i) {
      const size_t count = std::min(pieces[i % pieces.size()], golden_.tokens.size() - done);
      EXPECT_OK(runner_.Forward(*cache, sequence, std::span(golden_.tokens).subspan(done, count),
                                Logits::kAll, logits.data() + done * vocab_size()));
      done += count;
    }
    return logits;
  }

  // The largest difference of one token's logits from the reference's at this position.
  double Difference(const float* logits, int position) const {
    const std::vector<float>& expected = golden_.logits.at(position);
    EXPECT_EQ(expected.size(), vocab_size() / golden_.stride);
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = logits[i * golden_.stride] - expected[i];
      worst = std::max(worst, std::isnan(difference) ? 1e9 : std::abs(difference));
    }
    return worst;
  }

  void ExpectGolden(const std::vector<float>& logits) {
    double worst = 0;
    for (const auto& [position, expected] : golden_.logits)
      worst = std::max(worst, Difference(logits.data() + position * vocab_size(), position));
    EXPECT_LE(worst, kMaxDifference);
    EXPECT_GT(worst, 0.0);  // equal bits from another program: the test compares with itself
    RecordProperty("max_difference", std::to_string(worst));
  }

  double Perplexity(const std::vector<float>& logits) {
    double sum = 0;
    for (size_t t = 0; t + 1 < golden_.tokens.size(); ++t) {
      const float* row = logits.data() + t * vocab_size();
      double total = 0;
      for (size_t i = 0; i < vocab_size(); ++i) total += std::exp(double{row[i]});
      sum += std::log(total) - row[golden_.tokens[t + 1]];
    }
    return std::exp(sum / static_cast<double>(golden_.tokens.size() - 1));
  }

  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  GoldenModel golden_;
  LlamaRunner runner_;
};

TEST_P(LlamaGolden, PrefillInOneGoMatchesTheReference) {
  const std::vector<float> logits = AllLogits({golden_.tokens.size()});
  ExpectGolden(logits);
  EXPECT_NEAR(Perplexity(logits), golden_.perplexity, 1e-3 * golden_.perplexity);
}

TEST_P(LlamaGolden, TokenByTokenMatchesTheReference) {
  const std::vector<float> logits = AllLogits({1});
  ExpectGolden(logits);
  EXPECT_NEAR(Perplexity(logits), golden_.perplexity, 1e-3 * golden_.perplexity);
}

TEST_P(LlamaGolden, OddPiecesMatchTheReference) { ExpectGolden(AllLogits({7, 1, 33, 3, 70})); }

TEST_P(LlamaGolden, LastLogitsAreThoseOfTheLastToken) {
  const std::unique_ptr<Cache> cache = golden_.NewCache(kExactPlan, executor_.get());
  std::vector<float> logits(vocab_size());
  EXPECT_OK(runner_.Forward(*cache, *cache->CreateSequence(), golden_.tokens, Logits::kLast,
                            logits.data()));
  const int last = static_cast<int>(golden_.tokens.size()) - 1;
  EXPECT_LE(Difference(logits.data(), last), kMaxDifference);
}

// Two sequences at different positions in one step, then each again alone.
TEST_P(LlamaGolden, SequencesInOneStepDoNotMeet) {
  const std::unique_ptr<Cache> cache = golden_.NewCache(kExactPlan, executor_.get());
  const SequenceId first = *cache->CreateSequence();
  const SequenceId second = *cache->CreateSequence();
  const std::span tokens(golden_.tokens);
  EXPECT_OK(runner_.Forward(*cache, first, tokens.first(128), Logits::kNone, nullptr));
  EXPECT_OK(runner_.Forward(*cache, second, tokens.first(63), Logits::kNone, nullptr));
  std::vector<float> logits(2 * vocab_size());
  const std::vector<DecodeEntry> entries = {{first, tokens[128]}, {second, tokens[63]}};
  EXPECT_OK(runner_.Decode(*cache, entries, logits.data()));
  EXPECT_LE(Difference(logits.data(), 128), kMaxDifference);
  EXPECT_LE(Difference(logits.data() + vocab_size(), 63), kMaxDifference);
  EXPECT_EQ(*cache->NextPosition(first), 129);
  EXPECT_EQ(*cache->NextPosition(second), 64);
}

INSTANTIATE_TEST_SUITE_P(All, LlamaGolden,
                         testing::Values("llama", "llama_rope3", "llama_linear", "llama_yarn",
                                         "mistral_window", "qwen2", "qwen3", "gemma2", "gemma3",
                                         "embedded"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace llama_golden_test
}  // namespace varve
