// The Llama family for the table of families (runtime/model/open_model.cc).

#ifndef VARVE_RUNTIME_LLAMA_LLAMA_FAMILY_H_
#define VARVE_RUNTIME_LLAMA_LLAMA_FAMILY_H_

#include "runtime/model/model_family.h"

namespace varve::llama {

extern const ModelFamily kFamily;

}  // namespace varve::llama

#endif  // VARVE_RUNTIME_LLAMA_LLAMA_FAMILY_H_
