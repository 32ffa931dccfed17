// Models by file or by name: the one place that knows which families there are.

#ifndef VARVE_RUNTIME_MODEL_OPEN_MODEL_H_
#define VARVE_RUNTIME_MODEL_OPEN_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/gguf/gguf_file.h"
#include "runtime/kernels/weights.h"
#include "runtime/model/decoder_model.h"
#include "varve/status.h"

namespace varve {

// The family is that of general.architecture. Checks that every tensor is there with the right
// shape, and reads no tensor data but norms and fingerprint. kUnimplemented for an architecture
// that is not built in, with the list of those that are. Errors name the file.
Result<std::shared_ptr<const DecoderModel>> LoadDecoderModel(
    const std::shared_ptr<const GgufFile>& file);

// The same of a path. kNotFound if there is no such file.
Result<std::shared_ptr<const DecoderModel>> OpenDecoderModel(const std::string& path);

// A shape for speed measurements ("qwen3-0.6b", "small-1024", …) with made-up weights: equal seeds
// give equal weights. kNotFound names the shapes that there are.
Result<std::shared_ptr<const DecoderModel>> RandomDecoderModel(std::string_view name,
                                                               WeightType type, uint64_t seed);
std::string RandomModelNames();  // separated by ", "

}  // namespace varve

#endif  // VARVE_RUNTIME_MODEL_OPEN_MODEL_H_
