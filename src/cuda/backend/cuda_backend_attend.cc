// Attend of the back end for CUDA: sends what the kernel reads, launches it, gives results back.

#include <cmath>
#include <cstring>

#include "base/align.h"
#include "cuda/backend/cuda_backend_impl.h"
#include "cuda/backend/tensor_rows.h"

namespace varve::cuda {
namespace {

// From here on the queries of a request share the work of decoding pages. Fewer are cheaper one by
// one, on the stored bytes.
constexpr int kPromptQueries = 16;

TensorRows QueriesOf(const AttendRequest& request, int heads, int dim) {
  return {request.queries,           request.num_queries, heads, dim, request.query_token_stride,
          request.query_head_stride, request.query_dtype};
}

TensorRows OutputOf(const AttendRequest& request, int heads, int dim) {
  return {request.output,
          request.num_queries,
          heads,
          dim,
          request.output_token_stride,
          request.output_head_stride,
          request.output_dtype};
}

// What kernels for prompts load and store at once.
constexpr uintptr_t kRowAlignment = 16;

// Whether tensors that tensor_of(request) gives lie behind one another, as one dense array at an
// address that kernels take.
template <typename TensorOf>
bool AreOneArray(std::span<const AttentionRequest> requests, const TensorOf& tensor_of) {
  const std::byte* next = nullptr;
  for (const AttentionRequest& request : requests) {
    const TensorRows rows = tensor_of(*request.request);
    if (!rows.IsDense() || (next != nullptr && rows.data != next)) return false;
    if (reinterpret_cast<uintptr_t>(rows.data) % kRowAlignment != 0) return false;
    next = rows.data + rows.bytes();
  }
  return true;
}

}  // namespace

Status CudaBackend::Attend(int layer, const LayerSpaces&,
                           std::span<const AttentionRequest> requests, const AttendOptions& options,
                           AttentionObserver* observer) {
  const DeviceGuard guard(device_);
  const auto alike = [](const AttendRequest& a, const AttendRequest& b) {
    return a.device == b.device && a.query_dtype == b.query_dtype &&
           a.output_dtype == b.output_dtype;
  };
  const auto alone = [&](const AttentionRequest& request) { return IsPrompt(request, observer); };
  for (size_t begin = 0; begin < requests.size();) {
    size_t end = begin + 1;
    while (end < requests.size() && !alone(requests[begin]) && !alone(requests[end]) &&
           alike(*requests[begin].request, *requests[end].request)) {
      ++end;
    }
    VARVE_RETURN_IF_ERROR(
        AttendRun({layer, requests.subspan(begin, end - begin), &options, observer}));
    begin = end;
  }
  return Status();
}

// Masses come from the other kernel only.
bool CudaBackend::IsPrompt(const AttentionRequest& request,
                           const AttentionObserver* observer) const {
  return takes_prompts_ && observer == nullptr && request.request->num_queries >= kPromptQueries;
}

Status CudaBackend::AttendRun(const Run& run) {
  if (IsPrompt(run.requests[0], run.observer)) {
    FillPrompt(run.requests[0], *run.options, page_shape_.page_tokens, &batch_);
  } else {
    FillBatch(run.requests, *run.options, &batch_);
  }
  DeviceAttention call;
  call.shape = page_shape_;
  call.num_sequences = batch_.num_queries();
  call.query_heads = heads();
  call.max_pages = batch_.max_pages;
  call.key_rungs = batch_.key_rungs;
  call.pure_pages = batch_.pure_pages;
  call.value_rungs = batch_.value_rungs;
  call.key_codebook = codebooks_.Of(run.layer, Part::kKey);
  call.value_codebook = codebooks_.Of(run.layer, Part::kValue);
  call.query_type = TypeOf(run.first().query_dtype);
  call.output_type = TypeOf(run.output_type());
  const float scale = run.options->scale;
  call.scale = scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(shape_.key_dim));
  call.soft_cap = run.options->soft_cap;
  const std::byte* ranges = nullptr;
  VARVE_RETURN_IF_ERROR(SendBatch(run, &call, &ranges));
  VARVE_RETURN_IF_ERROR(PlaceResults(run, &call));
  VARVE_RETURN_IF_ERROR(batch_.is_prompt()
                            ? LaunchPrompt(call, reinterpret_cast<const VisibleRows*>(ranges))
                            : Launch(call));
  if (!run.on_host()) VARVE_RETURN_IF_ERROR(GiveToDevice(run, call));
  return run.on_host() || run.observer != nullptr ? Download(run, call) : Status();
}

// What each query sees (page_begin, or visible rows of a prompt), records of pages, and queries of
// the host behind them.
Status CudaBackend::SendBatch(const Run& run, DeviceAttention* call, const std::byte** ranges) {
  const std::span<const std::byte> front = batch_.is_prompt()
                                               ? std::as_bytes(std::span(batch_.visible))
                                               : std::as_bytes(std::span(batch_.page_begin));
  const size_t begin_bytes = AlignUp(front.size(), kSentAlign);
  const size_t page_bytes = AlignUp(batch_.pages.size() * sizeof(DevicePage), kSentAlign);
  size_t bytes = begin_bytes + page_bytes;
  for (const AttentionRequest& request : run.requests) {
    if (run.on_host()) bytes += QueriesOf(*request.request, heads(), shape_.key_dim).bytes();
  }
  VARVE_RETURN_IF_ERROR(uplink_.ReserveDevice(bytes));
  VARVE_ASSIGN_OR_RETURN(std::byte * host, uplink_.Begin(bytes));
  std::memcpy(host, front.data(), front.size());
  if (!batch_.pages.empty()) {
    std::memcpy(host + begin_bytes, batch_.pages.data(), batch_.pages.size() * sizeof(DevicePage));
  }
  std::byte* queries = host + begin_bytes + page_bytes;
  for (const AttentionRequest& request : run.requests) {
    if (!run.on_host()) break;
    const TensorRows rows = QueriesOf(*request.request, heads(), shape_.key_dim);
    Gather(rows, queries);
    queries += rows.bytes();
  }
  VARVE_RETURN_IF_ERROR(uplink_.Send(bytes, stream_.get()));
  const std::byte* sent = uplink_.device();
  *ranges = sent;
  call->page_begin = reinterpret_cast<const int32_t*>(sent);
  call->pages = reinterpret_cast<const DevicePage*>(sent + begin_bytes);
  return PlaceQueries(run, sent + begin_bytes + page_bytes, call);
}

Status CudaBackend::PlaceQueries(const Run& run, const std::byte* sent, DeviceAttention* call) {
  call->queries = sent;
  if (run.on_host()) return Status();
  const auto tensor_of = [this](const AttendRequest& request) {
    return QueriesOf(request, heads(), shape_.key_dim);
  };
  call->queries = run.first().queries;
  if (AreOneArray(run.requests, tensor_of)) return Status();
  size_t bytes = 0;
  for (const AttentionRequest& request : run.requests) bytes += tensor_of(*request.request).bytes();
  VARVE_RETURN_IF_ERROR(queries_.Reserve(bytes));
  auto* dense = queries_.as<std::byte>();
  call->queries = dense;
  for (const AttentionRequest& request : run.requests) {
    const TensorRows rows = tensor_of(*request.request);
    VARVE_RETURN_IF_ERROR(GatherOnDevice(rows, dense, stream_.get()));
    dense += rows.bytes();
  }
  return Status();
}

// Log-sum-exps, page masses and outputs, in this order, where they are wanted and have no place of
// their own.
Status CudaBackend::PlaceResults(const Run& run, DeviceAttention* call) {
  const auto rows = static_cast<size_t>(call->num_sequences) * static_cast<size_t>(heads());
  const bool observed = run.observer != nullptr;
  const size_t lse_bytes =
      observed || run.wants_lse() ? AlignUp(rows * sizeof(float), kSentAlign) : 0;
  const size_t mass_bytes =
      observed
          ? AlignUp(batch_.pages.size() * static_cast<size_t>(heads()) * sizeof(float), kSentAlign)
          : 0;
  const auto output_of = [this](const AttendRequest& request) {
    return OutputOf(request, heads(), shape_.value_dim);
  };
  const bool direct = !run.on_host() && AreOneArray(run.requests, output_of);
  const size_t output_bytes =
      direct ? 0 : rows * static_cast<size_t>(shape_.value_dim) * DTypeBytes(run.output_type());
  VARVE_RETURN_IF_ERROR(results_.Reserve(lse_bytes + mass_bytes + output_bytes));
  auto* base = results_.as<std::byte>();
  if (lse_bytes > 0) call->lse = reinterpret_cast<float*>(base);
  if (mass_bytes > 0) call->page_lse = reinterpret_cast<float*>(base + lse_bytes);
  call->output = direct ? output_of(run.first()).data : base + lse_bytes + mass_bytes;
  return Status();
}

Status CudaBackend::Launch(const DeviceAttention& call) {
  const size_t bytes = AttentionWorkspaceBytes(call, limits_);  // 0: Attend says what is wrong
  bool grown = false;
  VARVE_RETURN_IF_ERROR(workspace_.Reserve(bytes, &grown));
  if (grown) workspace_queries_ = 0;
  // Counters of fewer queries are the first of those of more; behind them lie sums.
  if (bytes > 0 && call.num_sequences > workspace_queries_) {
    VARVE_RETURN_IF_ERROR(
        InitAttentionWorkspace(workspace_.as<void>(), AttentionCounterBytes(call), stream_.get())
            .ToStatus());
  }
  if (bytes > 0) workspace_queries_ = call.num_sequences;
  return cuda::Attend(call, limits_, workspace_.as<void>(), workspace_.bytes(), stream_.get())
      .ToStatus();
}

Status CudaBackend::LaunchPrompt(const DeviceAttention& call, const VisibleRows* visible) {
  DevicePrompt prompt;
  prompt.shape = call.shape;
  prompt.query_heads = call.query_heads;
  prompt.pages = call.pages;
  prompt.num_pages = static_cast<int>(batch_.pages.size());
  prompt.visible = visible;
  prompt.num_queries = call.num_sequences;
  prompt.key_codebook = call.key_codebook;
  prompt.value_codebook = call.value_codebook;
  prompt.query_type = call.query_type;
  prompt.queries = call.queries;
  prompt.output_type = call.output_type;
  prompt.output = call.output;
  prompt.lse = call.lse;
  prompt.scale = call.scale;
  prompt.soft_cap = call.soft_cap;
  const size_t bytes = PromptWorkspaceBytes(prompt);
  bool grown = false;
  VARVE_RETURN_IF_ERROR(workspace_.Reserve(bytes, &grown));
  workspace_queries_ = 0;  // the counters of the other kernel are overwritten
  return AttendPrompt(prompt, workspace_.as<void>(), workspace_.bytes(), stream_.get()).ToStatus();
}

Status CudaBackend::GiveToDevice(const Run& run, const DeviceAttention& call) {
  const float* lse = call.lse;
  const auto* output = static_cast<const std::byte*>(call.output);
  for (const AttentionRequest& request : run.requests) {
    const AttendRequest& asked = *request.request;
    const TensorRows rows = OutputOf(asked, heads(), shape_.value_dim);
    if (output != rows.data) VARVE_RETURN_IF_ERROR(ScatterOnDevice(output, rows, stream_.get()));
    output += rows.bytes();
    const size_t count = rows.tokens * rows.heads;
    if (asked.log_sum_exp != nullptr) {
      VARVE_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(asked.log_sum_exp, lse, count * sizeof(float),
                                     cudaMemcpyDeviceToDevice, stream_.get()),
                     "copying log-sum-exps", count * sizeof(float)));
    }
    if (lse != nullptr) lse += count;
  }
  return Status();
}

// All of `results_` or, without outputs for the host, what comes before them.
Status CudaBackend::Download(const Run& run, const DeviceAttention& call) {
  const auto* base = results_.as<std::byte>();
  const auto end_of = [base](const void* at, size_t bytes) {
    return at == nullptr ? 0
                         : static_cast<size_t>(static_cast<const std::byte*>(at) - base) + bytes;
  };
  const auto query_heads = static_cast<size_t>(heads());
  const auto rows = static_cast<size_t>(call.num_sequences) * query_heads;
  const size_t output_bytes = rows * static_cast<size_t>(shape_.value_dim) * sizeof(float);
  const size_t mass_bytes = batch_.pages.size() * query_heads * sizeof(float);
  const size_t bytes = run.on_host() ? end_of(call.output, output_bytes)
                                     : std::max(end_of(call.lse, rows * sizeof(float)),
                                                end_of(call.page_lse, mass_bytes));
  downlink_.resize(std::max(downlink_.size(), bytes));
  VARVE_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(downlink_.data(), base, bytes, cudaMemcpyDeviceToHost, stream_.get()),
      "copying results", bytes));
  VARVE_RETURN_IF_ERROR(stream_.Wait());
  const auto* lse =
      call.lse != nullptr ? reinterpret_cast<const float*>(downlink_.data()) : nullptr;
  if (run.on_host()) GiveToHost(run, downlink_.data() + end_of(call.output, 0), lse);
  if (run.observer != nullptr) {
    const auto* page_lse =
        reinterpret_cast<const float*>(downlink_.data() + end_of(call.page_lse, 0));
    ReportMasses(run.layer, run.requests, batch_, heads(), page_lse, lse, run.observer);
  }
  return Status();
}

void CudaBackend::GiveToHost(const Run& run, const std::byte* output, const float* lse) const {
  for (const AttentionRequest& request : run.requests) {
    const AttendRequest& asked = *request.request;
    const TensorRows rows = OutputOf(asked, heads(), shape_.value_dim);
    Scatter(output, rows);
    output += rows.bytes();
    const size_t count = rows.tokens * rows.heads;
    if (asked.log_sum_exp != nullptr) std::copy_n(lse, count, asked.log_sum_exp);
    if (lse != nullptr) lse += count;
  }
}

}  // namespace varve::cuda
