// Made-up weights for speed measurements: the bytes of a real model's shape, filled at the speed of
// memory.
//
// A pattern of random blocks is drawn per input size and copied over and over. Its length is prime,
// so that no two of a matrix's first 16381 rows begin at the same place of it. Values have mean
// zero and a variance of about 1 / cols: a product with unit inputs has about unit variance.

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/random.h"
#include "runtime/kernels/weights_random.h"
#include "runtime/llama/llama_weights.h"

namespace varve {
namespace {

constexpr size_t kPatternBlocks = 16381;  // prime; 64 KB to 3.4 MB, which caches hold
constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

class Random64 : public SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  // Uniform in [-1, 1).
  float Symmetric() { return static_cast<float>(static_cast<int64_t>(Next()) >> 39) * 0x1p-24f; }
};

// Hands out the memory of one mapping, filled.
class Filler {
 public:
  Filler(WeightType type, uint64_t seed, std::byte* memory)
      : type_(type), random_(seed), next_(memory) {}

  WeightMatrix Make(int64_t rows, int64_t cols) {
    const WeightMatrix matrix{type_, rows, cols, next_};
    const std::vector<std::byte>& pattern = PatternFor(cols);
    const size_t block_bytes = InfoOf(type_).block_bytes;
    size_t from = random_.Next() % kPatternBlocks * block_bytes;
    for (size_t done = 0; done < matrix.bytes();) {
      const size_t bytes = std::min(pattern.size() - from, matrix.bytes() - done);
      std::memcpy(next_ + done, pattern.data() + from, bytes);
      done += bytes;
      from = 0;
    }
    next_ += AlignUp(matrix.bytes(), kAlignment);
    return matrix;
  }

  // Around 1, as trained norms are.
  std::vector<float> MakeNorm(int64_t size) {
    std::vector<float> norm(size);
    for (float& value : norm) value = 1.0f + 0.1f * random_.Symmetric();
    return norm;
  }
  std::vector<float> MakeBias(int64_t size) {
    std::vector<float> bias(size);
    for (float& value : bias) value = 0.1f * random_.Symmetric();
    return bias;
  }

 private:
  const std::vector<std::byte>& PatternFor(int64_t cols) {
    std::vector<std::byte>& pattern = patterns_[cols];
    if (!pattern.empty()) return pattern;
    const WeightTypeInfo& info = InfoOf(type_);
    pattern.resize(kPatternBlocks * info.block_bytes);
    FillRandomWeights(type_, static_cast<int64_t>(kPatternBlocks) * info.block_values,
                      1.0f / std::sqrt(static_cast<float>(cols)), random_.Next(), pattern.data());
    return pattern;
  }

  WeightType type_;
  Random64 random_;
  std::byte* next_;
  std::map<int64_t, std::vector<std::byte>> patterns_;  // by cols
};

size_t StoredBytes(WeightType type, int64_t rows, int64_t cols) {
  return AlignUp(WeightMatrix{type, rows, cols, nullptr}.bytes(), kAlignment);
}

size_t AllBytes(const LlamaConfig& config, WeightType type) {
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  const size_t layer =
      StoredBytes(type, q, config.width) + 2 * StoredBytes(type, kv, config.width) +
      StoredBytes(type, config.width, q) + 2 * StoredBytes(type, config.ffn_width, config.width) +
      StoredBytes(type, config.width, config.ffn_width);
  const size_t outside = StoredBytes(type, config.vocab_size, config.width);
  return layer * config.num_layers + outside * (config.tied_embeddings ? 1 : 2);
}

LlamaLayer MakeLayer(const LlamaConfig& config, Filler& filler) {
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  LlamaLayer layer;
  layer.attention_norm = filler.MakeNorm(config.width);
  layer.query = filler.Make(q, config.width);
  layer.key = filler.Make(kv, config.width);
  layer.value = filler.Make(kv, config.width);
  layer.attention_output = filler.Make(config.width, q);
  if (config.qkv_bias) {
    layer.query_bias = filler.MakeBias(q);
    layer.key_bias = filler.MakeBias(kv);
    layer.value_bias = filler.MakeBias(kv);
  }
  if (config.qk_norm) {
    layer.query_norm = filler.MakeNorm(config.head_dim);
    layer.key_norm = filler.MakeNorm(config.head_dim);
  }
  layer.ffn_norm = filler.MakeNorm(config.width);
  layer.ffn_gate = filler.Make(config.ffn_width, config.width);
  layer.ffn_up = filler.Make(config.ffn_width, config.width);
  layer.ffn_down = filler.Make(config.width, config.ffn_width);
  if (config.post_norms) {
    layer.attention_post_norm = filler.MakeNorm(config.width);
    layer.ffn_post_norm = filler.MakeNorm(config.width);
  }
  return layer;
}

Status CheckRandom(const LlamaConfig& config, WeightType type) {
  const int block = InfoOf(type).block_values;
  for (const auto& [name, cols] :
       {std::pair<const char*, int64_t>{"width", config.width},
        std::pair<const char*, int64_t>{"ffn_width", config.ffn_width},
        std::pair<const char*, int64_t>{"num_heads * head_dim",
                                        int64_t{config.num_heads} * config.head_dim}}) {
    if (cols <= 0 || cols % block != 0) {
      return InvalidArgument(fmt::format("random weights: {} {} must be a multiple of {} ({})",
                                         name, cols, block, InfoOf(type).name));
    }
  }
  return {};
}

}  // namespace

std::unique_ptr<WeightMemory> WeightMemory::Map(size_t bytes) {
  const size_t mapped = AlignUp(std::max<size_t>(bytes, 1), kHugePage);
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  madvise(address, mapped, MADV_HUGEPAGE);
  return std::unique_ptr<WeightMemory>(new WeightMemory(static_cast<std::byte*>(address), mapped));
}

WeightMemory::~WeightMemory() { munmap(data_, bytes_); }

Result<std::unique_ptr<LlamaWeights>> RandomLlamaWeights(const LlamaConfig& config, WeightType type,
                                                         uint64_t seed) {
  VARVE_RETURN_IF_ERROR(CheckRandom(config, type));
  const size_t bytes = AllBytes(config, type);
  auto weights = std::make_unique<LlamaWeights>();
  weights->memory = WeightMemory::Map(bytes);
  if (weights->memory == nullptr) {
    return OutOfMemory(fmt::format("random weights: the system has no {} bytes", bytes));
  }
  Filler filler(type, seed, weights->memory->data());
  weights->token_embedding = filler.Make(config.vocab_size, config.width);
  for (int i = 0; i < config.num_layers; ++i) weights->layers.push_back(MakeLayer(config, filler));
  weights->output_norm = filler.MakeNorm(config.width);
  weights->output = config.tied_embeddings ? weights->token_embedding
                                           : filler.Make(config.vocab_size, config.width);
  return weights;
}

}  // namespace varve
