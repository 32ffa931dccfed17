// Small models of every kind of layer, each on the CPU and on a GPU, for the tests that compare
// both.

#ifndef VARVE_TESTS_CUDA_MODEL_SIDES_H_
#define VARVE_TESTS_CUDA_MODEL_SIDES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/llama/llama_model.h"
#include "runtime/model_cache.h"
#include "tests/cache_testing.h"

namespace varve {

// What f16 and bf16 round away, as a part of the logits' length: 11 and 8 bits of each input of a
// product, over a few layers.
inline constexpr double kF16Error = 4e-3;
inline constexpr double kBF16Error = 3e-2;

inline LlamaConfig Plain() {
  LlamaConfig config;
  config.architecture = "llama";
  config.name = "plain";
  config.num_layers = 2;
  config.width = 128;
  config.ffn_width = 192;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.vocab_size = 96;
  config.context = 512;
  config.rope.dims = 64;
  return config;
}

// Biases, and pairs of halves.
inline LlamaConfig LikeQwen2() {
  LlamaConfig config = Plain();
  config.name = "like qwen2";
  config.qkv_bias = true;
  config.rope.order = RopeOrder::kHalves;
  config.rope.base = 1e6;
  return config;
}

// Norms of heads, one matrix for both ends, scaled positions of half of each head.
inline LlamaConfig LikeQwen3() {
  LlamaConfig config = Plain();
  config.name = "like qwen3";
  config.qk_norm = true;
  config.tied_embeddings = true;
  config.rope.order = RopeOrder::kHalves;
  config.rope.dims = 32;
  config.rope.scaling = RopeScaling::kLinear;
  config.rope.factor = 4.0;
  return config;
}

inline LlamaConfig LikeGemma() {
  LlamaConfig config = Plain();
  config.name = "like gemma";
  config.num_layers = 3;
  config.qk_norm = true;
  config.post_norms = true;
  config.tied_embeddings = true;
  config.activation = Activation::kGeluTanh;
  config.embedding_scale = std::sqrt(128.0f);
  config.attention_scale = 0.11f;
  config.attention_soft_cap = 20.0f;
  config.final_soft_cap = 12.0f;
  config.rope.order = RopeOrder::kHalves;
  config.window = 40;
  config.window_period = 3;
  config.local_rope = config.rope;
  config.local_rope->base = 500.0;
  return config;
}

inline std::vector<int32_t> Tokens(int count, int salt) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 37 + salt * 11 + i / 7) % 96);
  return tokens;
}

inline double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double square = 0;
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    square += double{want[i]} * want[i];
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
  }
  return std::sqrt(error / square);
}

// A model with a runner and a cache, on either side.
struct Side {
  Side(const std::shared_ptr<const DecoderModel>& made_of, Executor& executor,
       const std::string& plan)
      : model(made_of), runner(model->MakeRunner(executor)) {
    CacheOptions options = CacheOptionsFor(*model);
    options.executor = &executor;
    if (options.device == Device::kCuda) options.max_bytes = uint64_t{32} << 20;
    cache = MakeCache(model->cache_shape(), plan, std::move(options));
  }

  std::vector<float> Read(SequenceId sequence, const std::vector<int32_t>& tokens,
                          Logits which = Logits::kAll) {
    std::vector<float> logits(which == Logits::kAll ? tokens.size() * model->vocab_size()
                                                    : model->vocab_size());
    EXPECT_OK(runner->Forward(*cache, sequence, tokens, which, logits.data()));
    return logits;
  }
  std::vector<float> Decode(const std::vector<DecodeEntry>& entries) {
    std::vector<float> logits(entries.size() * model->vocab_size());
    EXPECT_OK(runner->Decode(*cache, entries, logits.data()));
    return logits;
  }

  std::shared_ptr<const DecoderModel> model;
  std::unique_ptr<DecoderRunner> runner;
  std::unique_ptr<Cache> cache;
};

struct Sides {
  Sides(const LlamaConfig& config, WeightType type, const std::string& plan = "f16")
      : executor(MakeThreadPool(1)) {
    const Result<std::shared_ptr<const LlamaModel>> model = LlamaModel::Random(config, type, 5);
    EXPECT_OK(model.status());
    const Result<std::shared_ptr<const DecoderModel>> placed = (*model)->PlaceOnGpu(0, *executor);
    EXPECT_OK(placed.status());
    cpu = std::make_unique<Side>(*model, *executor, plan);
    gpu = std::make_unique<Side>(*placed, *executor, plan);
  }

  // A prompt of more than a page, three sequences of different lengths together, one token by
  // itself. The largest error of any of them.
  double Compare() {
    double worst = 0;
    std::vector<std::vector<DecodeEntry>> entries(2);
    const std::vector<Side*> sides = {cpu.get(), gpu.get()};
    for (const int length : {80, 5, 20}) {
      std::vector<std::vector<float>> logits;
      for (size_t i = 0; i < 2; ++i) {
        const SequenceId sequence = *sides[i]->cache->CreateSequence();
        logits.push_back(sides[i]->Read(sequence, Tokens(length, length)));
        entries[i].push_back({sequence, length % 96});
      }
      worst = std::max(worst, RelativeError(logits[1], logits[0]));
    }
    for (int step = 0; step < 3; ++step) {
      worst = std::max(worst, RelativeError(gpu->Decode(entries[1]), cpu->Decode(entries[0])));
    }
    const std::vector<int32_t> one = {7};
    return std::max(worst, RelativeError(gpu->Read(entries[1][0].sequence, one, Logits::kLast),
                                         cpu->Read(entries[0][0].sequence, one, Logits::kLast)));
  }

  std::unique_ptr<Executor> executor;
  std::unique_ptr<Side> cpu;
  std::unique_ptr<Side> gpu;
};

}  // namespace varve

#endif  // VARVE_TESTS_CUDA_MODEL_SIDES_H_
