// ModelFamily: what open_model.cc has to know of a family of models to choose it and to make its
// models. A family defines one constant of this type and stands in the table of open_model.cc;
// nothing else outside its folder names it.

#ifndef VARVE_RUNTIME_MODEL_MODEL_FAMILY_H_
#define VARVE_RUNTIME_MODEL_MODEL_FAMILY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/gguf/gguf_file.h"
#include "runtime/kernels/weights.h"
#include "runtime/model/decoder_model.h"
#include "varve/status.h"

namespace varve {

struct ModelFamily {
  using Names = std::span<const std::string_view> (*)();

  Names architectures;  // the values of general.architecture that it takes
  Result<std::shared_ptr<const DecoderModel>> (*load)(const std::shared_ptr<const GgufFile>& file);

  // Shapes for measurements without a download, by name, and a model of such a shape with made-up
  // weights. Only names of the list are given to `random`.
  Names random_names;
  Result<std::shared_ptr<const DecoderModel>> (*random)(std::string_view name, WeightType type,
                                                        uint64_t seed);
};

}  // namespace varve

#endif  // VARVE_RUNTIME_MODEL_MODEL_FAMILY_H_
