// Reading one metadata value, whatever its stored type. Internal to src/runtime/gguf and to
// programs that show files. Pure functions on values that the parser has checked.

#ifndef VARVE_RUNTIME_GGUF_GGUF_VALUES_H_
#define VARVE_RUNTIME_GGUF_GGUF_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/gguf/gguf_file.h"

namespace varve {

// A scalar of any integer type; nothing for other types and for a u64 beyond int64_t.
std::optional<int64_t> IntegerOf(const GgufValue& value);
// A scalar of any float or integer type.
std::optional<double> NumberOf(const GgufValue& value);

// "u32 7", "string of 12 bytes", "array of 32000 strings": the value as messages show it.
std::string ValueText(const GgufValue& value);

}  // namespace varve

#endif  // VARVE_RUNTIME_GGUF_GGUF_VALUES_H_
