#include "runtime/kernels/linear_inputs.h"

#include <algorithm>
#include <numeric>

#include "base/align.h"

namespace varve {

void LinearInputs::Start(size_t num_tasks, int num_tokens) {
  num_used_ = 0;
  if (inputs_.size() < num_tasks) inputs_.resize(num_tasks);
  num_tokens_ = num_tokens;
}

LinearInputs::Key LinearInputs::KeyOf(const LinearTask& task) {
  return {task.input, task.weights->cols, InputStride(task),
          InfoOf(task.weights->type).block_values};
}

LinearInputs::Input* LinearInputs::Find(const Key& key) {
  for (size_t i = 0; i < num_used_; ++i) {
    if (inputs_[i].key == key) return &inputs_[i];
  }
  return nullptr;
}

bool LinearInputs::Input::Reserve(int64_t num_tokens) {
  // Scales, sums and sums of halves, four bytes each.
  const int64_t floats = key.cols / key.block + key.cols / kRoundedRun + key.cols / kRoundedHalf;
  const size_t wanted =
      static_cast<size_t>(num_tokens) * (static_cast<size_t>(key.cols) * sizeof(int16_t) +
                                         static_cast<size_t>(floats) * sizeof(float));
  return ReserveBytes(wanted);
}

bool LinearInputs::Input::ReserveBytes(size_t wanted) {
  if (bytes >= wanted) return true;
  memory.reset();
  memory = hwy::AllocateAligned<std::byte>(wanted);
  bytes = memory != nullptr ? wanted : 0;
  return memory != nullptr;
}

const RoundedInput* LinearInputs::Round(const WeightKernels& kernels, const LinearTask& task) {
  const Key key = KeyOf(task);
  if (const Input* found = Find(key)) return found->rounded;
  Input& input = inputs_[num_used_];
  input.key = key;
  if (!input.Reserve(num_tokens_)) return nullptr;
  int16_t* codes = input.codes();
  float* scales = input.scales(num_tokens_);
  float* sums = input.sums(num_tokens_);
  int32_t* half_sums = input.half_sums(num_tokens_);
  for (int t = 0; t < num_tokens_; ++t) {
    kernels.rounded->round_input(key.values + t * key.stride, key.cols, key.block, codes, scales,
                                 sums);
    for (int64_t i = 0; i < key.cols / kRoundedHalf; ++i) {
      const int16_t* half = codes + kRoundedHalf * i;
      half_sums[i] = std::accumulate(half, half + kRoundedHalf, int32_t{0});
    }
    input.rounded[t] = {codes, scales, sums, half_sums};
    codes += key.cols;
    scales += key.cols / key.block;
    sums += key.cols / kRoundedRun;
    half_sums += key.cols / kRoundedHalf;
  }
  ++num_used_;
  return input.rounded;
}

const PackedInputs* LinearInputs::Pack(const WeightKernels& kernels, const LinearTask& task,
                                       Executor& executor) {
  const Key key = KeyOf(task);
  if (const Input* found = Find(key)) return &found->packed;
  Input& input = inputs_[num_used_];
  input.key = key;
  const int num_groups = (num_tokens_ + kPackedTokens - 1) / kPackedTokens;
  const int64_t padded = int64_t{num_groups} * kPackedTokens;
  if (!input.Reserve(padded)) return nullptr;
  float* half_sums = reinterpret_cast<float*>(input.half_sums(padded));
  input.packed = {input.codes(), input.scales(padded), input.sums(padded), half_sums, num_tokens_};
  executor.ParallelFor(static_cast<size_t>(num_groups), [&](size_t group, int) {
    const int64_t first = static_cast<int64_t>(group) * kPackedTokens;
    const int count = std::min(kPackedTokens, num_tokens_ - static_cast<int>(first));
    kernels.rounded->pack_inputs(key.values + first * key.stride, key.stride, count, key.cols,
                                 key.block, input.codes() + first * key.cols,
                                 input.scales(padded) + first * (key.cols / key.block),
                                 input.sums(padded) + first * (key.cols / kRoundedRun),
                                 half_sums + first * (key.cols / kRoundedHalf));
  });
  ++num_used_;
  return &input.packed;
}

const uint16_t* LinearInputs::PackBf16(const AmxKernels& kernels, const LinearTask& task,
                                       Executor& executor) {
  Key key = KeyOf(task);
  key.block = 0;
  if (const Input* found = Find(key)) return reinterpret_cast<const uint16_t*>(found->codes());
  Input& input = inputs_[num_used_];
  input.key = key;
  const int num_groups = static_cast<int>(CeilDiv(num_tokens_, kAmxRows));
  const int64_t group_values = CeilDiv(key.cols, kAmxColumns) * kAmxTile;
  if (!input.ReserveBytes(static_cast<size_t>(num_groups * group_values) * sizeof(uint16_t))) {
    return nullptr;
  }
  auto* packed = reinterpret_cast<uint16_t*>(input.memory.get());
  executor.ParallelFor(static_cast<size_t>(num_groups), [&](size_t group, int) {
    const int first = static_cast<int>(group) * kAmxRows;
    kernels.pack_tokens(key.values + first * key.stride, key.stride,
                        std::min(kAmxRows, num_tokens_ - first), key.cols,
                        packed + static_cast<int64_t>(group) * group_values);
  });
  ++num_used_;
  return packed;
}

size_t LinearInputs::bytes() const {
  size_t bytes = inputs_.capacity() * sizeof(Input);
  for (const Input& input : inputs_) bytes += input.bytes;
  return bytes;
}

}  // namespace varve
