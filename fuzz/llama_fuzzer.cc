// Models from strangers: whatever a file says about its shape, rotary embedding and tensors, it is
// refused with a reason, or it runs. The first byte chooses:
//   'G'     the input is a GGUF file
//   others  the input describes one (Description): a small right model, then changes of single
//           keys and tensors, most of which must be refused
// What loads gets a cache of its shape and computes two tokens and a third; a second run of the
// same on another sequence must give the same bits, which scratch that nobody wrote would not.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/kernels/weights_random.h"
#include "runtime/llama/llama_runner.h"
#include "tests/gguf_testing.h"
#include "varve/cache.h"
#include "varve/executor.h"

namespace {

using varve::GgufBuilder;
using varve::GgufFile;
using varve::GgufType;
using varve::LlamaModel;
using varve::Logits;
using varve::ProductPrecision;
using varve::Result;
using varve::WeightType;

constexpr const char* kArchitectures[] = {"llama",  "mistral", "qwen2", "qwen3",
                                          "gemma2", "gemma3",  "bert"};
constexpr const char* kPlans[] = {"f16", "q8_0", "q4_0r", "t4", "f32,open_rung=f32"};
constexpr int64_t kWidths[] = {16, 32, 64, 256};
constexpr int64_t kHeads[] = {1, 2, 4, 3};
constexpr int64_t kHeadDims[] = {16, 32, 48, 64};
constexpr int64_t kVocabs[] = {1, 2, 5, 40};

constexpr const char* kKeys[] = {
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "context_length",
    "vocab_size",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "rope.dimension_count",
    "rope.scaling.original_context_length",
    "expert_count",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.type",
    "attention.causal",
};
constexpr int64_t kInts[] = {0,
                             1,
                             -1,
                             2,
                             3,
                             6,
                             15,
                             17,
                             512,
                             513,
                             1024,
                             1025,
                             1 << 20,
                             1 << 24,
                             1LL << 31,
                             1LL << 40,
                             std::numeric_limits<int64_t>::max(),
                             std::numeric_limits<int64_t>::min()};
constexpr double kFloats[] = {0,
                              1,
                              -1,
                              0.5,
                              4,
                              1e-12,
                              1e-3,
                              1.000001,
                              1e6,
                              1e9,
                              1e12,
                              1e38,
                              1e-40,
                              std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
constexpr const char* kStrings[] = {"none", "linear", "yarn", "longrope", ""};

template <typename T, size_t n>
const T& Pick(const T (&values)[n], int number) {
  return values[static_cast<size_t>(number) % n];
}

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

class Description {
 public:
  Description(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  std::vector<std::byte> Build() {
    prefix_ = std::string(Pick(kArchitectures, Next())) + ".";
    AddKeys();
    AddTensors();
    for (int changes = 0; size_ > 0 && changes < 16; ++changes) Change();
    GgufBuilder builder;
    builder.String("general.architecture", prefix_.substr(0, prefix_.size() - 1));
    for (const auto& [key, add] : keys_) add(builder, key);
    for (const auto& [name, tensor] : tensors_) Add(name, tensor, builder);
    return builder.Build();
  }

 private:
  struct Tensor {
    std::vector<int64_t> dims;
    WeightType type = WeightType::kF32;
  };

  int Next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }

  void SetInt(const std::string& key, int64_t value, GgufType type = GgufType::kU32) {
    keys_[prefix_ + key] = [=](GgufBuilder& builder, const std::string& name) {
      builder.Int(name, value, type);
    };
  }
  void SetFloat(const std::string& key, double value, GgufType type = GgufType::kF32) {
    keys_[prefix_ + key] = [=](GgufBuilder& builder, const std::string& name) {
      builder.Float(name, value, type);
    };
  }

  void AddKeys() {
    layers_ = 1 + Next() % 2;
    width_ = Pick(kWidths, Next());
    kv_heads_ = Pick(kHeads, Next());
    heads_ = kv_heads_ * Pick(kHeads, Next());
    head_dim_ = Pick(kHeadDims, Next());
    ffn_width_ = Pick(kWidths, Next());
    vocab_ = Pick(kVocabs, Next());
    SetInt("block_count", layers_);
    SetInt("embedding_length", width_);
    SetInt("feed_forward_length", ffn_width_);
    SetInt("attention.head_count", heads_);
    SetInt("attention.head_count_kv", kv_heads_);
    SetInt("attention.key_length", head_dim_);
    SetInt("context_length", 128);
    SetInt("vocab_size", vocab_);
    SetInt("attention.sliding_window", 1 + Next() % 4);
    SetFloat("attention.layer_norm_rms_epsilon", 1e-5);
  }

  void AddMatrix(const std::string& name, int64_t rows, int64_t cols) {
    const bool fits = cols % varve::InfoOf(type_).block_values == 0;
    tensors_[name] = {{cols, rows}, fits ? type_ : WeightType::kF32};
  }
  void AddVector(const std::string& name, int64_t size) { tensors_[name] = {{size}}; }

  void AddTensors() {
    type_ = static_cast<WeightType>(Next() % varve::kNumWeightTypes);
    const int flags = Next();
    has_sane_weights_ = (flags & 1) == 0;
    const int64_t q = heads_ * head_dim_;
    const int64_t kv = kv_heads_ * head_dim_;
    AddMatrix("token_embd.weight", vocab_, width_);
    AddVector("output_norm.weight", width_);
    if ((flags & 2) != 0) AddMatrix("output.weight", vocab_, width_);
    if ((flags & 4) != 0) AddVector("rope_freqs.weight", head_dim_ / 2);
    for (int layer = 0; layer < layers_; ++layer) {
      const std::string blk = "blk." + std::to_string(layer) + ".";
      AddMatrix(blk + "attn_q.weight", q, width_);
      AddMatrix(blk + "attn_k.weight", kv, width_);
      AddMatrix(blk + "attn_v.weight", kv, width_);
      AddMatrix(blk + "attn_output.weight", width_, q);
      AddMatrix(blk + "ffn_gate.weight", ffn_width_, width_);
      AddMatrix(blk + "ffn_up.weight", ffn_width_, width_);
      AddMatrix(blk + "ffn_down.weight", width_, ffn_width_);
      AddVector(blk + "attn_norm.weight", width_);
      AddVector(blk + "ffn_norm.weight", width_);
      if (prefix_ == "qwen2." || (flags & 8) != 0) {
        AddVector(blk + "attn_q.bias", q);
        AddVector(blk + "attn_k.bias", kv);
        AddVector(blk + "attn_v.bias", kv);
      }
      if ((flags & 16) != 0) AddVector(blk + "attn_output.bias", width_);
      if (prefix_ == "qwen3." || prefix_ == "gemma3.") {
        AddVector(blk + "attn_q_norm.weight", head_dim_);
        AddVector(blk + "attn_k_norm.weight", head_dim_);
      }
      if (prefix_.starts_with("gemma")) {
        AddVector(blk + "post_attention_norm.weight", width_);
        AddVector(blk + "post_ffw_norm.weight", width_);
      }
    }
  }

  // Four bytes: what, which, and to what.
  void Change() {
    const int kind = Next();
    const int which = Next();
    const int value = Next();
    const int form = Next();
    const std::string key = Pick(kKeys, which);
    auto tensor = std::next(tensors_.begin(), static_cast<ptrdiff_t>(which % tensors_.size()));
    switch (kind % 10) {
      case 0:
        return SetInt(key, Pick(kInts, value), static_cast<GgufType>(form % 13));
      case 1:
        return SetInt(key, value);
      case 2:
        return SetFloat(key, Pick(kFloats, value), form % 2 == 0 ? GgufType::kF32 : GgufType::kF64);
      case 3:
        keys_[prefix_ + key] = [=](GgufBuilder& builder, const std::string& name) {
          builder.String(name, Pick(kStrings, value));
        };
        return;
      case 4:
        keys_[prefix_ + key] = [=](GgufBuilder& builder, const std::string& name) {
          std::vector<int64_t> values(static_cast<size_t>(form % 4), value);
          if (form >= 128 && !values.empty()) values.back() = form;
          builder.Ints(name, values);
        };
        return;
      case 5:
        keys_.erase(prefix_ + key);
        return;
      case 6:
        if (tensors_.size() > 1) tensors_.erase(tensor);
        return;
      case 7:
        tensor->second.dims[static_cast<size_t>(form) % tensor->second.dims.size()] = value % 65;
        return;
      case 8:
        tensor->second.type = static_cast<WeightType>(value % varve::kNumWeightTypes);
        return;
      default: {
        const std::string layer = "blk." + std::to_string(value % 3) + ".";
        const size_t dot = tensor->first.find('.', 4);
        const bool in_layer = tensor->first.starts_with("blk.");
        tensors_[in_layer ? layer + tensor->first.substr(dot + 1) : layer + tensor->first] =
            tensor->second;
        return;
      }
    }
  }

  void Add(const std::string& name, const Tensor& tensor, GgufBuilder& builder) const {
    int64_t values = 1;
    for (const int64_t dim : tensor.dims) values *= dim;
    if (values == 0 || tensor.dims[0] % varve::InfoOf(tensor.type).block_values != 0) {
      builder.Tensor(name, tensor.dims, tensor.type, std::vector<std::byte>(64));
      return;
    }
    std::vector<std::byte> bytes = varve::TensorBytes(tensor.dims, tensor.type);
    if (has_sane_weights_) {
      varve::FillRandomWeights(tensor.type, values, 0.25f, name.size(), bytes.data());
    }
    // Divisors must be positive.
    if (name == "rope_freqs.weight" && has_sane_weights_ && tensor.type == WeightType::kF32) {
      const std::vector<float> ones(static_cast<size_t>(values), 1.0f);
      std::memcpy(bytes.data(), ones.data(), bytes.size());
    }
    builder.Tensor(name, tensor.dims, tensor.type, bytes);
  }

  const uint8_t* data_;
  size_t size_;
  std::string prefix_;  // "llama."
  int layers_ = 0;
  int64_t width_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, ffn_width_ = 0, vocab_ = 0;
  WeightType type_ = WeightType::kF32;
  bool has_sane_weights_ = true;  // otherwise any bits, NaN and Inf among them
  std::map<std::string, std::function<void(GgufBuilder&, const std::string&)>> keys_;
  std::map<std::string, Tensor> tensors_;
};

// Logits of three tokens, on a sequence of their own.
std::vector<float> RunTokens(varve::LlamaRunner& runner, varve::Cache& cache) {
  const int vocab = runner.model().vocab_size();
  const std::vector<int32_t> tokens = {0, vocab - 1};
  const size_t row = static_cast<size_t>(vocab);
  std::vector<float> logits(3 * row);
  const Result<varve::SequenceId> sequence = cache.CreateSequence();
  Require(sequence.ok(), sequence.status().ToString());
  const varve::Status prompt =
      runner.Forward(cache, *sequence, tokens, Logits::kAll, logits.data());
  Require(prompt.ok(), prompt.ToString());
  const varve::DecodeEntry entry{.sequence = *sequence, .token = vocab / 2};
  const varve::Status next = runner.Decode(cache, {&entry, 1}, logits.data() + 2 * row);
  Require(next.ok(), next.ToString());
  return logits;
}

void RunModel(const std::shared_ptr<const LlamaModel>& model, int choice) {
  static const std::unique_ptr<varve::Executor> executor = varve::MakeThreadPool(1);
  varve::CacheOptions options;
  // f16 takes every shape, blocks of 32 do not.
  const bool takes_blocks = model->config().head_dim % 32 == 0;
  options.plan = *varve::ParsePlan(takes_blocks ? Pick(kPlans, choice) : "f16");
  options.executor = executor.get();
  const auto cache = varve::Cache::Create(model->cache_shape(), std::move(options));
  Require(cache.ok(), "a model that loads has no cache: " + cache.status().ToString());
  varve::LlamaRunner runner(model, *executor,
                            choice >= 128 ? ProductPrecision::kBF16 : ProductPrecision::kF32);
  const std::vector<float> first = RunTokens(runner, **cache);
  const std::vector<float> second = RunTokens(runner, **cache);
  Require(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)) == 0,
          "two runs differ");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // A copy: aligned, and with nothing readable behind it.
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data(), data, size);
  if (data[0] != 'G') bytes = Description(data + 1, size - 1).Build();
  const Result<std::shared_ptr<const GgufFile>> file = GgufFile::FromMemory(bytes, "fuzz");
  if (!file.ok()) return 0;  // gguf_fuzzer.cc
  const Result<std::shared_ptr<const LlamaModel>> model = LlamaModel::Load(*file);
  if (model.ok()) {
    RunModel(*model, data[0]);
    return 0;
  }
  Require(model.status().message().starts_with("fuzz: "), model.status().ToString());
  Require(model.status().code() != varve::StatusCode::kInternal, model.status().ToString());
  return 0;
}
