// What the tests of the Llama family share: a tiny model file that can be spoilt in one place, and
// golden models of tests/data/llama.

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_TESTING_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_TESTING_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/gguf/gguf_file.h"
#include "runtime/llama/llama_runner.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"
#include "tests/test_data.h"

namespace varve {

// Expects an error whose message contains every part of the text.
inline void ExpectRefusal(const Status& status, std::initializer_list<std::string_view> parts) {
  EXPECT_FALSE(status.ok());
  for (std::string_view part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << status.message();
  }
}

// Two layers of width 32, two query heads on one KV head of 32, vocabulary 40. The file is right
// until a test changes it.
struct TinyFile {
  struct Tensor {
    std::vector<int64_t> dims;
    WeightType type = WeightType::kF32;
  };

  explicit TinyFile(const std::string& arch = "llama") : architecture(arch) {
    ints = {{"block_count", 2},
            {"embedding_length", 32},
            {"feed_forward_length", 64},
            {"attention.head_count", 2},
            {"attention.head_count_kv", 1},
            {"attention.key_length", 32},
            {"context_length", 128},
            {"vocab_size", 40}};
    floats = {{"attention.layer_norm_rms_epsilon", 1e-5}};
    tensors = {{"token_embd.weight", {{32, 40}}}, {"output_norm.weight", {{32}}}};
    for (const std::string prefix : {"blk.0.", "blk.1."}) {
      tensors[prefix + "attn_norm.weight"] = {{32}};
      tensors[prefix + "attn_q.weight"] = {{32, 64}};
      tensors[prefix + "attn_k.weight"] = {{32, 32}};
      tensors[prefix + "attn_v.weight"] = {{32, 32}};
      tensors[prefix + "attn_output.weight"] = {{64, 32}};
      tensors[prefix + "ffn_norm.weight"] = {{32}};
      tensors[prefix + "ffn_gate.weight"] = {{32, 64}};
      tensors[prefix + "ffn_up.weight"] = {{32, 64}};
      tensors[prefix + "ffn_down.weight"] = {{64, 32}};
    }
  }

  Result<std::shared_ptr<const GgufFile>> Open() {
    GgufBuilder builder;
    builder.String("general.architecture", architecture);
    for (const auto& [key, value] : ints) builder.Int(architecture + "." + key, value);
    for (const auto& [key, value] : floats) builder.Float(architecture + "." + key, value);
    for (const auto& [key, value] : strings) builder.String(architecture + "." + key, value);
    for (const auto& [key, value] : arrays) builder.Ints(architecture + "." + key, value);
    for (const auto& [key, value] : bools) builder.Bool(architecture + "." + key, value);
    for (const auto& [name, tensor] : tensors) AddTensor(name, tensor, builder);
    bytes = builder.Build();
    return GgufFile::FromMemory(bytes, "tiny.gguf");
  }

  Status LoadStatus() {
    Result<std::shared_ptr<const GgufFile>> file = Open();
    return file.ok() ? LlamaModel::Load(*file).status() : file.status();
  }
  Result<LlamaConfig> Config() {
    VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, Open());
    return ReadLlamaConfig(*file);
  }

  std::string architecture;
  std::map<std::string, int64_t> ints;
  std::map<std::string, double> floats;
  std::map<std::string, std::string> strings;
  std::map<std::string, std::vector<int64_t>> arrays;
  std::map<std::string, bool> bools;
  std::map<std::string, Tensor> tensors;
  std::vector<std::byte> bytes;

 private:
  static void AddTensor(const std::string& name, const Tensor& tensor, GgufBuilder& builder) {
    if (tensor.type != WeightType::kF32) {
      builder.Tensor(name, tensor.dims, tensor.type, TensorBytes(tensor.dims, tensor.type));
      return;
    }
    size_t count = 1;
    for (int64_t dim : tensor.dims) count *= dim;
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = tensor.dims.size() == 1
                      ? 1.0f
                      : 0.25f * std::sin(static_cast<float>(i * (name.size() + 3)));
    builder.TensorF32(name, tensor.dims, values);
  }
};

// NAME.gguf, or the model that ships with Varve if NAME is "embedded", and what the reference says
// of it.
struct GoldenModel {
  explicit GoldenModel(const std::string& name) {
    const std::string stem = TestDataPath(std::string("llama/") + name);
    Result<std::shared_ptr<const GgufFile>> file = GgufFile::Open(
        name == "embedded" ? TestDataPath("../../models/varve-books-29m.gguf") : stem + ".gguf");
    EXPECT_OK(file.status());
    Result<std::shared_ptr<const LlamaModel>> loaded = LlamaModel::Load(*file);
    EXPECT_OK(loaded.status());
    model = *loaded;
    std::ifstream stream(stem + ".json");
    const nlohmann::json golden = nlohmann::json::parse(stream);
    tokens = golden["tokens"].get<std::vector<int32_t>>();
    perplexity = golden["perplexity"].get<double>();
    stride = golden["stride"].get<size_t>();
    for (const auto& [position, values] : golden["logits"].items())
      logits[std::stoi(position)] = values.get<std::vector<float>>();
  }

  std::unique_ptr<Cache> NewCache(std::string_view plan, Executor* executor) const {
    CacheOptions options;
    options.executor = executor;
    return MakeCache(model->cache_shape(), plan, std::move(options));
  }

  std::shared_ptr<const LlamaModel> model;
  std::vector<int32_t> tokens;
  double perplexity = 0;
  size_t stride = 1;                         // every stride-th logit is known
  std::map<int, std::vector<float>> logits;  // by position, [vocab_size / stride]
};

// A cache that loses nothing.
inline constexpr std::string_view kExactPlan = "kv=f32,open_rung=f32";

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_TESTING_H_
