// What one GGUF file (or one part of a split one) says about itself, read and checked.
//
//   "GGUF" | version u32 | tensor count u64 | key count u64
//   keys:    name string | type u32 | value
//   tensors: name string | dims u32 | size u64 per dim | type u32 | offset u64
//   padding to general.alignment (32 unless the file says otherwise) | tensor data
//
// A string is a u64 length and its bytes; an array a u32 type, a u64 count and the elements.
// Everything is little-endian. Offsets count from the first byte of tensor data.
//
// The parser allocates in proportion to the bytes that are there, never to a count that a file
// claims, and takes time O(n log n). It touches no tensor data.

#ifndef VARVE_RUNTIME_GGUF_GGUF_PARSER_H_
#define VARVE_RUNTIME_GGUF_GGUF_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/gguf/name_index.h"
#include "varve/status.h"

namespace varve {

inline constexpr uint64_t kGgufDefaultAlignment = 32;
// Limits of the format's document (names), of ggml (dims) and of ours (depth, alignment).
inline constexpr uint64_t kGgufMaxNameBytes = 65535;
inline constexpr uint32_t kGgufMaxDims = 4;
inline constexpr int kGgufMaxArrayDepth = 8;
inline constexpr int64_t kGgufMaxAlignment = 1 << 20;

struct GgufPart {
  uint32_t version = 0;
  uint64_t alignment = kGgufDefaultAlignment;
  NameIndex keys;
  std::vector<GgufValue> values;  // values[i] belongs to keys.names()[i]
  std::vector<GgufTensor> tensors;
};

// Views in the result point into `bytes`. `name` begins every message. kInvalidArgument if this is
// no GGUF file, kUnimplemented for a version, byte order or tensor type that is not read, kDataLoss
// if the file contradicts itself.
Result<GgufPart> ParseGguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace varve

#endif  // VARVE_RUNTIME_GGUF_GGUF_PARSER_H_
