// A second copy of a model's matrices, woven (kernels/woven_rows.h): decoding reads it at the speed
// of memory.

#ifndef VARVE_RUNTIME_LLAMA_WOVEN_WEIGHTS_H_
#define VARVE_RUNTIME_LLAMA_WOVEN_WEIGHTS_H_

#include <cstdint>

#include "runtime/llama/llama_weights.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve {

// What the copy takes: of the matrices whose type this machine's kernels have a woven product for.
uint64_t WovenBytes(const LlamaWeights& weights);

// Makes the copy and lets the matrices point to it. kOutOfMemory leaves the weights as they were.
Status WeaveWeights(Executor& executor, LlamaWeights& weights);

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_WOVEN_WEIGHTS_H_
