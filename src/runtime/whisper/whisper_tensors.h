// A Whisper model as named tensors: what the readers of its file formats give, whatever the format,
// and what the writer takes. Names are OpenAI's ("encoder.blocks.0.attn.query.weight").
//
// Tensors are copies in aligned memory: none of the formats aligns its data, and products want rows
// that they can load. Biases, norms and positions are f32 whatever the file has; matrices and
// convolutions keep the file's type (f64, which no product takes, becomes f32).
//
// WhisperTensors owns the memory and can be moved. Reading it is safe from any number of threads.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_TENSORS_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <hwy/aligned_allocator.h>

#include "base/atomic_file.h"
#include "runtime/kernels/weights.h"
#include "runtime/whisper/whisper_config.h"
#include "varve/status.h"

namespace varve {

struct WhisperTensor {
  WeightType type = WeightType::kF32;
  std::vector<int64_t> dims;  // outermost first: [rows, cols], [out, in, 3], [n]
  const std::byte* data = nullptr;

  int64_t values() const;
  size_t bytes() const { return matrix().bytes(); }
  // The tensor as a matrix: the first dimension by all others.
  WeightMatrix matrix() const;
};

struct WhisperTensors {
  WhisperConfig config;
  std::vector<std::string> tokens;  // bytes of the ordinary tokens, by id; empty: the embedded list
  std::map<std::string, WhisperTensor> tensors;
  std::vector<hwy::AlignedFreeUniquePtr<std::byte[]>> storage;  // what the tensors point into

  // Puts a tensor there and gives its memory, which is not set; 64-byte aligned. Null: no memory.
  std::byte* Add(const std::string& name, WeightType type, std::vector<int64_t> dims);
};

// A tensor that a config asks for.
struct WhisperTensorShape {
  std::string name;
  std::vector<int64_t> dims;
  // Whether it is a factor of products: a matrix or a convolution. What is not is f32.
  bool is_factor = false;
};
// All of them, the encoder's first.
std::vector<WhisperTensorShape> WhisperTensorShapes(const WhisperConfig& config);

enum class WhisperFileKind : uint8_t { kNone, kGgml, kPt, kCt2 };
// By the first bytes alone; any file of torch.save is kPt.
WhisperFileKind WhisperKindOf(std::span<const std::byte> bytes);
const char* WhisperFileKindName(WhisperFileKind kind);  // "ggml", "PyTorch", "CTranslate2"

// Any of: a ggml file (ggml-*.bin), a .pt of OpenAI, a model.bin of CTranslate2. Every tensor that
// the config asks for is there with the right shape and finite scales; others are refused by name.
Result<WhisperTensors> ReadWhisperFile(const std::string& path);
Result<WhisperTensors> ReadWhisperGgml(std::span<const std::byte> bytes, const std::string& name);
Result<WhisperTensors> ReadWhisperPt(std::span<const std::byte> bytes, const std::string& name);
Result<WhisperTensors> ReadWhisperCt2(std::span<const std::byte> bytes, const std::string& name);

struct WhisperWriteOptions {
  // Called now and then with how much is done, 0 to 1.
  std::function<void(double)> progress;
  FileOps* file_ops = SystemFileOps();  // not owned
};

// A ggml file that whisper.cpp reads too: matrices in `type` (f32, f16, q8_0, q5_0, q5_1, q4_0 or
// q4_1), everything that whisper.cpp keeps in f32 in f32, convolutions in f16 unless `type` is f32.
// What the model has in that type already is written as it is. The file appears whole or not at
// all. kInvalidArgument names a tensor that is missing, that `type` cannot hold, or a type that is
// none of these.
Status WriteWhisperGgml(const WhisperTensors& model, WeightType type, const std::string& path,
                        const WhisperWriteOptions& options = {});

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_TENSORS_H_
