#include "rungs/pq/pq_methods.h"

#include <atomic>

#include "kernels/pq_kernels.h"

namespace varve {
namespace {

std::atomic<PqKeyMethod> forced_keys{PqKeyMethod::kAuto};
std::atomic<PqValueMethod> forced_values{PqValueMethod::kAuto};

bool IsScalar(const PqKernels& kernels) { return &kernels == &ScalarPqKernels(); }

}  // namespace

void SetPqMethods(const PqMethods& methods) {
  forced_keys = methods.keys;
  forced_values = methods.values;
}

PqKeyMethod ChoosePqKeyMethod(const PqKernels& kernels, int bits, int total_rows) {
  PqKeyMethod method = forced_keys.load(std::memory_order_relaxed);
  if (method == PqKeyMethod::kAuto || (method == PqKeyMethod::kBytes && bits > kMaxByteBits))
    // Four bits: shuffles of the query's table beat products where these take two instructions.
    method = bits <= kMaxByteBits && (bits > 4 ? !IsScalar(kernels) : kernels.pair_dot)
                 ? PqKeyMethod::kBytes
                 : PqKeyMethod::kTables;
  if (method == PqKeyMethod::kTables && bits > 4 && total_rows > kMaxTableRows)
    return PqKeyMethod::kDecode;
  return method;
}

PqValueMethod ChoosePqValueMethod(const PqKernels& kernels, int bits, int sub_dim) {
  const PqValueMethod method = forced_values.load(std::memory_order_relaxed);
  if (method == PqValueMethod::kCentroids || method == PqValueMethod::kDecode) return method;
  if (bits > kMaxByteBits) return PqValueMethod::kDecode;
  // Adding up costs a read and a write per code, looking up a product per channel: without vectors
  // the former wins for sub-vectors of 8 channels.
  const bool centroids = method == PqValueMethod::kAuto && IsScalar(kernels) && sub_dim >= 8;
  return centroids ? PqValueMethod::kCentroids : PqValueMethod::kBytes;
}

}  // namespace varve
