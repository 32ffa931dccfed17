#include "runtime/kernels/linear_product.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <hwy/aligned_allocator.h>

#include "base/align.h"
#include "kernels/kernels.h"
#include "runtime/kernels/amx_tiles.h"

namespace varve {
namespace {

// Grows and never shrinks; the contents are lost when it grows.
template <class T>
class Scratch {
 public:
  T* Get(size_t count) {
    if (count > count_) {
      data_.reset();
      data_ = hwy::AllocateAligned<T>(count);
      count_ = data_ != nullptr ? count : 0;
    }
    return data_.get();
  }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  hwy::AlignedFreeUniquePtr<T[]> data_;
  size_t count_ = 0;
};

// In the order of their values.
constexpr std::pair<const char*, ProductPrecision> kPrecisions[] = {
    {"f32", ProductPrecision::kF32},
    {"bf16", ProductPrecision::kBF16},
    {"i16", ProductPrecision::kI16},
};

}  // namespace

ProductPrecision FastestPrecision() {
  if (ActiveKernels().name != std::string_view("avx512_vnni")) return ProductPrecision::kF32;
  return FindAmxKernels() != nullptr ? ProductPrecision::kBF16 : ProductPrecision::kI16;
}

Status CheckPrecision(ProductPrecision precision) {
  if (precision != ProductPrecision::kBF16 || FindAmxKernels() != nullptr) return Status();
  return Unimplemented("bf16: this machine has no AMX-BF16; use i16 or f32");
}

const char* NameOf(ProductPrecision precision) {
  return kPrecisions[static_cast<int>(precision)].first;
}

std::optional<ProductPrecision> FindPrecision(std::string_view name) {
  for (const auto& [known, precision] : kPrecisions) {
    if (name == known) return precision;
  }
  return std::nullopt;
}

void WriteProducts(const float* products, int num_tokens, int64_t rows,
                   const ProductOutput& output) {
  float* to = output.data;
  for (int t = 0; t < num_tokens; ++t, products += rows, to += output.stride) {
    if (output.bias == nullptr && !output.add) {
      std::copy(products, products + rows, to);
    } else if (output.bias == nullptr) {
      for (int64_t r = 0; r < rows; ++r) to[r] += products[r];
    } else if (!output.add) {
      for (int64_t r = 0; r < rows; ++r) to[r] = products[r] + output.bias[r];
    } else {
      for (int64_t r = 0; r < rows; ++r) to[r] += products[r] + output.bias[r];
    }
  }
}

struct TileMultiplier::Impl {
  // C[tokens, rows] = X[tokens, cols] * W[rows, cols]^T
  bool MultiplyF32(const WeightKernels& kernels, const TileProduct& p, float* out) {
    const int64_t rows = p.end - p.begin;
    const int64_t cols = p.weights->cols;
    float* tile = tile_f32.Get(static_cast<size_t>(rows * cols));
    if (tile == nullptr) return false;
    // Rows follow each other without a gap, stored and decoded.
    kernels.decode[static_cast<int>(p.weights->type)](p.weights->row(p.begin), rows * cols, tile);
    ActiveKernels().multiply_dense({.rows = tile,
                                    .num_rows = rows,
                                    .cols = cols,
                                    .inputs = p.input,
                                    .input_stride = p.input_stride,
                                    .num_tokens = p.num_tokens,
                                    .out = out,
                                    .out_stride = rows});
    return true;
  }

  bool MultiplyI16(const WeightKernels& kernels, const TileProduct& p, float* out) {
    const WeightType type = p.weights->type;
    IntegerTile tile;
    tile.rows = p.end - p.begin;
    tile.cols = p.weights->cols;
    tile.block = InfoOf(type).block_values;
    tile.span = IntegerSpan(type);
    tile.offset_run = OffsetRun(type);
    const auto count = static_cast<size_t>(tile.rows * tile.cols);
    int16_t* values = tile_i16.Get(count);
    float* scales = tile_f32.Get(count / tile.block + count / tile.offset_run);
    float* sums = token_sums.Get(static_cast<size_t>(tile.rows) * kIntegerTokens);
    if (values == nullptr || scales == nullptr || sums == nullptr) return false;
    float* offsets = scales + count / tile.block;
    // Rows follow each other without a gap, stored and decoded.
    kernels.rounded->decode_integers[static_cast<int>(type)](
        p.weights->row(p.begin), tile.rows * tile.cols, values, scales, offsets);
    tile.values = values;
    tile.scales = scales;
    tile.offsets = HasOffsets(type) ? offsets : nullptr;
    kernels.rounded->multiply_integers(tile, *p.packed, sums, out, tile.rows);
    return true;
  }

  // Some columns at a time, so that their weights stay in the second-level cache and a block of
  // tokens in the first.
  bool MultiplyBf16(const WeightKernels& kernels, const TileProduct& p) {
    const int64_t rows = p.end - p.begin;
    const int64_t cols = p.weights->cols;
    const int64_t groups = CeilDiv(rows, kAmxRows);
    const int64_t token_groups = CeilDiv(p.num_tokens, kAmxRows);
    uint16_t* tile = tile_bf16.Get(static_cast<size_t>(groups * kAmxRows * kBf16Columns));
    float* row = tile_f32.Get(kBf16Columns);
    float* sums = tile_sums.Get(static_cast<size_t>(groups * token_groups) * kAmxRows * kAmxRows);
    if (tile == nullptr || row == nullptr || sums == nullptr) return false;
    AmxProduct product;
    product.weights = tile;
    product.row_groups = static_cast<int>(groups);
    product.token_groups = static_cast<int>(token_groups);
    product.tokens_steps = CeilDiv(cols, kAmxColumns);
    product.sums = sums;
    for (int64_t first = 0; first < cols; first += kBf16Columns) {
      const int64_t count = std::min(kBf16Columns, cols - first);
      product.tokens = p.bf16 + first / kAmxColumns * kAmxTile;
      product.steps = CeilDiv(count, kAmxColumns);
      product.add = first > 0;
      DecodeBf16(kernels, p, first, count, row, tile);
      p.amx->multiply(product);
    }
    p.amx->write_sums({.sums = sums,
                       .num_tokens = p.num_tokens,
                       .rows = rows,
                       .bias = p.output.bias,
                       .add = p.output.add,
                       .out = p.output.data,
                       .stride = p.output.stride});
    return true;
  }

  // Columns [first, first + count) of all rows, as an AmxProduct has them. Rows that the last group
  // lacks are zeros.
  static void DecodeBf16(const WeightKernels& kernels, const TileProduct& p, int64_t first,
                         int64_t count, float* values, uint16_t* tile) {
    const WeightTypeInfo& info = InfoOf(p.weights->type);
    const auto decode = kernels.decode[static_cast<int>(p.weights->type)];
    const int64_t group_values = CeilDiv(count, kAmxColumns) * kAmxTile;
    const int64_t rows = p.end - p.begin;
    for (int64_t r = 0; r < AlignUp(rows, kAmxRows); ++r) {
      if (r < rows) {
        decode(p.weights->row(p.begin + r) + first / info.block_values * info.block_bytes, count,
               values);
      } else if (r == rows) {
        std::fill_n(values, count, 0.0f);
      }
      p.amx->pack_row(values, count,
                      tile + r / kAmxRows * group_values + r % kAmxRows * kAmxColumns);
    }
  }

  static constexpr int64_t kBf16Columns = 512;  // whole blocks of every type
  Scratch<float> tile_f32;
  Scratch<int16_t> tile_i16;
  Scratch<float> token_sums;
  Scratch<float> products;
  Scratch<uint16_t> tile_bf16;
  Scratch<float> tile_sums;
};

TileMultiplier::TileMultiplier() : impl_(std::make_unique<Impl>()) {}
TileMultiplier::~TileMultiplier() = default;
TileMultiplier::TileMultiplier(TileMultiplier&&) noexcept = default;
TileMultiplier& TileMultiplier::operator=(TileMultiplier&&) noexcept = default;

bool TileMultiplier::Multiply(const WeightKernels& kernels, const TileProduct& product) {
  if (product.bf16 != nullptr && impl_->MultiplyBf16(kernels, product)) return true;
  const int64_t rows = product.end - product.begin;
  float* out = impl_->products.Get(static_cast<size_t>(product.num_tokens * rows));
  if (out == nullptr) return false;
  if ((product.packed == nullptr || !impl_->MultiplyI16(kernels, product, out)) &&
      !impl_->MultiplyF32(kernels, product, out)) {
    return false;
  }
  WriteProducts(out, product.num_tokens, rows, product.output);
  return true;
}

size_t TileMultiplier::bytes() const {
  return impl_->tile_f32.bytes() + impl_->tile_i16.bytes() + impl_->token_sums.bytes() +
         impl_->products.bytes() + impl_->tile_bf16.bytes() + impl_->tile_sums.bytes();
}

}  // namespace varve
