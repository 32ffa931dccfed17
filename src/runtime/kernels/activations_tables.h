// One table of activation functions per instruction set; private to src/kernels.

#ifndef VARVE_RUNTIME_KERNELS_ACTIVATIONS_TABLES_H_
#define VARVE_RUNTIME_KERNELS_ACTIVATIONS_TABLES_H_

#include <vector>

namespace varve {

struct ActivationKernels {
  const char* name;
  void (*rms_norm)(const float* x, const float* weight, int n, float epsilon, float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int n, float epsilon,
                     float* out);
  void (*swi_glu)(const float* gate, const float* up, int n, float* out);
  void (*gelu_tanh_glu)(const float* gate, const float* up, int n, float* out);
  void (*gelu)(const float* x, int n, float* out);
  void (*add_in_place)(float* x, const float* y, int n);
};

// Best last, named as those of SimdKernels().
std::vector<const ActivationKernels*> SimdActivationKernels();

}  // namespace varve

#endif  // VARVE_RUNTIME_KERNELS_ACTIVATIONS_TABLES_H_
