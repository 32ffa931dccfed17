#include "cuda/step/products.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cuda/testing/device_buffer.h"

namespace varve::cuda::step {
namespace {

using testing::Must;

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kTried = 8;
constexpr int kRepeats = 5;

void MustLt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("%s: cuBLASLt status %d\n", what, static_cast<int>(status));
  std::exit(1);
}

}  // namespace

Products::Products(int rows) : rows_(rows) {
  MustLt(cublasLtCreate(&handle_), "handle");
  Must(cudaMalloc(&workspace_, kWorkspaceBytes), "work space of products");
}

Products::~Products() {
  for (auto& [shape, plan] : plans_) {
    cublasLtMatmulDescDestroy(plan.operation);
    cublasLtMatrixLayoutDestroy(plan.weights);
    cublasLtMatrixLayoutDestroy(plan.x);
    cublasLtMatrixLayoutDestroy(plan.out);
  }
  cudaFree(workspace_);
  cublasLtDestroy(handle_);
}

cublasStatus_t Products::Run(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                             const __half* x, const __half* weights, bool add, __half* out,
                             cudaStream_t stream) const {
  const float one = 1.0f, beta = add ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_, plan.operation, &one, weights, plan.weights, x, plan.x, &beta, out,
                        plan.out, out, plan.out, &algorithm, workspace_, kWorkspaceBytes, stream);
}

const Products::Plan& Products::PlanOf(const __half* x, const __half* weights, int inputs,
                                       int outputs, bool add, __half* out, cudaStream_t stream) {
  const auto found = plans_.find({inputs, outputs});
  if (found != plans_.end()) return found->second;
  Plan plan;
  MustLt(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  MustLt(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                        sizeof(transposed)),
         "operation");
  const auto in = static_cast<uint64_t>(inputs), to = static_cast<uint64_t>(outputs);
  const auto rows = static_cast<uint64_t>(rows_);
  MustLt(cublasLtMatrixLayoutCreate(&plan.weights, CUDA_R_16F, in, to, inputs), "layout");
  MustLt(cublasLtMatrixLayoutCreate(&plan.x, CUDA_R_16F, in, rows, inputs), "layout");
  MustLt(cublasLtMatrixLayoutCreate(&plan.out, CUDA_R_16F, to, rows, outputs), "layout");
  cublasLtMatmulPreference_t preference;
  MustLt(cublasLtMatmulPreferenceCreate(&preference), "preference");
  MustLt(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
         "preference");
  cublasLtMatmulHeuristicResult_t results[kTried];
  int count = 0;
  MustLt(cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.weights, plan.x, plan.out,
                                        plan.out, preference, kTried, results, &count),
         "algorithms");
  cublasLtMatmulPreferenceDestroy(preference);
  cudaEvent_t start, stop;
  Must(cudaEventCreate(&start), "event");
  Must(cudaEventCreate(&stop), "event");
  float best = 1e30f;
  for (int i = 0; i < count; ++i) {
    bool works = true;
    for (int repeat = 0; repeat < kRepeats + 1 && works; ++repeat) {
      if (repeat == 1) Must(cudaEventRecord(start, stream), "record");
      works = Run(plan, results[i].algo, x, weights, add, out, stream) == CUBLAS_STATUS_SUCCESS;
    }
    if (!works) continue;
    Must(cudaEventRecord(stop, stream), "record");
    Must(cudaEventSynchronize(stop), "product");
    float ms = 0;
    Must(cudaEventElapsedTime(&ms, start, stop), "time");
    if (ms < best) plan.algorithm = results[i].algo;
    best = std::min(best, ms);
  }
  Must(cudaEventDestroy(start), "event");
  Must(cudaEventDestroy(stop), "event");
  MustLt(best < 1e30f ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED, "algorithms");
  return plans_.emplace(std::pair(inputs, outputs), plan).first->second;
}

void Products::Multiply(const __half* x, const __half* weights, int inputs, int outputs, bool add,
                        __half* out, cudaStream_t stream) {
  const Plan& plan = PlanOf(x, weights, inputs, outputs, add, out, stream);
  MustLt(Run(plan, plan.algorithm, x, weights, add, out, stream), "product");
}

}  // namespace varve::cuda::step
