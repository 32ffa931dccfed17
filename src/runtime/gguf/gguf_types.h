// The numbers of the GGUF format: metadata types and tensor types, their names and sizes. Internal
// to src/runtime/gguf and to programs that show files. Pure functions.

#ifndef VARVE_RUNTIME_GGUF_GGUF_TYPES_H_
#define VARVE_RUNTIME_GGUF_GGUF_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/gguf/gguf_file.h"

namespace varve {

inline constexpr uint32_t kNumGgufTypes = 13;

// "u32", "string", "array"; "type 77" does not exist and gives "unknown".
std::string_view GgufTypeName(GgufType type);

// Bytes of one stored value; 0 for strings and arrays, which say themselves how long they are.
size_t GgufScalarBytes(GgufType type);

// The tensor types that Varve reads, by the file's number.
std::optional<WeightType> WeightTypeFromGgml(uint32_t number);
// The other way round.
uint32_t GgmlNumberOf(WeightType type);
// "IQ4_XS" for a number that ggml has used, "unknown" otherwise.
std::string_view GgmlTypeName(uint32_t number);
// "F32 F16 BF16 Q8_0 …": what WeightTypeFromGgml knows.
std::string ReadableTensorTypes();

}  // namespace varve

#endif  // VARVE_RUNTIME_GGUF_GGUF_TYPES_H_
