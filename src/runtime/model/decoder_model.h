// DecoderModel: a model that reads and predicts tokens on a Varve cache, whatever its family.
//
//   auto model = OpenDecoderModel(path);                         // open_model.h
//   auto cache = Cache::Create((*model)->cache_shape(), options);
//   auto runner = (*model)->MakeRunner(executor);
//   runner->Forward(*cache, sequence, tokens, Logits::kLast, logits);
//
// All that generation, evaluation, the benchmarks and the program know of a model. A family
// (llama/) derives from this class and from DecoderRunner; open_model.h chooses among the families
// by what a file says. A model is immutable and may serve many runners and threads at once. It
// keeps its file mapped; the runners keep the model.

#ifndef VARVE_RUNTIME_MODEL_DECODER_MODEL_H_
#define VARVE_RUNTIME_MODEL_DECODER_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/kernels/linear.h"
#include "runtime/model/decoder_runner.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/cache.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

// What a model is, apart from its weights.
struct DecoderInfo {
  std::string architecture;  // "llama", "qwen3", …
  std::string name;          // as the file has it; may be empty
  std::string source;        // the file, for messages; empty for random weights
  CacheShape shape;          // page_tokens 0: the plan decides
  int width = 0;             // of the residual stream
  int vocab_size = 0;
  int64_t context = 0;       // trained context length
  uint64_t fingerprint = 0;  // ModelFingerprint of the file; 0 for random weights
  // Stored bytes that one decoded token reads: all layers and the output matrix.
  uint64_t weight_bytes_per_token = 0;
};

class DecoderModel {
 public:
  virtual ~DecoderModel() = default;
  DecoderModel(const DecoderModel&) = delete;
  DecoderModel& operator=(const DecoderModel&) = delete;

  const DecoderInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  const CacheShape& cache_shape() const { return info_.shape; }
  int vocab_size() const { return info_.vocab_size; }
  int64_t context() const { return info_.context; }
  uint64_t fingerprint() const { return info_.fingerprint; }
  uint64_t weight_bytes_per_token() const { return info_.weight_bytes_per_token; }

  // The scratch for forward passes on one cache at a time. `executor` is not owned; give the cache
  // the same one.
  virtual std::unique_ptr<DecoderRunner> MakeRunner(
      Executor& executor, ProductPrecision precision = ProductPrecision::kF32) const = 0;

  // Bytes that Repack takes; 0 where it gains nothing: the weights are floats, or the processor
  // lacks the instructions.
  virtual uint64_t RepackBytes() const { return 0; }
  // The same model with a second copy of its weights in the order in which decoding reads them
  // fastest (kernels/woven_rows.h). Prompts read the first copy. Sums are added in another order:
  // results agree to rounding.
  virtual Result<std::shared_ptr<const DecoderModel>> Repack(Executor& executor) const;

  // The same model with its weights copied to a GPU: its runners compute there. Caches for them are
  // made with the options of CacheOptionsFor (model_cache.h) and must not outlive it. Weights that
  // are not f16 or bf16 are decoded and rounded to f16; results agree with the CPU's to that.
  // kUnimplemented for a family without kernels there and in a build without CUDA, kNotFound
  // without the device or cuBLASLt, kOutOfMemory if the device has no room.
  virtual Result<std::shared_ptr<const DecoderModel>> PlaceOnGpu(int device_index,
                                                                 Executor& executor) const;
  // Sets what a cache must be told so that the model's runners can use it: device and stream. On a
  // GPU it takes memory in pieces as it grows, so that caches beside each other share what is free.
  virtual void PlaceCache(CacheOptions* options) const;

  // The tokenizer that the model's file describes. Refuses one with more tokens than the model has
  // rows for. kFailedPrecondition for random weights. Errors name the file. A model need not have
  // one: whoever has token ids already does without.
  Result<std::unique_ptr<Tokenizer>> MakeTokenizer() const;

 protected:
  explicit DecoderModel(DecoderInfo info) : info_(std::move(info)) {}

 private:
  // MakeTokenizer of a model that has a file.
  virtual Result<std::unique_ptr<Tokenizer>> ReadTokenizer() const = 0;

  DecoderInfo info_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_MODEL_DECODER_MODEL_H_
