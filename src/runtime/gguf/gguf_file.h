// GgufFile: a GGUF model file (version 2 or 3, little-endian), mapped and checked, never copied.
//
// Open reads the header, the metadata and the tensor directory, of all parts if the file is the
// first of a split (name-00001-of-00003.gguf). Everything that the file says about itself (counts,
// lengths, types, offsets) is checked against the file before it is used: a file that lies gives a
// Status with field, value and limit: kInvalidArgument if it is no GGUF file, kUnimplemented for a
// version, byte order or tensor type that is not read, kDataLoss if it contradicts itself. Tensor
// data is not touched until somebody reads it, and lies at a multiple of 8 bytes or more. Strings
// are any bytes, not always UTF-8. Of a split file, the keys are those of the first part.
//
// Tensors of a file that is shortened while it is open read as zeros, and CheckWhole fails.
//
// Immutable after Open; any number of threads may read. Views (strings, arrays, tensors) live as
// long as the GgufFile.

#ifndef VARVE_RUNTIME_GGUF_GGUF_FILE_H_
#define VARVE_RUNTIME_GGUF_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernels/weights.h"
#include "varve/status.h"

namespace varve {

// Numbers as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// One metadata value; a view into the file. Arrays of arrays are kept as bytes only.
struct GgufValue {
  GgufType type = GgufType::kU32;
  GgufType element_type = GgufType::kU32;  // of an array
  uint64_t count = 1;                      // elements of an array
  std::span<const std::byte> bytes;        // the value, or all elements, as stored
};

struct GgufTensor {
  std::string_view name;
  std::vector<int64_t> dims;  // as in the file: dims[0] is the fastest (columns)
  WeightType type = WeightType::kF32;
  std::span<const std::byte> data;
};

class GgufFile {
 public:
  // kNotFound if there is no such file. The first part of a split file opens all of them. The path
  // may name the hash that the content must have (base/pinned_name.h); another one is kDataLoss.
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& pinned_path);
  // Over memory that outlives the object (the embedded model, tests, fuzzing) and begins at a
  // multiple of 8. `name` is for messages. A split file cannot be opened this way.
  static Result<std::shared_ptr<const GgufFile>> FromMemory(std::span<const std::byte> bytes,
                                                            std::string name);
  virtual ~GgufFile() = default;

  virtual const std::string& name() const = 0;  // path, or the name given
  virtual uint32_t version() const = 0;
  virtual uint64_t file_bytes() const = 0;  // of all parts
  // XXH3-64 of all bytes, as `xxhsum -H3` prints it; later parts of a split file are hashed with
  // the hash so far as their seed. Reads the whole file.
  virtual uint64_t ContentHash() const = 0;
  // kDataLoss if bytes were missing when they were read: somebody has shortened the file since it
  // was opened.
  virtual Status CheckWhole() const = 0;
  // The status with the file's name in front, unless it stands there already.
  Status InFile(const Status& status) const;

  // --- metadata ---
  virtual std::span<const std::string_view> keys() const = 0;  // in the file's order
  virtual const GgufValue* Find(std::string_view key) const = 0;

  // Typed access. A missing key gives kNotFound, a value of another type or outside the range that
  // the caller can use gives kInvalidArgument; both name key, value and what was expected. GetInt
  // takes every integer type, GetFloat every float and integer type; GetInts and GetFloats
  // likewise, for arrays.
  Result<int64_t> GetInt(std::string_view key, int64_t min, int64_t max) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  Result<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  Result<std::vector<float>> GetFloats(std::string_view key) const;
  Result<std::vector<int32_t>> GetInts(std::string_view key) const;
  // The default if the key is missing; an error if it is there and wrong.
  Result<int64_t> GetIntOr(std::string_view key, int64_t min, int64_t max, int64_t missing) const;
  Result<double> GetFloatOr(std::string_view key, double missing) const;
  Result<bool> GetBoolOr(std::string_view key, bool missing) const;
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view missing) const;

  // --- tensors ---
  virtual std::span<const GgufTensor> tensors() const = 0;
  virtual const GgufTensor* FindTensor(std::string_view name) const = 0;
  // A tensor that must be [rows, cols] (cols fastest); a vector is rows = 1. Errors name the
  // tensor, its shape and the shape wanted.
  Result<WeightMatrix> GetMatrix(std::string_view name, int64_t rows, int64_t cols) const;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_GGUF_GGUF_FILE_H_
