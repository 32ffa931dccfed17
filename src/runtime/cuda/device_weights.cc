#include "runtime/cuda/device_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/align.h"
#include "cuda/memory/device_buffers.h"
#include "kernels/kernels.h"

namespace varve {
namespace {

using cuda::CudaStatus;

constexpr size_t kAlignment = 256;  // what cuBLASLt's fastest algorithms want
constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr float kMostF16 = 65504.0f;

cuda::HalfType TypeOf(std::span<const WeightMatrix* const> parts) {
  const bool brain = std::all_of(parts.begin(), parts.end(), [](const WeightMatrix* part) {
    return part->type == WeightType::kBF16;
  });
  return brain ? cuda::HalfType::kBF16 : cuda::HalfType::kF16;
}

// One row, as the device has it. `scratch` has room for a row of f32.
void NarrowRow(const WeightMatrix& matrix, int64_t row, cuda::HalfType type, float* scratch,
               uint16_t* out) {
  const bool stored = matrix.type == WeightType::kF16 ||
                      (matrix.type == WeightType::kBF16 && type == cuda::HalfType::kBF16);
  if (stored) {
    std::memcpy(out, matrix.row(row), matrix.row_bytes());
    return;
  }
  const auto count = static_cast<size_t>(matrix.cols);
  ActiveWeightKernels().decode[static_cast<int>(matrix.type)](matrix.row(row), matrix.cols,
                                                              scratch);
  for (size_t i = 0; i < count; ++i) scratch[i] = std::clamp(scratch[i], -kMostF16, kMostF16);
  ActiveKernels().narrow_f16(scratch, count, out);
}

}  // namespace

// Hands out a range of device memory and fills it. Without memory it only counts.
class DeviceWeights::Uploader {
 public:
  Uploader(std::byte* memory, Executor& executor, cudaStream_t stream)
      : memory_(memory), executor_(executor), stream_(stream) {}
  ~Uploader() {
    for (Piece& piece : pieces_) {
      if (piece.data != nullptr) (void)cudaFreeHost(piece.data);
      if (piece.sent != nullptr) (void)cudaEventDestroy(piece.sent);
    }
  }
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  size_t used() const { return used_; }

  // The vectors behind one another; null if all are empty.
  Status Vectors(std::initializer_list<const std::vector<float>*> parts, const float** out) {
    size_t count = 0;
    for (const std::vector<float>* part : parts) count += part->size();
    if (count == 0) return Status();
    std::byte* to = Take(count * sizeof(float));
    *out = reinterpret_cast<const float*>(to);
    if (memory_ == nullptr) return Status();
    for (const std::vector<float>* part : parts) {
      const size_t bytes = part->size() * sizeof(float);
      VARVE_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(to, part->data(), bytes, cudaMemcpyHostToDevice, stream_),
                     "a vector", bytes));
      to += bytes;
    }
    return Status();
  }

  // The rows of matrices with as many columns, behind one another.
  Status Matrix(std::initializer_list<const WeightMatrix*> list, DeviceMatrix* out) {
    const std::span<const WeightMatrix* const> parts(list.begin(), list.size());
    out->type = TypeOf(parts);
    out->inputs = static_cast<int>(parts[0]->cols);
    out->outputs = 0;
    for (const WeightMatrix* part : parts) out->outputs += static_cast<int>(part->rows);
    std::byte* to = Take(out->bytes());
    out->data = to;
    if (memory_ == nullptr) return Status();
    for (const WeightMatrix* part : parts) {
      VARVE_RETURN_IF_ERROR(SendRows(*part, out->type, to));
      to += static_cast<size_t>(part->rows) * static_cast<size_t>(part->cols) * 2;
    }
    return Status();
  }

  Status Wait() { return CudaStatus(cudaStreamSynchronize(stream_), "copying weights"); }

 private:
  // Pinned memory; one is filled while the other is on its way.
  struct Piece {
    std::byte* data = nullptr;
    size_t bytes = 0;
    cudaEvent_t sent = nullptr;
  };

  std::byte* Take(size_t bytes) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += AlignUp(bytes, kAlignment);
    return at;
  }

  Result<std::byte*> BeginPiece(size_t bytes) {
    Piece& piece = pieces_[next_];
    if (piece.sent == nullptr) {
      VARVE_RETURN_IF_ERROR(CudaStatus(
          cudaEventCreateWithFlags(&piece.sent, cudaEventDisableTiming), "creating an event"));
    } else {
      VARVE_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(piece.sent), "copying weights"));
    }
    if (bytes <= piece.bytes) return piece.data;
    if (piece.data != nullptr) (void)cudaFreeHost(piece.data);
    piece = {nullptr, 0, piece.sent};
    void* data = nullptr;
    VARVE_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, bytes), "pinned memory", bytes));
    piece.data = static_cast<std::byte*>(data);
    piece.bytes = bytes;
    return piece.data;
  }

  Status SendPiece(size_t bytes, std::byte* to) {
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    VARVE_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(to, piece.data, bytes, cudaMemcpyHostToDevice, stream_),
                   "copying weights", bytes));
    return CudaStatus(cudaEventRecord(piece.sent, stream_), "recording an event");
  }

  Status SendRows(const WeightMatrix& matrix, cuda::HalfType type, std::byte* to) {
    const auto cols = static_cast<size_t>(matrix.cols);
    const size_t row_bytes = cols * 2;
    const auto most = static_cast<int64_t>(std::max<size_t>(1, kPieceBytes / row_bytes));
    const auto workers = static_cast<size_t>(executor_.num_threads());
    if (scratch_.size() < workers * cols) scratch_.resize(workers * cols);
    for (int64_t first = 0; first < matrix.rows; first += most) {
      const auto count = static_cast<size_t>(std::min(most, matrix.rows - first));
      VARVE_ASSIGN_OR_RETURN(std::byte * piece, BeginPiece(count * row_bytes));
      executor_.ParallelFor(count, [&](size_t i, int worker) {
        NarrowRow(matrix, first + static_cast<int64_t>(i), type,
                  scratch_.data() + static_cast<size_t>(worker) * cols,
                  reinterpret_cast<uint16_t*>(piece + i * row_bytes));
      });
      VARVE_RETURN_IF_ERROR(SendPiece(count * row_bytes, to));
      to += count * row_bytes;
    }
    return Status();
  }

  std::byte* memory_;  // null: only counts
  Executor& executor_;
  cudaStream_t stream_;
  size_t used_ = 0;
  std::array<Piece, 2> pieces_;
  size_t next_ = 0;
  std::vector<float> scratch_;  // [workers, columns]
};

Status DeviceWeights::Place(const LlamaWeights& weights, Uploader& uploader) {
  layers_.clear();
  VARVE_RETURN_IF_ERROR(uploader.Matrix({&weights.token_embedding}, &token_embedding_));
  for (const LlamaLayer& from : weights.layers) {
    DeviceLayer& to = layers_.emplace_back();
    VARVE_RETURN_IF_ERROR(uploader.Vectors({&from.attention_norm}, &to.attention_norm));
    VARVE_RETURN_IF_ERROR(uploader.Matrix({&from.query, &from.key, &from.value}, &to.qkv));
    VARVE_RETURN_IF_ERROR(
        uploader.Vectors({&from.query_bias, &from.key_bias, &from.value_bias}, &to.qkv_bias));
    VARVE_RETURN_IF_ERROR(uploader.Vectors({&from.query_norm}, &to.query_norm));
    VARVE_RETURN_IF_ERROR(uploader.Vectors({&from.key_norm}, &to.key_norm));
    VARVE_RETURN_IF_ERROR(uploader.Matrix({&from.attention_output}, &to.attention_output));
    VARVE_RETURN_IF_ERROR(uploader.Vectors({&from.output_bias}, &to.output_bias));
    VARVE_RETURN_IF_ERROR(uploader.Vectors({&from.attention_post_norm}, &to.attention_post_norm));
    VARVE_RETURN_IF_ERROR(uploader.Vectors({&from.ffn_norm}, &to.ffn_norm));
    VARVE_RETURN_IF_ERROR(uploader.Matrix({&from.ffn_gate, &from.ffn_up}, &to.gate_up));
    VARVE_RETURN_IF_ERROR(uploader.Matrix({&from.ffn_down}, &to.ffn_down));
    VARVE_RETURN_IF_ERROR(uploader.Vectors({&from.ffn_post_norm}, &to.ffn_post_norm));
  }
  VARVE_RETURN_IF_ERROR(uploader.Vectors({&weights.output_norm}, &output_norm_));
  output_ = token_embedding_;
  if (weights.output.data == weights.token_embedding.data) return Status();
  return uploader.Matrix({&weights.output}, &output_);
}

Result<std::unique_ptr<const DeviceWeights>> DeviceWeights::Upload(const LlamaWeights& weights,
                                                                   Executor& executor,
                                                                   cudaStream_t stream) {
  std::unique_ptr<DeviceWeights> placed(new DeviceWeights);
  Uploader counter(nullptr, executor, stream);
  VARVE_RETURN_IF_ERROR(placed->Place(weights, counter));
  VARVE_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&placed->memory_, counter.used()),
                                   "memory for the model's weights", counter.used()));
  placed->bytes_ = counter.used();
  Uploader uploader(static_cast<std::byte*>(placed->memory_), executor, stream);
  VARVE_RETURN_IF_ERROR(placed->Place(weights, uploader));
  VARVE_RETURN_IF_ERROR(uploader.Wait());
  if (weights.file != nullptr) VARVE_RETURN_IF_ERROR(weights.file->CheckWhole());
  return std::unique_ptr<const DeviceWeights>(std::move(placed));
}

DeviceWeights::~DeviceWeights() { (void)cudaFree(memory_); }

uint64_t DeviceWeights::bytes_per_token() const {
  uint64_t bytes = output_.bytes();
  for (const DeviceLayer& layer : layers_) {
    bytes += layer.qkv.bytes() + layer.attention_output.bytes() + layer.gate_up.bytes() +
             layer.ffn_down.bytes();
  }
  return bytes;
}

}  // namespace varve
