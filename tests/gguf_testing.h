// GgufBuilder: writes small GGUF files for tests, right ones and wrong ones. It writes what it is
// told and shares no code with the reader. TempFolder: a folder that is removed at the end.

#ifndef VARVE_TESTS_GGUF_TESTING_H_
#define VARVE_TESTS_GGUF_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/kernels/weights.h"

namespace varve {

// Keys and tensors are written in the order of the calls; tensor data in the same order, each at
// the next multiple of the alignment. The file ends with the last byte of the last tensor.
//
//   const std::vector<std::byte> file = GgufBuilder()
//       .String("general.architecture", "llama").Int("llama.block_count", 2)
//       .Floats("tokenizer.ggml.scores", {0, -1}).TensorF32("norm", {64}, values).Build();
//   GgufFile::FromMemory(file, "test");
class GgufBuilder {
 public:
  GgufBuilder& Version(uint32_t version);
  // Also adds the key general.alignment.
  GgufBuilder& Alignment(uint32_t alignment);

  // Any integer type; a value that does not fit is cut off.
  GgufBuilder& Int(std::string_view key, int64_t value, GgufType type = GgufType::kU32);
  GgufBuilder& Float(std::string_view key, double value, GgufType type = GgufType::kF32);
  GgufBuilder& Bool(std::string_view key, bool value);
  GgufBuilder& String(std::string_view key, std::string_view value);
  GgufBuilder& Ints(std::string_view key, const std::vector<int64_t>& values,
                    GgufType type = GgufType::kI32);
  GgufBuilder& Floats(std::string_view key, const std::vector<float>& values);
  GgufBuilder& Bools(std::string_view key, const std::vector<bool>& values);
  GgufBuilder& Strings(std::string_view key, const std::vector<std::string>& values);
  // A key with any type number and any bytes as its value.
  GgufBuilder& Raw(std::string_view key, uint32_t type, std::span<const std::byte> bytes);

  // dims[0] is the fastest (columns).
  GgufBuilder& Tensor(std::string_view name, const std::vector<int64_t>& dims, WeightType type,
                      std::span<const std::byte> bytes);
  GgufBuilder& TensorF32(std::string_view name, const std::vector<int64_t>& dims,
                         const std::vector<float>& values);
  // A tensor with any type number; at `offset` if given. Its bytes still go to the next free place.
  GgufBuilder& RawTensor(std::string_view name, const std::vector<int64_t>& dims, uint32_t type,
                         std::span<const std::byte> bytes, std::optional<uint64_t> offset = {});

  std::vector<std::byte> Build() const;
  // Builds into a file.
  void Write(const std::string& path) const;

 private:
  void AddKey(std::string_view key, uint32_t type);

  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  std::vector<std::byte> keys_;
  std::vector<std::byte> tensors_;
  std::vector<std::byte> data_;
};

// The file's number of a tensor type.
uint32_t GgmlNumber(WeightType type);

// As many bytes as a tensor of these dims has, all different from their neighbours.
std::vector<std::byte> TensorBytes(const std::vector<int64_t>& dims, WeightType type);

// A fresh folder, removed with everything in it at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

void WriteBytes(const std::string& path, std::span<const std::byte> bytes);

}  // namespace varve

#endif  // VARVE_TESTS_GGUF_TESTING_H_
