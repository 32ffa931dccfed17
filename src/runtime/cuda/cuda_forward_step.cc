#include "runtime/cuda/cuda_forward_step.h"

#include <algorithm>
#include <cstring>

#include "base/align.h"
#include "cuda/layers/layer_kernels.h"

namespace varve {
namespace {

using cuda::CudaStatus;

constexpr size_t kSentAlign = 256;
// Logits of many tokens are computed and copied in parts of at most so much.
constexpr size_t kLogitBytes = size_t{64} << 20;

DType TypeOf(cuda::HalfType type) {
  return type == cuda::HalfType::kBF16 ? DType::kBF16 : DType::kF16;
}

}  // namespace

CudaForwardStep::CudaForwardStep(const CudaLlamaModel& model, ForwardClock& clock)
    : model_(model),
      config_(model.config()),
      stream_(model.stream()),
      clock_(clock),
      rope_(config_.rope),
      local_rope_(config_.local_rope.value_or(config_.rope)) {}

CudaForwardStep::~CudaForwardStep() {
  const cuda::DeviceGuard guard(model_.device_index());
  (void)cudaStreamSynchronize(stream_);
  if (pinned_ != nullptr) (void)cudaFreeHost(pinned_);
}

// --- what the host sends ---

Status CudaForwardStep::Prepare(const Cache& cache, std::span<const int32_t> tokens,
                                int logits_from) {
  if (!has_products_) {
    VARVE_RETURN_IF_ERROR(products_.Create(cuda::AlgorithmChoice::kFirst).ToStatus());
    has_products_ = true;
  }
  positions_.clear();
  for (const StepEntry& entry : entries_) {
    VARVE_ASSIGN_OR_RETURN(const int64_t next, cache.NextPosition(entry.sequence));
    for (int t = 0; t < entry.num_tokens; ++t) positions_.push_back(next + t);
  }
  num_tokens_ = static_cast<int>(positions_.size());
  const size_t row_bytes = static_cast<size_t>(config_.vocab_size) * sizeof(float);
  const auto most = static_cast<int>(std::max<size_t>(1, kLogitBytes / row_bytes));
  logit_rows_ = std::min(most, num_tokens_ - logits_from);
  VARVE_RETURN_IF_ERROR(buffers_.Reserve(config_, num_tokens_, logit_rows_));
  rope_.Prepare(positions_);
  if (config_.local_rope.has_value()) local_rope_.Prepare(positions_);
  return Send(tokens);
}

Status CudaForwardStep::Send(std::span<const int32_t> tokens) {
  const auto table_bytes = [this](const RopeTable& table) {
    return AlignUp(
        static_cast<size_t>(num_tokens_) * 2 * static_cast<size_t>(table.pairs()) * sizeof(float),
        kSentAlign);
  };
  const bool local = config_.local_rope.has_value();
  const size_t token_bytes = AlignUp(tokens.size_bytes(), kSentAlign);
  const size_t rope_bytes = table_bytes(rope_);
  const size_t bytes = token_bytes + rope_bytes + (local ? table_bytes(local_rope_) : 0);
  VARVE_RETURN_IF_ERROR(uplink_.ReserveDevice(bytes));
  VARVE_ASSIGN_OR_RETURN(std::byte * host, uplink_.Begin(bytes));
  std::memcpy(host, tokens.data(), tokens.size_bytes());
  std::memcpy(
      host + token_bytes, rope_.cos_sin(),
      static_cast<size_t>(num_tokens_) * 2 * static_cast<size_t>(rope_.pairs()) * sizeof(float));
  if (local) {
    std::memcpy(host + token_bytes + rope_bytes, local_rope_.cos_sin(),
                static_cast<size_t>(num_tokens_) * 2 * static_cast<size_t>(local_rope_.pairs()) *
                    sizeof(float));
  }
  VARVE_RETURN_IF_ERROR(uplink_.Send(bytes, stream_));
  const std::byte* device = uplink_.device();
  tokens_ = reinterpret_cast<const int32_t*>(device);
  cos_sin_ = reinterpret_cast<const float*>(device + token_bytes);
  local_cos_sin_ = reinterpret_cast<const float*>(device + token_bytes + rope_bytes);
  return Status();
}

// --- a layer ---

Status CudaForwardStep::Norm(const float* x, int rows, const float* weight,
                             const DeviceMatrix& matrix) {
  return cuda::RmsNorm({.x = x,
                        .weight = weight,
                        .rows = rows,
                        .dim = config_.width,
                        .epsilon = config_.norm_epsilon,
                        .type = matrix.type,
                        .out = buffers_.normed},
                       stream_)
      .ToStatus();
}

Status CudaForwardStep::Multiply(const void* x, int rows, const DeviceMatrix& matrix, bool add,
                                 float* out) {
  return products_
      .Multiply({.type = matrix.type,
                 .x = x,
                 .weights = matrix.data,
                 .rows = rows,
                 .inputs = matrix.inputs,
                 .outputs = matrix.outputs,
                 .add = add,
                 .out = out},
                stream_)
      .ToStatus();
}

Status CudaForwardStep::Rotate(const DeviceLayer& layer, int index) {
  const bool local = HasLocalRope(index);
  const RopeTable& table = local ? local_rope_ : rope_;
  return cuda::SplitAndRotate({.qkv = buffers_.qkv,
                               .bias = layer.qkv_bias,
                               .query_norm = layer.query_norm,
                               .key_norm = layer.key_norm,
                               .epsilon = config_.norm_epsilon,
                               .cos_sin = local ? local_cos_sin_ : cos_sin_,
                               .pairs = table.pairs(),
                               .interleaved = table.order() == RopeOrder::kInterleaved,
                               .rows = num_tokens_,
                               .heads = config_.num_heads,
                               .kv_heads = config_.num_kv_heads,
                               .head_dim = config_.head_dim,
                               .queries = buffers_.queries,
                               .keys = buffers_.keys,
                               .values = buffers_.values},
                              stream_)
      .ToStatus();
}

// Outputs come in the type that the next product reads. They are means of stored values, which the
// cache keeps finite, so f16 holds them.
Status CudaForwardStep::AttendLayer(Cache& cache, int index) {
  const size_t kv_width = static_cast<size_t>(config_.num_kv_heads) * config_.head_dim;
  const size_t query_width = static_cast<size_t>(config_.num_heads) * config_.head_dim;
  requests_.clear();
  size_t first = 0;
  for (const StepEntry& entry : entries_) {
    RowsView keys{.data = buffers_.keys + first * kv_width,
                  .num_tokens = entry.num_tokens,
                  .device = Device::kCuda};
    RowsView values = keys;
    values.data = buffers_.values + first * kv_width;
    VARVE_RETURN_IF_ERROR(cache.Append(index, entry.sequence, keys, values));
    AttendRequest& request = requests_.emplace_back();
    request.sequence = entry.sequence;
    request.num_queries = entry.num_tokens;
    request.queries = buffers_.queries + first * query_width;
    request.output = static_cast<uint16_t*>(buffers_.attended) + first * query_width;
    request.output_dtype = TypeOf(model_.weights().layers()[index].attention_output.type);
    request.device = Device::kCuda;
    first += static_cast<size_t>(entry.num_tokens);
  }
  return cache.Attend(index, requests_,
                      {.scale = config_.attention_scale,
                       .soft_cap = config_.attention_soft_cap,
                       .window = config_.LayerWindow(index)});
}

Status CudaForwardStep::AddToResidual(const DeviceMatrix& matrix, const float* bias,
                                      const void* input, const float* post_norm) {
  const bool direct = post_norm == nullptr;
  float* out = direct ? buffers_.residual : buffers_.projected;
  VARVE_RETURN_IF_ERROR(Multiply(input, num_tokens_, matrix, direct, out));
  if (bias != nullptr) {
    VARVE_RETURN_IF_ERROR(cuda::AddBias(out, bias, num_tokens_, config_.width, stream_).ToStatus());
  }
  if (direct) return Status();
  return cuda::RmsNorm({.x = out,
                        .weight = post_norm,
                        .rows = num_tokens_,
                        .dim = config_.width,
                        .epsilon = config_.norm_epsilon,
                        .sum = buffers_.residual},
                       stream_)
      .ToStatus();
}

Status CudaForwardStep::FeedForward(const DeviceLayer& layer) {
  VARVE_RETURN_IF_ERROR(Norm(buffers_.residual, num_tokens_, layer.ffn_norm, layer.gate_up));
  VARVE_RETURN_IF_ERROR(
      Multiply(buffers_.normed, num_tokens_, layer.gate_up, false, buffers_.gate_up));
  VARVE_RETURN_IF_ERROR(cuda::GateUp({.gate_up = buffers_.gate_up,
                                      .rows = num_tokens_,
                                      .dim = config_.ffn_width,
                                      .gelu = config_.activation == Activation::kGeluTanh,
                                      .type = layer.ffn_down.type,
                                      .out = buffers_.gated},
                                     stream_)
                            .ToStatus());
  return AddToResidual(layer.ffn_down, nullptr, buffers_.gated, layer.ffn_post_norm);
}

Status CudaForwardStep::RunLayer(Cache& cache, int index) {
  const DeviceLayer& layer = model_.weights().layers()[index];
  VARVE_RETURN_IF_ERROR(Norm(buffers_.residual, num_tokens_, layer.attention_norm, layer.qkv));
  VARVE_RETURN_IF_ERROR(Multiply(buffers_.normed, num_tokens_, layer.qkv, false, buffers_.qkv));
  VARVE_RETURN_IF_ERROR(Rotate(layer, index));
  VARVE_RETURN_IF_ERROR(AttendLayer(cache, index));
  VARVE_RETURN_IF_ERROR(AddToResidual(layer.attention_output, layer.output_bias, buffers_.attended,
                                      layer.attention_post_norm));
  return FeedForward(layer);
}

Status CudaForwardStep::RunLayers(Cache& cache) {
  const DeviceMatrix& table = model_.weights().token_embedding();
  VARVE_RETURN_IF_ERROR(cuda::Embed({.tokens = tokens_,
                                     .num_tokens = num_tokens_,
                                     .type = table.type,
                                     .table = table.data,
                                     .width = config_.width,
                                     .scale = config_.embedding_scale,
                                     .out = buffers_.residual},
                                    stream_)
                            .ToStatus());
  for (int index = 0; index < config_.num_layers; ++index) {
    VARVE_RETURN_IF_ERROR(RunLayer(cache, index));
  }
  return Status();
}

// --- logits ---

Status CudaForwardStep::WriteLogits(int first_token, float* logits) {
  const DeviceMatrix& output = model_.weights().output();
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  for (int first = first_token; first < num_tokens_; first += logit_rows_) {
    const int rows = std::min(logit_rows_, num_tokens_ - first);
    const float* x = buffers_.residual + static_cast<size_t>(first) * config_.width;
    VARVE_RETURN_IF_ERROR(Norm(x, rows, model_.weights().output_norm(), output));
    VARVE_RETURN_IF_ERROR(Multiply(buffers_.normed, rows, output, false, buffers_.logits));
    if (config_.final_soft_cap != 0.0f) {
      const int64_t count = int64_t{rows} * config_.vocab_size;
      VARVE_RETURN_IF_ERROR(
          cuda::SoftCap(buffers_.logits, count, config_.final_soft_cap, stream_).ToStatus());
    }
    VARVE_RETURN_IF_ERROR(
        Download(rows, logits + static_cast<size_t>(first - first_token) * vocab));
  }
  return Status();
}

Status CudaForwardStep::Download(int rows, float* logits) {
  const size_t bytes =
      static_cast<size_t>(rows) * static_cast<size_t>(config_.vocab_size) * sizeof(float);
  if (bytes > pinned_bytes_) {
    if (pinned_ != nullptr) (void)cudaFreeHost(pinned_);
    pinned_ = nullptr;
    pinned_bytes_ = 0;
    void* memory = nullptr;
    VARVE_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&memory, bytes), "pinned memory", bytes));
    pinned_ = static_cast<float*>(memory);
    pinned_bytes_ = bytes;
  }
  VARVE_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(pinned_, buffers_.logits, bytes, cudaMemcpyDeviceToHost, stream_),
                 "copying logits", bytes));
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), "waiting for logits"));
  std::memcpy(logits, pinned_, bytes);
  return Status();
}

// --- the step ---

Status CudaForwardStep::Run(Cache& cache, std::span<const StepEntry> entries,
                            std::span<const int32_t> tokens, int logits_from, float* logits) {
  const cuda::DeviceGuard guard(model_.device_index());
  entries_ = entries;
  VARVE_RETURN_IF_ERROR(Prepare(cache, tokens, logits_from));
  clock_.Lap(&ForwardTimes::other_us);
  Status begun = cache.BeginStep(entries_);
  clock_.Lap(&ForwardTimes::cache_us);
  if (!begun.ok()) return begun;  // a step that somebody else left open stays theirs
  Status run = RunLayers(cache);
  if (run.ok() && logits_from < num_tokens_) run = WriteLogits(logits_from, logits);
  // A kernel that failed must show before the step is kept, and times must be those of the work.
  if (run.ok()) run = CudaStatus(cudaStreamSynchronize(stream_), "waiting for a step");
  clock_.Lap(&ForwardTimes::other_us);
  if (!run.ok()) {
    cache.AbortStep();
    clock_.Lap(&ForwardTimes::cache_us);
    return run;
  }
  Status ended = cache.EndStep();
  clock_.Lap(&ForwardTimes::cache_us);
  return ended;
}

size_t CudaForwardStep::scratch_bytes() const {
  return buffers_.bytes() + uplink_.bytes() + products_.workspace_bytes() + pinned_bytes_;
}

}  // namespace varve
