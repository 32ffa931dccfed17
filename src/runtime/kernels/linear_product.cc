#include "runtime/kernels/linear_product.h"

#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <hwy/aligned_allocator.h>

#include "kernels/kernels.h"
#include "runtime/kernels/onednn.h"

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
  if (OneDnnUsesAmx()) return ProductPrecision::kBF16;
  const std::string_view table = ActiveKernels().name;
  return table == "avx512_vnni" ? ProductPrecision::kI16 : ProductPrecision::kF32;
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

struct TileMultiplier::Impl {
  using Shape = std::tuple<int, int64_t, int64_t>;  // tokens, rows, cols

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

  bool MultiplyBF16(const WeightKernels& kernels, const TileProduct& p, float* out) {
    const int64_t rows = p.end - p.begin;
    const int64_t cols = p.weights->cols;
    uint16_t* tile = tile_bf16.Get(static_cast<size_t>(rows * cols));
    const uint16_t* input = NarrowInput(kernels, p);
    float* row = tile_f32.Get(static_cast<size_t>(cols));
    if (tile == nullptr || input == nullptr || row == nullptr) return false;
    for (int64_t r = 0; r < rows; ++r) {
      kernels.decode[static_cast<int>(p.weights->type)](p.weights->row(p.begin + r), cols, row);
      kernels.narrow_bf16(row, cols, tile + r * cols);
    }
    const Bf16Product* made = FindProduct({p.num_tokens, rows, cols});
    if (made == nullptr) return false;
    uint8_t* pad = scratchpad.Get(made->scratch_bytes());
    return pad != nullptr && made->Run(input, tile, out, pad);
  }

  // The tiles of a run share their input: it is rounded once per worker.
  const uint16_t* NarrowInput(const WeightKernels& kernels, const TileProduct& p) {
    const auto key = std::make_tuple(p.run, p.input, p.weights->cols);
    uint16_t* narrow = input_bf16.Get(static_cast<size_t>(p.num_tokens * p.weights->cols));
    if (narrow == nullptr || key == narrowed) return narrow;
    for (int t = 0; t < p.num_tokens; ++t) {
      kernels.narrow_bf16(p.input + t * p.input_stride, p.weights->cols,
                          narrow + t * p.weights->cols);
    }
    narrowed = key;
    return narrow;
  }

  // Null where oneDNN has none for the shape.
  const Bf16Product* FindProduct(const Shape& shape) {
    const auto found = bf16_products.find(shape);
    if (found != bf16_products.end()) return found->second.get();
    if (bf16_products.size() >= kMaxProducts) bf16_products.clear();
    const auto [tokens, rows, cols] = shape;
    return bf16_products.emplace(shape, Bf16Product::Make(tokens, rows, cols)).first->second.get();
  }

  // A model has a dozen shapes, prompts end in a chunk of any length.
  static constexpr size_t kMaxProducts = 256;
  std::map<Shape, std::unique_ptr<Bf16Product>> bf16_products;
  Scratch<float> tile_f32;
  Scratch<int16_t> tile_i16;
  Scratch<float> token_sums;
  Scratch<float> products;
  Scratch<uint16_t> tile_bf16;
  Scratch<uint16_t> input_bf16;
  std::tuple<uint64_t, const float*, int64_t> narrowed;  // what input_bf16 holds
  Scratch<uint8_t> scratchpad;
};

TileMultiplier::TileMultiplier() : impl_(std::make_unique<Impl>()) {}
TileMultiplier::~TileMultiplier() = default;
TileMultiplier::TileMultiplier(TileMultiplier&&) noexcept = default;
TileMultiplier& TileMultiplier::operator=(TileMultiplier&&) noexcept = default;

const float* TileMultiplier::Multiply(const WeightKernels& kernels, ProductPrecision precision,
                                      const TileProduct& product) {
  const int64_t rows = product.end - product.begin;
  float* out = impl_->products.Get(static_cast<size_t>(product.num_tokens * rows));
  if (out == nullptr) return nullptr;
  const bool bf16 =
      precision == ProductPrecision::kBF16 && product.weights->type != WeightType::kF32;
  if (bf16 && impl_->MultiplyBF16(kernels, product, out)) return out;
  if (product.packed != nullptr && impl_->MultiplyI16(kernels, product, out)) return out;
  return impl_->MultiplyF32(kernels, product, out) ? out : nullptr;
}

size_t TileMultiplier::bytes() const {
  return impl_->tile_f32.bytes() + impl_->tile_i16.bytes() + impl_->token_sums.bytes() +
         impl_->products.bytes() + impl_->tile_bf16.bytes() + impl_->input_bf16.bytes() +
         impl_->scratchpad.bytes();
}

}  // namespace varve
