#include "runtime/llama/woven_weights.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/align.h"
#include "runtime/kernels/woven_rows.h"

namespace varve {
namespace {

constexpr size_t kAlignment = 64;

// Those that pay, of all that every token multiplies with.
template <class Weights>
auto MatricesToWeave(Weights& weights) {
  std::vector all = {&weights.output};
  for (auto& layer : weights.layers) {
    for (auto* matrix : MatricesOf(layer)) all.push_back(matrix);
  }
  const RoundedKernels& kernels = *ActiveWeightKernels().rounded;
  std::erase_if(all, [&](const WeightMatrix* matrix) {
    return WovenBytes(*matrix) == 0 ||
           kernels.multiply_woven[static_cast<int>(matrix->type)] == nullptr;
  });
  return all;
}

}  // namespace

uint64_t WovenBytes(const LlamaWeights& weights) {
  uint64_t bytes = 0;
  for (const WeightMatrix* matrix : MatricesToWeave(weights)) {
    bytes += AlignUp(WovenBytes(*matrix), kAlignment);
  }
  return bytes;
}

Status WeaveWeights(Executor& executor, LlamaWeights& weights) {
  const uint64_t bytes = WovenBytes(weights);
  std::shared_ptr<WeightMemory> memory = WeightMemory::Map(bytes);
  if (memory == nullptr) {
    return OutOfMemory(fmt::format("repacked weights: the system has no {} bytes", bytes));
  }
  std::byte* to = memory->data();
  for (WeightMatrix* matrix : MatricesToWeave(weights)) {
    WeaveMatrix(*matrix, executor, to);
    matrix->woven = to;
    to += AlignUp(WovenBytes(*matrix), kAlignment);
  }
  weights.woven = std::move(memory);
  return Status();
}

}  // namespace varve
