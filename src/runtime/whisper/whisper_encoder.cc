#include "runtime/whisper/whisper_encoder.h"

#include <algorithm>
#include <utility>

#include "base/timer.h"
#include "runtime/kernels/activations.h"
#include "runtime/whisper/whisper_block.h"
#include "varve/step.h"

namespace varve {
namespace {

// Nothing is ever sealed: the step that brings the rows ends with the layer.
constexpr const char* kEncoderPlan = "f32,open_rung=f32";

}  // namespace

WhisperEncoder::WhisperEncoder(std::shared_ptr<const WhisperModel> model, Executor& executor,
                               ProductPrecision precision)
    : model_(std::move(model)),
      config_(model_->config()),
      executor_(executor),
      linear_(executor, precision) {}

Result<std::unique_ptr<WhisperEncoder>> WhisperEncoder::Create(
    std::shared_ptr<const WhisperModel> model, Executor& executor, ProductPrecision precision,
    std::shared_ptr<PagePool> pool) {
  std::unique_ptr<WhisperEncoder> encoder(
      new WhisperEncoder(std::move(model), executor, precision));
  const WhisperConfig& config = encoder->config_;
  CacheOptions options;
  VARVE_ASSIGN_OR_RETURN(options.plan, ParsePlan(kEncoderPlan));
  options.executor = &executor;
  options.pool = std::move(pool);
  const CacheShape shape{.num_layers = 1,
                         .num_kv_heads = config.audio_heads,
                         .group_size = 1,
                         .key_dim = config.audio_head_dim(),
                         .value_dim = config.audio_head_dim()};
  VARVE_ASSIGN_OR_RETURN(encoder->cache_, Cache::Create(shape, std::move(options)));
  VARVE_ASSIGN_OR_RETURN(encoder->sequence_, encoder->cache_->CreateSequence());
  return encoder;
}

// A frame of zeros lies before the first row and behind the last: three rows behind one another are
// what a tap meets, whatever the frame.
void WhisperEncoder::Convolve(const float* mel, ptrdiff_t stride, float* residual) {
  const auto state = static_cast<size_t>(config_.audio_state);
  const auto mels = static_cast<size_t>(config_.mels);
  const int num_frames = 2 * config_.audio_ctx;
  const WhisperConvolution& conv1 = model_->weights().conv1;
  const WhisperConvolution& conv2 = model_->weights().conv2;
  frames_.assign((num_frames + 2) * mels, 0.0f);
  ForRows(executor_, num_frames, mels, [&](size_t frame) {
    float* row = frames_.data() + (frame + 1) * mels;
    for (size_t m = 0; m < mels; ++m) row[m] = mel[m * stride + frame];
  });
  filtered_.resize((num_frames + 2) * state);
  std::fill_n(filtered_.begin(), state, 0.0f);
  std::fill_n(filtered_.end() - static_cast<ptrdiff_t>(state), state, 0.0f);
  const WeightMatrix matrix1 = conv1.matrix();
  const LinearTask first{.weights = &matrix1,
                         .bias = conv1.bias.data(),
                         .input = frames_.data(),
                         .input_stride = static_cast<ptrdiff_t>(mels),
                         .output = filtered_.data() + state};
  linear_.Run(num_frames, {&first, 1});
  ForRows(executor_, num_frames, state, [&](size_t frame) {
    float* row = filtered_.data() + (frame + 1) * state;
    Gelu(row, config_.audio_state, row);
  });
  const WeightMatrix matrix2 = conv2.matrix();
  const LinearTask second{.weights = &matrix2,
                          .bias = conv2.bias.data(),
                          .input = filtered_.data(),
                          .input_stride = static_cast<ptrdiff_t>(2 * state),
                          .output = residual};
  linear_.Run(config_.audio_ctx, {&second, 1});
  const float* positions = model_->weights().audio_positions.data();
  ForRows(executor_, config_.audio_ctx, state, [&](size_t row) {
    Gelu(residual + row * state, config_.audio_state, residual + row * state);
    AddInPlace(residual + row * state, positions + row * state, config_.audio_state);
  });
}

Status WhisperEncoder::Attend(const WhisperAttention& attention, float* residual) {
  const int rows = config_.audio_ctx;
  NormRows(executor_, attention.norm, rows, residual, normed_.data());
  ProjectRows(linear_, attention, rows, normed_.data(), queries_.data(), keys_.data(),
              values_.data());
  const Timer timer;
  VARVE_ASSIGN_OR_RETURN(Step step, Step::Begin(*cache_, sequence_, rows));
  VARVE_RETURN_IF_ERROR(step.Append(0, sequence_, {.data = keys_.data(), .num_tokens = rows},
                                    {.data = values_.data(), .num_tokens = rows}));
  const AttendRequest request{.sequence = sequence_,
                              .num_queries = rows,
                              .queries = queries_.data(),
                              .output = normed_.data()};
  VARVE_RETURN_IF_ERROR(step.Attend(0, {&request, 1}, {.causal = false}));
  step.Abort();
  times_.attend_us += timer.us();
  AddAttended(linear_, attention, rows, normed_.data(), residual);
  return Status();
}

Status WhisperEncoder::Run(const float* mel, ptrdiff_t stride, float* output) {
  const Timer timer;
  const size_t size = static_cast<size_t>(config_.audio_ctx) * config_.audio_state;
  for (std::vector<float>* buffer : {&normed_, &queries_, &keys_, &values_}) buffer->resize(size);
  hidden_.resize(4 * size);
  Convolve(mel, stride, output);
  times_.convolve_us += timer.us();
  for (const WhisperBlock& block : model_->weights().encoder) {
    VARVE_RETURN_IF_ERROR(Attend(block.attention, output));
    AddMlp(executor_, linear_, block, config_.audio_ctx, output, normed_.data(), hidden_.data());
  }
  NormRows(executor_, model_->weights().encoder_norm, config_.audio_ctx, output, output);
  times_.all_us += timer.us();
  return Status();
}

}  // namespace varve
