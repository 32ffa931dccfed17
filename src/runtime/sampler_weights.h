// The arithmetic of the sampler: softmax in integers.
//
// Probabilities decide which token is drawn, so they must not depend on the compiler, on libm or on
// the width of a vector. A weight is 2^40 · exp((logit − best) / temperature) as an integer, made
// from a table of powers of two by integer products: the same bits everywhere, and sums that do not
// depend on their order. Relative error below 2^-28 for weights that large; what is less than 2^-40
// of the best weighs nothing.

#ifndef VARVE_RUNTIME_SAMPLER_WEIGHTS_H_
#define VARVE_RUNTIME_SAMPLER_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

namespace varve {

inline constexpr uint64_t kHighestWeight = uint64_t{1} << 40;  // of the best logit
inline constexpr size_t kMaxWeights = size_t{1} << 23;         // whose sum fits easily

// `logit` <= `best`, both finite; `temperature` > 0.
uint64_t SoftmaxWeight(float best, float logit, float temperature);

// A number in [0, limit) from a random one: random · limit / 2^64, rounded down.
uint64_t ScaleRandom(uint64_t random, uint64_t limit);

}  // namespace varve

#endif  // VARVE_RUNTIME_SAMPLER_WEIGHTS_H_
