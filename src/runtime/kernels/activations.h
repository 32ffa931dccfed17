// The small vector operations of a decoder layer, on one row of f32.
//
// Functions are pure, run on the calling thread with the instruction set of kernels.h, and may run
// concurrently. Any n >= 0 and any alignment; the alignment never changes a result. `out` may be
// one of the inputs itself. NaN gives NaN.

#ifndef VARVE_RUNTIME_KERNELS_ACTIVATIONS_H_
#define VARVE_RUNTIME_KERNELS_ACTIVATIONS_H_

namespace varve {

// out[i] = x[i] / sqrt(mean(x^2) + epsilon) * weight[i]; no weight if it is null.
void RmsNorm(const float* x, const float* weight, int n, float epsilon, float* out);

// out[i] = (x[i] - mean) / sqrt(variance + epsilon) * weight[i] + bias[i], with the variance of all
// n values (not n - 1), as the mean square of the differences.
void LayerNorm(const float* x, const float* weight, const float* bias, int n, float epsilon,
               float* out);

// out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x). Relative error of silu below 4e-7,
// absolute below 1e-35.
void SwiGlu(const float* gate, const float* up, int n, float* out);

// out[i] = gelu(gate[i]) * up[i], with gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715
// x^3))), the form that Gemma uses. Error of gelu below 1e-6 |x|.
void GeluTanhGlu(const float* gate, const float* up, int n, float* out);

// out[i] = gelu(x[i]) = x / 2 * (1 + erf(x / sqrt(2))), the exact form that Whisper uses. Error
// below 4e-7 |x|.
void Gelu(const float* x, int n, float* out);

// x[i] += y[i].
void AddInPlace(float* x, const float* y, int n);

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_ACTIVATIONS_H_
