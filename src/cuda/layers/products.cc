#include "cuda/layers/products.h"

#include <map>
#include <tuple>

#include "cuda/layers/cublas_lt.h"

namespace varve::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr size_t kMaxPlans = 1024;  // prompts end in steps of any length
constexpr int kTried = 8;
constexpr int kRepeats = 5;

DeviceStatus LtStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return {StatusCode::kInternal, "cuBLASLt: %s: status %d", what, static_cast<int>(status)};
}

DeviceStatus RuntimeStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here; or the next launch would report it
  return {error == cudaErrorMemoryAllocation ? StatusCode::kOutOfMemory : StatusCode::kIoError,
          "CUDA: %s: %s", what, cudaGetErrorString(error)};
}

// What cuBLASLt has to know of one shape. Column-major, so weights [outputs, inputs] are the
// transpose of the first operand.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weights = nullptr;
  cublasLtMatrixLayout_t x = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

void Destroy(const CublasLt& lt, const Plan& plan) {
  if (plan.operation != nullptr) (void)lt.MatmulDescDestroy(plan.operation);
  for (const cublasLtMatrixLayout_t layout : {plan.weights, plan.x, plan.out}) {
    if (layout != nullptr) (void)lt.MatrixLayoutDestroy(layout);
  }
}

DeviceStatus Describe(const CublasLt& lt, const Product& product, Plan* plan) {
  const cudaDataType_t half = product.type == HalfType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
  const auto inputs = static_cast<uint64_t>(product.inputs);
  const auto outputs = static_cast<uint64_t>(product.outputs);
  const auto rows = static_cast<uint64_t>(product.rows);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  VARVE_CUDA_RETURN_IF_ERROR(LtStatus(
      lt.MatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "an operation"));
  VARVE_CUDA_RETURN_IF_ERROR(
      LtStatus(lt.MatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof(transposed)),
               "an operation"));
  VARVE_CUDA_RETURN_IF_ERROR(LtStatus(
      lt.MatrixLayoutCreate(&plan->weights, half, inputs, outputs, product.inputs), "a layout"));
  VARVE_CUDA_RETURN_IF_ERROR(
      LtStatus(lt.MatrixLayoutCreate(&plan->x, half, inputs, rows, product.inputs), "a layout"));
  return LtStatus(lt.MatrixLayoutCreate(&plan->out, CUDA_R_32F, outputs, rows, product.outputs),
                  "a layout");
}

}  // namespace

struct Products::State {
  using Shape = std::tuple<HalfType, int, int, int>;  // rows, inputs, outputs

  ~State() {
    Clear();
    if (handle != nullptr) (void)lt.Destroy(handle);
    (void)cudaFree(workspace);
  }
  void Clear() {
    for (const auto& [shape, plan] : plans) Destroy(lt, plan);
    plans.clear();
  }
  cublasStatus_t Run(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                     const Product& product, cudaStream_t stream) const {
    const float one = 1.0f, beta = product.add ? 1.0f : 0.0f;
    return lt.Matmul(handle, plan.operation, &one, product.weights, plan.weights, product.x, plan.x,
                     &beta, product.out, plan.out, product.out, plan.out, &algorithm, workspace,
                     kWorkspaceBytes, stream);
  }
  DeviceStatus Choose(const Product& product, cudaStream_t stream, Plan* plan);
  DeviceStatus ChooseFastest(const Product& product, const cublasLtMatmulHeuristicResult_t* results,
                             int count, cudaStream_t stream, Plan* plan);

  const CublasLt& lt;
  AlgorithmChoice choice;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Shape, Plan> plans;
};

// The algorithm of a plan that has been described.
DeviceStatus Products::State::Choose(const Product& product, cudaStream_t stream, Plan* plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  VARVE_CUDA_RETURN_IF_ERROR(LtStatus(lt.MatmulPreferenceCreate(&preference), "a preference"));
  cublasLtMatmulHeuristicResult_t results[kTried];
  int count = 0;
  cublasStatus_t status =
      lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                      &kWorkspaceBytes, sizeof(kWorkspaceBytes));
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = lt.MatmulAlgoGetHeuristic(handle, plan->operation, plan->weights, plan->x, plan->out,
                                       plan->out, preference, kTried, results, &count);
  }
  (void)lt.MatmulPreferenceDestroy(preference);
  VARVE_CUDA_RETURN_IF_ERROR(LtStatus(status, "algorithms"));
  if (count == 0) {
    return {StatusCode::kUnimplemented, "cuBLASLt: no algorithm for %d rows, %d inputs, %d outputs",
            product.rows, product.inputs, product.outputs};
  }
  plan->algorithm = results[0].algo;
  if (choice == AlgorithmChoice::kFirst) return {};
  return ChooseFastest(product, results, count, stream, plan);
}

DeviceStatus Products::State::ChooseFastest(const Product& product,
                                            const cublasLtMatmulHeuristicResult_t* results,
                                            int count, cudaStream_t stream, Plan* plan) {
  cudaEvent_t start = nullptr, stop = nullptr;
  VARVE_CUDA_RETURN_IF_ERROR(RuntimeStatus(cudaEventCreate(&start), "an event"));
  const DeviceStatus created = RuntimeStatus(cudaEventCreate(&stop), "an event");
  if (!created.ok()) {
    (void)cudaEventDestroy(start);
    return created;
  }
  float best = 1e30f;
  for (int i = 0; i < count; ++i) {
    bool works = true;
    for (int repeat = 0; repeat < kRepeats + 1 && works; ++repeat) {
      if (repeat == 1) works = cudaEventRecord(start, stream) == cudaSuccess;
      works = works && Run(*plan, results[i].algo, product, stream) == CUBLAS_STATUS_SUCCESS;
    }
    float ms = 0;
    works = works && cudaEventRecord(stop, stream) == cudaSuccess &&
            cudaEventSynchronize(stop) == cudaSuccess &&
            cudaEventElapsedTime(&ms, start, stop) == cudaSuccess;
    if (!works || ms >= best) continue;
    plan->algorithm = results[i].algo;
    best = ms;
  }
  (void)cudaEventDestroy(start);
  (void)cudaEventDestroy(stop);
  return RuntimeStatus(cudaStreamSynchronize(stream), "trying algorithms");
}

Products::Products() = default;
Products::~Products() = default;

DeviceStatus Products::Create(AlgorithmChoice choice) {
  const CublasLt& lt = CublasLt::Get();
  if (!lt.status().ok()) return lt.status();
  // An aggregate, which make_unique of clang 14 cannot make.
  state_.reset(new State{lt, choice, nullptr, nullptr, {}});  // NOLINT(modernize-make-unique)
  VARVE_CUDA_RETURN_IF_ERROR(LtStatus(lt.Create(&state_->handle), "a handle"));
  return RuntimeStatus(cudaMalloc(&state_->workspace, kWorkspaceBytes), "work space of products");
}

DeviceStatus Products::Multiply(const Product& product, cudaStream_t stream) {
  const State::Shape shape = {product.type, product.rows, product.inputs, product.outputs};
  auto found = state_->plans.find(shape);
  if (found == state_->plans.end()) {
    if (state_->plans.size() >= kMaxPlans) state_->Clear();
    Plan plan;
    DeviceStatus status = Describe(state_->lt, product, &plan);
    if (status.ok()) status = state_->Choose(product, stream, &plan);
    if (!status.ok()) {
      Destroy(state_->lt, plan);
      return status;
    }
    found = state_->plans.emplace(shape, plan).first;
  }
  return LtStatus(state_->Run(found->second, found->second.algorithm, product, stream),
                  "a product");
}

size_t Products::workspace_bytes() const { return state_ == nullptr ? 0 : kWorkspaceBytes; }

}  // namespace varve::cuda
