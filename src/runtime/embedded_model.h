// The model that ships with Varve (models/), as bytes of the program itself: mapped with the
// executable and read lazily, like any model file.

#ifndef VARVE_RUNTIME_EMBEDDED_MODEL_H_
#define VARVE_RUNTIME_EMBEDDED_MODEL_H_

#include <cstddef>
#include <span>

namespace varve {

// A GGUF file for GgufFile::FromMemory; lives as long as the program.
std::span<const std::byte> EmbeddedModel();

}  // namespace varve

#endif  // VARVE_RUNTIME_EMBEDDED_MODEL_H_
