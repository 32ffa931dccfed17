// The randomised Hadamard rotation of the r- and t-rungs: x -> H (s * x), where s is a fixed sign
// per channel and H the orthonormal Walsh-Hadamard transform of each run of `block` channels, block
// = the largest power of two that divides dim. It is orthogonal, so scores of rotated queries and
// keys are the plain ones, and it spreads outlier channels over the whole block before rounding.
//
// Signs: s[d] = -1 where the top bit of splitmix64(d) is set. They are part of the format.

#ifndef VARVE_RUNGS_ROTATION_H_
#define VARVE_RUNGS_ROTATION_H_

#include <cstddef>
#include <cstdint>

namespace varve {

struct Kernels;

// Channels that one Hadamard transform mixes.
int RotationBlock(int dim);

// rows [num_rows, dim], in place.
void RotateRows(const Kernels& kernels, float* rows, int num_rows, int dim);
void UnrotateRows(const Kernels& kernels, float* rows, int num_rows, int dim);
// output [num_rows, dim] += rows turned back.
void AddUnrotatedRows(const Kernels& kernels, const float* rows, int num_rows, int dim,
                      float* output);

// Before a rotation: a NaN must not spread over the whole block, nor may the sums overflow. NaN
// becomes 0 and a value beyond the range of f16 that limit; returns how many there were.
uint64_t ReplaceBeyondF16(float* values, size_t count);

}  // namespace varve

#endif  // VARVE_RUNGS_ROTATION_H_
