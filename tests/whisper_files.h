// Whisper models as bytes of OpenAI's .pt and of CTranslate2's model.bin, right ones and wrong
// ones, for tests of their readers and for corpora of fuzzers.

#ifndef VARVE_TESTS_WHISPER_FILES_H_
#define VARVE_TESTS_WHISPER_FILES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/whisper/whisper_tensors.h"

namespace varve {

// What a checkpoint says. A test changes what it likes and builds the file.
struct WhisperPtParts {
  struct Tensor {
    std::string name;
    std::string storage_type;  // "HalfStorage"
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;
    int64_t offset = 0;
    std::vector<std::byte> storage;
  };
  std::vector<std::pair<std::string, int64_t>> dims;
  std::vector<Tensor> tensors;
  std::string dims_name = "dims";
  std::string state_name = "model_state_dict";

  // f32 and f16 as they are; other types become f32.
  explicit WhisperPtParts(const WhisperTensors& model);
  Tensor& Find(std::string_view name);
  std::vector<std::byte> Build() const;
};

// The same of model.bin.
struct WhisperCt2Parts {
  struct Variable {
    std::string name;
    std::vector<uint32_t> dims;
    uint8_t dtype = 0;
    std::vector<std::byte> data;
  };
  uint32_t version = 6;
  std::string spec = "WhisperSpec";
  std::vector<Variable> variables;
  std::vector<std::pair<std::string, std::string>> aliases;

  // f16 where the tensors are, f32 otherwise.
  explicit WhisperCt2Parts(const WhisperTensors& model);
  Variable& Find(std::string_view name);
  void Erase(std::string_view name);
  std::vector<std::byte> Build() const;
};

// For fuzzers: ends the process unless the reader has refused with a message that begins with
// "fuzz: ", or has given every tensor of its config, aligned, in the right shape and finite.
void RequireWholeOrRefused(const Result<WhisperTensors>& read);

}  // namespace varve

#endif  // VARVE_TESTS_WHISPER_FILES_H_
