// One table of rotation loops per instruction set, and the constants that they share; private to
// src/kernels.

#ifndef VARVE_KERNELS_ROTATED_ROWS_TABLES_H_
#define VARVE_KERNELS_ROTATED_ROWS_TABLES_H_

#include <cstdint>
#include <vector>

#include "kernels/rotated_rows.h"

namespace varve {

// Sine and cosine of an angle of at most an eighth of a turn, in 2^-32 turns: x = angle *
// kRotationToRadians, sin = x + x * x2 * (s0 + x2 * s1), cos = 1 + x2 * (c0 + x2 * c1). They are
// exact to 2^-16, a small part of a step of f16; what counts is that all compute the same.
inline constexpr float kRotationToRadians = 1.4629180792671596e-9f;  // 2 pi / 2^32
inline constexpr float kRotationSin[2] = {-0.166628379f, 0.0081530864f};
inline constexpr float kRotationCos[2] = {-0.499776544f, 0.0404895444f};

// f16 to f32 by bits: the exponent moves from a bias of 15 to 127. Numbers without a leading one,
// infinities and NaNs become other numbers, which costs the encoder bytes and nobody else anything.
inline constexpr uint32_t kRotationF16Bias = 112u << 23;

// The specification; takes every shape.
void RotateRowScalar(const RotateRowArgs& args);
void FillTileScalar(const uint16_t* const* rows, int dim, uint16_t* out);

// Best last, named as those of SimdKernels().
std::vector<const RotationKernels*> SimdRotationKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_ROTATED_ROWS_TABLES_H_
