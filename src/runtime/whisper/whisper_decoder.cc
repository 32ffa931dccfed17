#include "runtime/whisper/whisper_decoder.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/kernels/activations.h"
#include "runtime/whisper/whisper_block.h"

namespace varve {
namespace {

// Rows of a window that are appended at once. Pages are sealed at the end of each step, so that
// what a window holds unsealed stays a part of it.
constexpr int kWindowStepRows = 256;

}  // namespace

WhisperDecoder::WhisperDecoder(std::shared_ptr<const WhisperModel> model, Executor& executor,
                               ProductPrecision precision)
    : model_(std::move(model)),
      config_(model_->config()),
      executor_(executor),
      linear_(executor, precision) {}

Status WhisperDecoder::Embed(const WhisperStep& step) {
  const auto state = static_cast<size_t>(config_.text_state);
  const WeightMatrix& embedding = model_->weights().token_embedding;
  num_tokens_ = static_cast<int>(step.tokens.size());
  // A token may be wanted twice.
  const size_t size = std::max(step.tokens.size(), step.wanted.size()) * state;
  for (std::vector<float>* buffer :
       {&residual_, &normed_, &queries_, &keys_, &values_, &attended_}) {
    if (buffer->size() < size) buffer->resize(size);
  }
  if (hidden_.size() < 4 * size) hidden_.resize(4 * size);
  size_t token = 0;
  for (const StepEntry& entry : step.entries) {
    VARVE_ASSIGN_OR_RETURN(const int64_t first, step.self->NextPosition(entry.sequence));
    if (first + entry.num_tokens > config_.text_ctx) {
      return InvalidArgument("whisper: position " + std::to_string(first + entry.num_tokens - 1) +
                             " is beyond the model's " + std::to_string(config_.text_ctx));
    }
    for (int i = 0; i < entry.num_tokens; ++i, ++token) {
      float* row = residual_.data() + token * state;
      ActiveWeightKernels().decode[static_cast<int>(embedding.type)](
          embedding.row(step.tokens[token]), config_.text_state, row);
      AddInPlace(row, model_->weights().text_positions.data() + (first + i) * state,
                 config_.text_state);
    }
  }
  return Status();
}

Status WhisperDecoder::AttendSelf(Step& running, const WhisperStep& step, int layer) {
  const WhisperAttention& attention = model_->weights().decoder[layer].attention;
  NormRows(executor_, attention.norm, num_tokens_, residual_.data(), normed_.data());
  ProjectRows(linear_, attention, num_tokens_, normed_.data(), queries_.data(), keys_.data(),
              values_.data());
  requests_.clear();
  size_t first = 0;
  for (const StepEntry& entry : step.entries) {
    VARVE_RETURN_IF_ERROR(running.Append(
        layer, entry.sequence, {.data = keys_.data() + first, .num_tokens = entry.num_tokens},
        {.data = values_.data() + first, .num_tokens = entry.num_tokens}));
    requests_.push_back({.sequence = entry.sequence,
                         .num_queries = entry.num_tokens,
                         .queries = queries_.data() + first,
                         .output = attended_.data() + first});
    first += static_cast<size_t>(entry.num_tokens) * config_.text_state;
  }
  VARVE_RETURN_IF_ERROR(running.Attend(layer, requests_));
  if (step.observer != nullptr) {
    step.observer->OnSelf(layer, num_tokens_, queries_.data(), keys_.data(), values_.data(),
                          attended_.data());
  }
  AddAttended(linear_, attention, num_tokens_, attended_.data(), residual_.data());
  return Status();
}

Status WhisperDecoder::AttendCross(const WhisperStep& step, int layer) {
  const WhisperAttention& attention = model_->weights().decoder[layer].cross;
  NormRows(executor_, attention.norm, num_tokens_, residual_.data(), normed_.data());
  const LinearTask task{.weights = &attention.query,
                        .bias = attention.query_bias.data(),
                        .input = normed_.data(),
                        .output = queries_.data()};
  linear_.Run(num_tokens_, {&task, 1});
  const AttendRequest request{.sequence = step.window,
                              .num_queries = num_tokens_,
                              .queries = queries_.data(),
                              .output = attended_.data()};
  VARVE_RETURN_IF_ERROR(step.cross->Attend(layer, {&request, 1}, {.causal = false}));
  if (step.observer != nullptr) {
    step.observer->OnCross(layer, num_tokens_, queries_.data(), attended_.data());
  }
  AddAttended(linear_, attention, num_tokens_, attended_.data(), residual_.data());
  return Status();
}

void WhisperDecoder::WriteLogits(const WhisperStep& step) {
  const auto state = static_cast<size_t>(config_.text_state);
  const auto count = static_cast<int>(step.wanted.size());
  for (int i = 0; i < count; ++i) {
    std::copy_n(residual_.data() + step.wanted[i] * state, state, queries_.data() + i * state);
  }
  NormRows(executor_, model_->weights().decoder_norm, count, queries_.data(), normed_.data());
  const LinearTask task{.weights = &model_->weights().token_embedding,
                        .input = normed_.data(),
                        .output = step.logits};
  linear_.Run(count, {&task, 1});
}

Status WhisperDecoder::Run(const WhisperStep& step) {
  VARVE_RETURN_IF_ERROR(Embed(step));
  VARVE_ASSIGN_OR_RETURN(Step running, Step::Begin(*step.self, step.entries));
  for (int layer = 0; layer < config_.text_layers; ++layer) {
    VARVE_RETURN_IF_ERROR(AttendSelf(running, step, layer));
    VARVE_RETURN_IF_ERROR(AttendCross(step, layer));
    AddMlp(executor_, linear_, model_->weights().decoder[layer], num_tokens_, residual_.data(),
           normed_.data(), hidden_.data());
  }
  WriteLogits(step);
  return running.Commit();
}

// Only full pages are sealed. The rows that the last page lacks are its own rows again, in turn, so
// that a rung that looks at the whole page sees what the page is like; they are forgotten at once.
Result<SequenceId> WhisperDecoder::AppendWindow(Cache& cross, const float* encoded) {
  const auto state = static_cast<size_t>(config_.text_state);
  const int page = cross.shape().page_tokens;
  const int rows = config_.audio_ctx;
  const int padded = (rows + page - 1) / page * page;
  const int last_page = padded - page;
  const size_t size = kWindowStepRows * state;
  std::vector<float> input(size), keys(size), values(size);
  VARVE_ASSIGN_OR_RETURN(const SequenceId window, cross.CreateSequence());
  const auto append = [&](Step& step, int64_t first, int count) -> Status {
    for (int i = 0; i < count; ++i) {
      const int64_t at = first + i;
      const int64_t row = at < rows ? at : last_page + (at - rows) % (rows - last_page);
      std::copy_n(encoded + row * state, state, input.data() + i * state);
    }
    for (int layer = 0; layer < config_.text_layers; ++layer) {
      const WhisperAttention& attention = model_->weights().decoder[layer].cross;
      const std::array<LinearTask, 2> tasks = {{
          {.weights = &attention.key, .input = input.data(), .output = keys.data()},
          {.weights = &attention.value,
           .bias = attention.value_bias.data(),
           .input = input.data(),
           .output = values.data()},
      }};
      linear_.Run(count, tasks);
      VARVE_RETURN_IF_ERROR(step.Append(layer, window, {.data = keys.data(), .num_tokens = count},
                                        {.data = values.data(), .num_tokens = count}));
    }
    return Status();
  };
  Status status;
  for (int first = 0; first < padded && status.ok(); first += kWindowStepRows) {
    status = Prefill(
        cross, window, std::min(kWindowStepRows, padded - first),
        [&](Step& step, int64_t done, int count) { return append(step, first + done, count); });
  }
  if (status.ok()) status = cross.EndPrompt(window);
  if (status.ok()) status = cross.Truncate(window, rows);
  if (status.ok()) return window;
  (void)cross.Free(window);
  return status;
}

}  // namespace varve
