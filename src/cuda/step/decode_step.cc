#include "cuda/step/decode_step.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "cuda/device_encode.h"
#include "cuda/layers/layer_kernels.h"
#include "cuda/step/random_fill.h"
#include "cuda/testing/bench_pages.h"

namespace varve::cuda::step {
namespace {

using testing::DeviceBuffer;
using testing::Must;

void MustBeOk(const DeviceStatus& status) {
  if (status.ok()) return;
  std::printf("%s\n", status.message());
  std::exit(1);
}

size_t QkvOutputs(const ModelShape& shape) {
  return static_cast<size_t>(shape.heads + 2 * shape.kv_heads) * kHeadDim;
}
size_t LayerValues(const ModelShape& shape) {
  const auto hidden = static_cast<size_t>(shape.hidden);
  return hidden * (QkvOutputs(shape) + static_cast<size_t>(shape.heads) * kHeadDim +
                   3 * static_cast<size_t>(shape.ffn));
}

PageShape PagesOf(const ModelShape& shape, DeviceRung rung, int pq_bits) {
  const bool pq = rung == DeviceRung::kPq;
  return {kHeadDim, shape.kv_heads, kPageTokens, pq ? kHeadDim / 2 : 0, pq ? pq_bits : 0};
}

}  // namespace

StepWeights::StepWeights(const ModelShape& shape)
    : shape_(shape),
      layer_count_(LayerValues(shape)),
      layers_(static_cast<size_t>(shape.layers)),
      values_(Bytes(shape) / sizeof(__half)),
      norm_(static_cast<size_t>(shape.hidden)) {
  FillRandom(values_.data(), values_.size(), 1.7f / std::sqrt(static_cast<float>(shape.hidden)), 1,
             nullptr);
  norm_.Upload(std::vector<float>(norm_.size(), 1.0f));
}

size_t StepWeights::Bytes(const ModelShape& shape) {
  return (LayerValues(shape) * static_cast<size_t>(shape.layers) +
          static_cast<size_t>(shape.vocabulary) * static_cast<size_t>(shape.hidden)) *
         sizeof(__half);
}

StepWeights::Layer StepWeights::layer(int index) const {
  const auto hidden = static_cast<size_t>(shape_.hidden);
  Layer layer;
  layer.qkv = values_.data() + layer_count_ * static_cast<size_t>(index);
  layer.out = layer.qkv + hidden * QkvOutputs(shape_);
  layer.gate_up = layer.out + hidden * static_cast<size_t>(shape_.heads) * kHeadDim;
  layer.down = layer.gate_up + 2 * hidden * static_cast<size_t>(shape_.ffn);
  return layer;
}

size_t StepCache::Bytes(const ModelShape& shape, int batch, int context, DeviceRung rung,
                        int pq_bits) {
  const size_t sealed = DevicePageBytes(rung, rung, PagesOf(shape, rung, pq_bits));
  const size_t open =
      DevicePageBytes(DeviceRung::kF16, DeviceRung::kF16, PagesOf(shape, DeviceRung::kF16, 0));
  const auto pages = static_cast<size_t>(context / kPageTokens - 1);
  return static_cast<size_t>(shape.layers) * static_cast<size_t>(batch) *
         (pages * ((sealed + 255) / 256 * 256) + open);
}

StepCache::StepCache(const ModelShape& shape, int batch, int context, DeviceRung rung, int pq_bits)
    : batch_(batch), pages_each_(context / kPageTokens), limits_(testing::Limits()) {
  call_.shape = PagesOf(shape, rung, pq_bits);
  call_.num_sequences = batch;
  call_.query_heads = shape.heads;
  call_.max_pages = pages_each_;
  call_.key_rungs = call_.value_rungs = RungBit(rung) | RungBit(DeviceRung::kF16);
  call_.pure_pages = true;
  call_.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  book_ = testing::MakePqBook(kHeadDim, kHeadDim / 2, std::max(pq_bits, 4), kPageTokens, false, 5);
  centroids_ = std::make_unique<DeviceBuffer<uint8_t>>(book_.centroids);
  scales_ = std::make_unique<DeviceBuffer<float>>(book_.scales);
  call_.key_codebook.centroids = call_.value_codebook.centroids = centroids_->data();
  call_.key_codebook.scales = call_.value_codebook.scales = scales_->data();
  key_rows_ = std::make_unique<DeviceBuffer<uint8_t>>(testing::PairRowsOf(book_, false));
  value_rows_ = std::make_unique<DeviceBuffer<uint8_t>>(testing::PairRowsOf(book_, true));
  rows_ = std::make_unique<DeviceBuffer<uint8_t>>(testing::RowsOf(book_));
  call_.key_codebook.rows = call_.value_codebook.rows = rows_->data();
  call_.key_codebook.pair_rows = key_rows_->data();
  call_.value_codebook.pair_rows = value_rows_->data();
  const auto content = testing::MakeContent(rung, call_.shape, book_).bytes;
  const size_t page_bytes = content.size() / testing::kPeriod;
  sealed_bytes_ = (page_bytes + 255) / 256 * 256;
  const auto sequences = static_cast<size_t>(shape.layers) * static_cast<size_t>(batch);
  const size_t sealed = sequences * static_cast<size_t>(pages_each_ - 1);
  pool_ = std::make_unique<DeviceBuffer<std::byte>>(sealed * sealed_bytes_);
  for (size_t i = 0; i < std::min<size_t>(testing::kPeriod, sealed); ++i) {
    Must(cudaMemcpy(pool_->data() + i * sealed_bytes_, &content[i * page_bytes], page_bytes,
                    cudaMemcpyHostToDevice),
         "fill");
  }
  for (size_t filled = testing::kPeriod; filled < sealed; filled *= 2) {
    Must(cudaMemcpy(pool_->data() + filled * sealed_bytes_, pool_->data(),
                    std::min(filled, sealed - filled) * sealed_bytes_, cudaMemcpyDeviceToDevice),
         "fill");
  }
  const PageShape float_shape = PagesOf(shape, DeviceRung::kF16, 0);
  open_bytes_ = DevicePageBytes(DeviceRung::kF16, DeviceRung::kF16, float_shape);
  open_ = std::make_unique<DeviceBuffer<std::byte>>(sequences * open_bytes_);
  Must(cudaMemset(open_->data(), 0, sequences * open_bytes_), "fill");
  FillPages(shape.layers);
  workspace_ = std::make_unique<DeviceBuffer<std::byte>>(AttentionWorkspaceBytes(call_, limits_));
  MustBeOk(InitAttentionWorkspace(workspace_->data(), workspace_->size(), nullptr));
}

// Half of the open page's rows are there; the step writes the last of them.
void StepCache::FillPages(int layers) {
  const auto each = static_cast<size_t>(pages_each_);
  const size_t sequences = static_cast<size_t>(layers) * static_cast<size_t>(batch_);
  std::vector<DevicePage> records(sequences * each);
  const DeviceRung rung = call_.key_rungs == RungBit(DeviceRung::kF16)
                              ? DeviceRung::kF16
                              : static_cast<DeviceRung>(31 - __builtin_clz(call_.key_rungs));
  size_t next = 0;
  for (size_t sequence = 0; sequence < sequences; ++sequence) {
    for (size_t i = 0; i < each; ++i) {
      DevicePage& page = records[sequence * each + i];
      const bool open = i + 1 == each;
      page.bytes =
          open ? open_->data() + sequence * open_bytes_ : pool_->data() + next++ * sealed_bytes_;
      page.rows = open ? kPageTokens / 2 : kPageTokens;
      page.live[0] = open ? (uint64_t{1} << (kPageTokens / 2)) - 1 : ~uint64_t{0};
      page.key_rung = page.value_rung = open ? DeviceRung::kF16 : rung;
    }
    open_pages_.push_back(open_->data() + sequence * open_bytes_);
  }
  pages_ = std::make_unique<DeviceBuffer<DevicePage>>(records);
  std::vector<int32_t> begin;
  for (int i = 0; i <= batch_; ++i) begin.push_back(i * pages_each_);
  page_begin_ = std::make_unique<DeviceBuffer<int32_t>>(begin);
  call_.page_begin = page_begin_->data();
}

void StepCache::Append(int layer, const float* keys, const float* values, cudaStream_t stream) {
  const auto index = static_cast<size_t>(layer);
  const int64_t row_stride = int64_t{call_.shape.kv_heads} * kHeadDim;
  if (jobs_.size() <= index) jobs_.resize(index + 1);
  if (jobs_[index] == nullptr) {  // the first step; those that are captured find it
    std::vector<DeviceAppendJob> jobs(static_cast<size_t>(batch_));
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i] = {open_pages_[index * jobs.size() + i], keys + static_cast<int64_t>(i) * row_stride,
                 values + static_cast<int64_t>(i) * row_stride, kPageTokens / 2 - 1, 1};
    }
    std::vector<std::byte> bytes(jobs.size() * sizeof(DeviceAppendJob));
    std::memcpy(bytes.data(), jobs.data(), bytes.size());
    jobs_[index] = std::make_unique<DeviceBuffer<std::byte>>(bytes);
  }
  DeviceAppend call;
  call.shape = call_.shape;
  call.jobs = reinterpret_cast<const DeviceAppendJob*>(jobs_[index]->data());
  call.num_jobs = batch_;
  call.type = TensorType::kF32;
  call.keys = call.values = {row_stride, kHeadDim};
  MustBeOk(cuda::Append(call, stream));
}

void StepCache::Attend(int layer, const float* queries, __half* output, cudaStream_t stream) {
  DeviceAttention call = call_;
  call.pages = pages_->data() + static_cast<size_t>(layer) * static_cast<size_t>(batch_) *
                                    static_cast<size_t>(pages_each_);
  call.query_type = TensorType::kF32;
  call.queries = queries;
  call.output = output;
  MustBeOk(cuda::Attend(call, limits_, workspace_->data(), workspace_->size(), stream));
}

DecodeStep::DecodeStep(const ModelShape& shape, const StepWeights& weights, int batch, int position)
    : shape_(shape),
      weights_(weights),
      batch_(batch),
      tokens_(static_cast<size_t>(batch)),
      cos_sin_(static_cast<size_t>(batch) * kHeadDim),
      x_(static_cast<size_t>(batch) * shape.hidden),
      qkv_(static_cast<size_t>(batch) * QkvOutputs(shape)),
      queries_(static_cast<size_t>(batch) * shape.heads * kHeadDim),
      keys_(static_cast<size_t>(batch) * shape.kv_heads * kHeadDim),
      values_(keys_.size()),
      gate_up_(2 * static_cast<size_t>(batch) * shape.ffn),
      logits_(static_cast<size_t>(batch) * shape.vocabulary),
      normed_(x_.size()),
      attended_(queries_.size()),
      gated_(static_cast<size_t>(batch) * shape.ffn) {
  MustBeOk(products_.Create(AlgorithmChoice::kFastest));
  FillRandom(attended_.data(), attended_.size(), 1.0f, 4, nullptr);
  constexpr int kPairs = kHeadDim / 2;
  std::vector<int32_t> tokens;
  std::vector<float> cos_sin(cos_sin_.size());
  for (int row = 0; row < batch; ++row) {
    tokens.push_back(row + 1);
    for (int i = 0; i < kPairs; ++i) {
      const double angle = position * std::pow(10000.0, -static_cast<double>(i) / kPairs);
      const size_t at = static_cast<size_t>(row) * kHeadDim + static_cast<size_t>(i);
      cos_sin[at] = static_cast<float>(std::cos(angle));
      cos_sin[at + kPairs] = static_cast<float>(std::sin(angle));
    }
  }
  tokens_.Upload(tokens);
  cos_sin_.Upload(cos_sin);
}

void DecodeStep::Norm(__half* out, cudaStream_t stream) {
  MustBeOk(RmsNorm({.x = x_.data(),
                    .weight = weights_.norm(),
                    .rows = batch_,
                    .dim = shape_.hidden,
                    .epsilon = 1e-5f,
                    .out = out},
                   stream));
}

void DecodeStep::Multiply(const __half* x, const __half* weights, int inputs, int outputs, bool add,
                          float* out, cudaStream_t stream) {
  MustBeOk(products_.Multiply({.x = x,
                               .weights = weights,
                               .rows = batch_,
                               .inputs = inputs,
                               .outputs = outputs,
                               .add = add,
                               .out = out},
                              stream));
}

void DecodeStep::Rotate(cudaStream_t stream) {
  MustBeOk(SplitAndRotate({.qkv = qkv_.data(),
                           .cos_sin = cos_sin_.data(),
                           .pairs = kHeadDim / 2,
                           .rows = batch_,
                           .heads = shape_.heads,
                           .kv_heads = shape_.kv_heads,
                           .head_dim = kHeadDim,
                           .queries = queries_.data(),
                           .keys = keys_.data(),
                           .values = values_.data()},
                          stream));
}

void DecodeStep::Run(StepCache* cache, cudaStream_t stream) {
  // The matrix of the logits is the table of the embedding, too.
  MustBeOk(Embed({.tokens = tokens_.data(),
                  .num_tokens = batch_,
                  .table = weights_.logits(),
                  .width = shape_.hidden,
                  .out = x_.data()},
                 stream));
  const int qkv = static_cast<int>(QkvOutputs(shape_)), query = shape_.heads * kHeadDim;
  for (int index = 0; index < shape_.layers; ++index) {
    const StepWeights::Layer layer = weights_.layer(index);
    Norm(normed_.data(), stream);
    Multiply(normed_.data(), layer.qkv, shape_.hidden, qkv, false, qkv_.data(), stream);
    Rotate(stream);
    if (cache != nullptr) {
      cache->Append(index, keys_.data(), values_.data(), stream);
      cache->Attend(index, queries_.data(), attended_.data(), stream);
    }
    Multiply(attended_.data(), layer.out, query, shape_.hidden, true, x_.data(), stream);
    Norm(normed_.data(), stream);
    Multiply(normed_.data(), layer.gate_up, shape_.hidden, 2 * shape_.ffn, false, gate_up_.data(),
             stream);
    MustBeOk(GateUp(
        {.gate_up = gate_up_.data(), .rows = batch_, .dim = shape_.ffn, .out = gated_.data()},
        stream));
    Multiply(gated_.data(), layer.down, shape_.ffn, shape_.hidden, true, x_.data(), stream);
  }
  Norm(normed_.data(), stream);
  Multiply(normed_.data(), weights_.logits(), shape_.hidden, shape_.vocabulary, false,
           logits_.data(), stream);
}

}  // namespace varve::cuda::step
