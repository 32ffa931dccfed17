#include "runtime/kernels/linear.h"

#include <algorithm>
#include <vector>

#include "base/align.h"
#include "runtime/kernels/linear_inputs.h"
#include "runtime/kernels/linear_product.h"
#include "runtime/kernels/woven_rows.h"

namespace varve {
namespace {

// Few tokens: a tile is what one thread streams before it asks for more. Large enough that the
// prefetcher's start-up does not count (Q8_0 on a Zen 4 core: 22 GB/s with 48 KB, 27 with 128 KB,
// 29 with 256 KB), small enough that threads end together: each gets several.
constexpr size_t kMinFewTileBytes = 48 << 10;
constexpr size_t kMaxFewTileBytes = 256 << 10;
constexpr size_t kFewTilesPerThread = 8;
constexpr int64_t kMaxFewRows = 256;

// Many tokens: a tile of decoded weights stays in a core's L2 together with the inputs it meets.
constexpr size_t kManyTileBytes = 512 << 10;
constexpr int64_t kRowStep = 12;  // whole blocks of multiply_dense on every target
constexpr int64_t kMaxManyRows = 256;

size_t FewTileBytes(std::span<const LinearTask> tasks, int num_threads) {
  size_t bytes = 0;
  for (const LinearTask& task : tasks) bytes += task.weights->bytes();
  return std::clamp(bytes / (kFewTilesPerThread * static_cast<size_t>(num_threads)),
                    kMinFewTileBytes, kMaxFewTileBytes);
}

int64_t FewTileRows(const WeightMatrix& weights, size_t tile_bytes) {
  const auto rows = static_cast<int64_t>(tile_bytes / std::max<size_t>(weights.row_bytes(), 1));
  if (weights.woven == nullptr) return std::clamp<int64_t>(rows, 4, kMaxFewRows);
  return std::clamp<int64_t>(rows / kBandRows * kBandRows, kBandRows, kMaxFewRows);
}

// For AMX: 256 KiB of weights (linear_product.cc) and as many bytes of sums for 256 tokens lie in a
// core's L2. Fewer rows where threads would have too few tiles to share out evenly.
constexpr int64_t kMinAmxRows = 64;
constexpr int64_t kMaxAmxRows = 256;
constexpr int64_t kAmxTilesPerThread = 4;

int64_t AmxTileRows(std::span<const LinearTask> tasks, int num_threads) {
  int64_t rows = 0;
  for (const LinearTask& task : tasks) rows += task.weights->rows;
  return std::clamp(AlignUp(rows / (kAmxTilesPerThread * num_threads), 2 * kAmxRows), kMinAmxRows,
                    kMaxAmxRows);
}

int64_t ManyTileRows(const WeightMatrix& weights) {
  const auto row_bytes = static_cast<size_t>(weights.cols) * sizeof(float);
  const auto rows = static_cast<int64_t>(kManyTileBytes / std::max<size_t>(row_bytes, 1));
  return std::clamp(rows / kRowStep * kRowStep, kRowStep, kMaxManyRows);
}

// Some rows of one task.
struct Tile {
  const LinearTask* task = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  // The input; null: as it is.
  const RoundedInput* inputs = nullptr;  // few tokens: [num_tokens]
  const PackedInputs* packed = nullptr;  // many tokens
  const uint16_t* bf16 = nullptr;        // many tokens
};

ptrdiff_t OutputStride(const LinearTask& task) {
  return task.output_stride != 0 ? task.output_stride : task.weights->rows;
}

// For the tokens from `first` on.
ProductOutput OutputOf(const Tile& tile, int first) {
  const LinearTask& task = *tile.task;
  const ptrdiff_t stride = OutputStride(task);
  return {.data = task.output + first * stride + tile.begin,
          .stride = stride,
          .bias = task.bias != nullptr ? task.bias + tile.begin : nullptr,
          .add = task.add};
}

// Integers with f32 inputs, decoded block by block: slow, for when there is no memory to round
// them.
void MultiplyWithoutMemory(const WeightKernels& kernels, const Tile& tile,
                           const float* const* inputs, int num_tokens, float* products) {
  const WeightMatrix& weights = *tile.task->weights;
  const WeightTypeInfo& info = InfoOf(weights.type);
  const int64_t rows = tile.end - tile.begin;
  std::fill(products, products + num_tokens * rows, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* at = weights.row(tile.begin + r);
    for (int64_t i = 0; i < weights.cols; i += info.block_values, at += info.block_bytes) {
      float block[256];
      kernels.decode[static_cast<int>(weights.type)](at, info.block_values, block);
      for (int t = 0; t < num_tokens; ++t) {
        for (int j = 0; j < info.block_values; ++j) {
          products[t * rows + r] += block[j] * inputs[t][i + j];
        }
      }
    }
  }
}

// Rows of bands as they are woven, the rest as it is stored.
void MultiplyIntegerRows(const RoundedKernels& kernels, const Tile& tile,
                         const RoundedInput* inputs, int num_tokens, float* products) {
  const WeightMatrix& weights = *tile.task->weights;
  const int type = static_cast<int>(weights.type);
  const ptrdiff_t stride = tile.end - tile.begin;
  int64_t begin = tile.begin;
  if (weights.woven != nullptr && kernels.multiply_woven[type] != nullptr) {
    const int64_t end = std::min(tile.end, WovenRows(weights));
    if (begin < end) {
      kernels.multiply_woven[type](weights, begin, end, inputs, num_tokens, products, stride);
      begin = end;
    }
  }
  if (begin == tile.end) return;
  kernels.multiply_rounded[type](weights, begin, tile.end, inputs, num_tokens,
                                 products + (begin - tile.begin), stride);
}

void RunFew(const WeightKernels& kernels, const Tile& tile, int num_tokens) {
  const LinearTask& task = *tile.task;
  const int type = static_cast<int>(task.weights->type);
  const ptrdiff_t rows = tile.end - tile.begin;
  float products[kMaxRowTokens * kMaxFewRows];
  for (int first = 0; first < num_tokens; first += kMaxRowTokens) {
    const int count = std::min(kMaxRowTokens, num_tokens - first);
    const float* inputs[kMaxRowTokens];
    for (int t = 0; t < count; ++t) inputs[t] = task.input + (first + t) * InputStride(task);
    if (tile.inputs != nullptr) {
      MultiplyIntegerRows(*kernels.rounded, tile, tile.inputs + first, count, products);
    } else if (!IsInteger(task.weights->type)) {
      kernels.multiply_rows[type](*task.weights, tile.begin, tile.end, inputs, count, products,
                                  rows);
    } else {
      MultiplyWithoutMemory(kernels, tile, inputs, count, products);
    }
    WriteProducts(products, count, rows, OutputOf(tile, first));
  }
}

}  // namespace

struct LinearLayers::Impl {
  Impl(Executor& pool, ProductPrecision wanted, const AmxKernels* bf16_kernels)
      : executor(pool), precision(wanted), amx(bf16_kernels) {
    workers.resize(executor.num_threads());
  }

  void CutTiles(const WeightKernels& kernels, std::span<const LinearTask> tasks, int num_tokens) {
    const bool few = num_tokens <= kMaxFewTokens;
    const size_t few_bytes = FewTileBytes(tasks, executor.num_threads());
    const int64_t amx_rows = AmxTileRows(tasks, executor.num_threads());
    tiles.clear();
    inputs.Start(tasks.size(), num_tokens);
    for (const LinearTask& task : tasks) {
      Tile tile = PackInput(kernels, task, few);
      const int64_t rows = task.weights->rows;
      const int64_t step = few                    ? FewTileRows(*task.weights, few_bytes)
                           : tile.bf16 != nullptr ? amx_rows
                                                  : ManyTileRows(*task.weights);
      for (int64_t begin = 0; begin < rows; begin += step) {
        tile.begin = begin;
        tile.end = std::min(begin + step, rows);
        tiles.push_back(tile);
      }
    }
  }

  // No rows yet.
  Tile PackInput(const WeightKernels& kernels, const LinearTask& task, bool few) {
    Tile tile = {};
    tile.task = &task;
    const WeightType type = task.weights->type;
    if (few) {
      if (IsInteger(type)) tile.inputs = inputs.Round(kernels, task);
    } else if (precision == ProductPrecision::kI16) {
      if (IsInteger(type)) tile.packed = inputs.Pack(kernels, task, executor);
    } else if (precision == ProductPrecision::kBF16 && type != WeightType::kF32) {
      if (amx != nullptr) tile.bf16 = inputs.PackBf16(*amx, task, executor);
    }
    return tile;
  }

  void RunMany(const WeightKernels& kernels, const Tile& tile, int num_tokens, int worker) {
    const LinearTask& task = *tile.task;
    TileProduct product;
    product.weights = task.weights;
    product.begin = tile.begin;
    product.end = tile.end;
    product.input = task.input;
    product.input_stride = InputStride(task);
    product.num_tokens = num_tokens;
    product.packed = tile.packed;
    product.bf16 = tile.bf16;
    product.amx = amx;
    product.output = OutputOf(tile, 0);
    if (workers[worker].Multiply(kernels, product)) return;
    // Out of memory: without scratch, then.
    for (int64_t begin = tile.begin; begin < tile.end; begin += kMaxFewRows) {
      const int64_t end = std::min(begin + kMaxFewRows, tile.end);
      RunFew(kernels, {.task = &task, .begin = begin, .end = end}, num_tokens);
    }
  }

  Executor& executor;
  ProductPrecision precision;
  const AmxKernels* amx;  // or null
  std::vector<Tile> tiles;
  LinearInputs inputs;
  std::vector<TileMultiplier> workers;  // by worker
};

LinearLayers::LinearLayers(Executor& executor, ProductPrecision precision, const AmxKernels* amx)
    : impl_(std::make_unique<Impl>(executor, precision, amx)) {}
LinearLayers::~LinearLayers() = default;

void LinearLayers::Run(int num_tokens, std::span<const LinearTask> tasks) {
  if (num_tokens <= 0) return;
  const WeightKernels& kernels = ActiveWeightKernels();
  const bool few = num_tokens <= kMaxFewTokens;
  impl_->CutTiles(kernels, tasks, num_tokens);
  impl_->executor.ParallelFor(impl_->tiles.size(), [&](size_t index, int worker) {
    const Tile& tile = impl_->tiles[index];
    if (few) {
      RunFew(kernels, tile, num_tokens);
    } else {
      impl_->RunMany(kernels, tile, num_tokens, worker);
    }
  });
}

size_t LinearLayers::scratch_bytes() const {
  size_t bytes = impl_->tiles.capacity() * sizeof(Tile) + impl_->inputs.bytes();
  for (const TileMultiplier& worker : impl_->workers) bytes += worker.bytes();
  return bytes;
}

}  // namespace varve
