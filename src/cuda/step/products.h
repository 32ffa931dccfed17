// Products of activations with weights by cuBLASLt, f16 with f32 sums.

#ifndef VARVE_CUDA_STEP_PRODUCTS_H_
#define VARVE_CUDA_STEP_PRODUCTS_H_

#include <cublasLt.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <map>
#include <utility>

namespace varve::cuda::step {

// Owns a handle, its work space and the plan of each shape it has met. One thread, one stream.
class Products {
 public:
  explicit Products(int rows);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // out [rows][outputs] = x [rows][inputs] * weights^T, weights [outputs][inputs]; with `add` the
  // product is added to what out holds. The first call of a shape tries several algorithms and
  // keeps the fastest, so it must not be captured.
  void Multiply(const __half* x, const __half* weights, int inputs, int outputs, bool add,
                __half* out, cudaStream_t stream);

 private:
  struct Plan {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t weights, x, out;
    cublasLtMatmulAlgo_t algorithm;
  };
  const Plan& PlanOf(const __half* x, const __half* weights, int inputs, int outputs, bool add,
                     __half* out, cudaStream_t stream);
  cublasStatus_t Run(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const __half* x,
                     const __half* weights, bool add, __half* out, cudaStream_t stream) const;

  int rows_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<std::pair<int, int>, Plan> plans_;  // by inputs and outputs
};

}  // namespace varve::cuda::step

#endif  // VARVE_CUDA_STEP_PRODUCTS_H_
