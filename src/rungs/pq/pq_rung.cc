#include "rungs/pq/pq_rung.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "rungs/pq/pq_methods.h"

namespace varve {
namespace {

constexpr float kMaxGain = 65504.0f;

// Work buffers of a thread, kept between calls: attention must not allocate per page.
float* Scratch(int which, size_t floats) {
  static thread_local std::vector<float> buffers[3];
  if (buffers[which].size() < floats) buffers[which].resize(floats);
  return buffers[which].data();
}

// Matrices [groups, dim, dim] in the layout of f16 strips of dim tokens.
std::vector<uint16_t> AsStrips(const CodebookTable& table, Part layout) {
  const size_t dim = static_cast<size_t>(table.dim);
  const size_t chunk = static_cast<size_t>(ValueChunk(table.dim));
  std::vector<uint16_t> strips(table.rotation.size());
  for (size_t at = 0; at < strips.size(); ++at) {
    const size_t base = at / (dim * dim) * (dim * dim);
    const size_t i = at % (dim * dim) / dim;  // token
    const size_t j = at % dim;                // channel
    const size_t to = layout == Part::kKey
                          ? (i / kTileTokens * dim + j) * kTileTokens + i % kTileTokens
                          : (j / chunk * dim + i) * chunk + j % chunk;
    strips[base + to] = table.rotation[at];
  }
  return strips;
}

// Copies rows with NaN replaced by 0 and the rest cut off at the range of f16, divided by their
// norm, which goes to norms [num_rows]. Returns how many values changed.
uint64_t NormalizeRows(const float* rows, int num_rows, int dim, float* unit, float* norms) {
  uint64_t replaced = 0;
  for (int row = 0; row < num_rows; ++row) {
    const float* x = rows + static_cast<size_t>(row) * dim;
    float* y = unit + static_cast<size_t>(row) * dim;
    double sum = 0.0;
    for (int d = 0; d < dim; ++d) {
      const bool fits = std::abs(x[d]) <= kMaxGain;
      replaced += fits ? 0 : 1;
      y[d] = fits ? x[d] : std::isnan(x[d]) ? 0.0f : std::copysign(kMaxGain, x[d]);
      sum += static_cast<double>(y[d]) * y[d];
    }
    norms[row] = static_cast<float>(std::sqrt(sum));
    // A row below the normal numbers has no gain in f16, and its inverse norm is none.
    const bool has_length = norms[row] >= std::numeric_limits<float>::min();
    const float inverse = has_length ? static_cast<float>(1.0 / std::sqrt(sum)) : 0.0f;
    for (int d = 0; d < dim; ++d) y[d] *= inverse;
  }
  return replaced;
}

// The gain that brings gain * centroids closest to norm * unit, cut off at what f16 can hold: then
// `clamped` grows by one.
uint16_t GainBits(const float* unit, const float* centroids, int dim, float norm,
                  uint64_t* clamped) {
  double dot = 0.0;
  double energy = 0.0;
  for (int d = 0; d < dim; ++d) {
    dot += static_cast<double>(unit[d]) * centroids[d];
    energy += static_cast<double>(centroids[d]) * centroids[d];
  }
  const double gain = energy > 0.0 ? norm * dot / energy : 0.0;
  if (gain > kMaxGain) ++*clamped;
  return F32ToF16(static_cast<float>(std::clamp(gain, 0.0, static_cast<double>(kMaxGain))));
}

}  // namespace

PqRung::PqRung(const PqDescriptor& descriptor, const RungBinding& binding)
    : Rung(descriptor, *binding.kernels),
      size_(descriptor.size),
      pq_kernels_(PqKernelsOf(*binding.kernels)),
      f32_(*FindRung("f32"), *binding.kernels, FloatType::kF32),
      codebook_(binding.codebook),
      codebook_hash_(CodebookHash(*codebook_)) {
  keys_ = codebook_->Find(Part::kKey, size_.subspaces, size_.bits);
  values_ = codebook_->Find(Part::kValue, size_.subspaces, size_.bits);
  if (keys_ != nullptr) key_turns_ = AsStrips(*keys_, Part::kKey);
  if (values_ != nullptr) {
    value_turns_ = AsStrips(*values_, Part::kKey);
    value_returns_ = AsStrips(*values_, Part::kValue);
  }
}

uint64_t PqRung::TableBytes(Part part) const {
  const CodebookTable* table = part == Part::kKey ? keys_ : values_;
  if (table == nullptr) return 0;
  const size_t copies =
      part == Part::kKey ? key_turns_.size() : value_turns_.size() + value_returns_.size();
  return table->bytes() + copies * sizeof(uint16_t);
}

size_t PqRung::GroupOf(Part part, const StripShape& shape) const {
  return static_cast<size_t>(codebook_->GroupOf(TableOf(part).grain, shape.layer, shape.kv_head));
}

PqCentroids PqRung::CentroidsOf(Part part, const StripShape& shape) const {
  const CodebookTable& table = TableOf(part);
  const size_t group = GroupOf(part, shape);
  return {table.centroids.data() + group * table.dim * table.num_codes(),
          table.scales.data() + group * table.num_subspaces};
}

bool PqRung::IsRotated(Part part) const { return !TableOf(part).rotation.empty(); }

void PqRung::Rotate(Part part, const StripShape& shape, const float* rows, int num_rows,
                    float* y) const {
  const size_t dim = static_cast<size_t>(shape.dim);
  const std::vector<uint16_t>& turns = part == Part::kKey ? key_turns_ : value_turns_;
  kernels().key_scores_float[static_cast<int>(FloatType::kF16)](
      {reinterpret_cast<const std::byte*>(turns.data() + GroupOf(part, shape) * dim * dim),
       shape.dim, shape.dim, shape.dim, reinterpret_cast<const std::byte*>(rows), num_rows, y, dim,
       nullptr});
}

void PqRung::AddUnrotated(Part part, const StripShape& shape, const float* y, int num_rows,
                          float* rows) const {
  const size_t dim = static_cast<size_t>(shape.dim);
  if (part == Part::kKey) {  // only to look at them
    const uint16_t* rotation = keys_->rotation.data() + GroupOf(part, shape) * dim * dim;
    float line[kMaxDim];
    for (size_t i = 0; i < dim; ++i) {
      kernels().widen_f16(rotation + i * dim, dim, line);
      for (int row = 0; row < num_rows; ++row)
        kernels().add_scaled(rows + row * dim, line, dim, y[row * dim + i]);
    }
    return;
  }
  kernels().add_values_float[static_cast<int>(FloatType::kF16)](
      {reinterpret_cast<const std::byte*>(value_returns_.data() + GroupOf(part, shape) * dim * dim),
       shape.dim, shape.dim, 0, shape.dim, y, dim, y, num_rows, rows, nullptr});
}

uint64_t PqRung::Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                        std::byte* strip) const {
  const PqShape pq = ShapeOf(shape);
  const PqCentroids centroids = CentroidsOf(part, shape);
  const int dim = shape.dim;
  const int sub_dim = pq.sub_dim();
  const size_t floats = static_cast<size_t>(num_rows) * dim;
  std::vector<float> unit(floats);
  std::vector<float> norms(static_cast<size_t>(num_rows));
  uint64_t replaced = NormalizeRows(rows, num_rows, dim, unit.data(), norms.data());
  if (IsRotated(part)) {
    std::vector<float> turned(floats);
    Rotate(part, shape, unit.data(), num_rows, turned.data());
    unit.swap(turned);
  }

  std::memset(strip, 0, pq.strip_bytes());
  std::vector<float> decoded(floats);
  std::vector<float> points(static_cast<size_t>(num_rows) * sub_dim);
  uint16_t codes[kMaxPageTokens] = {};
  for (int m = 0; m < pq.subspaces; ++m) {
    const float scale = centroids.scales[m];
    const uint8_t* bytes = centroids.bytes + static_cast<size_t>(m) * sub_dim * pq.num_codes();
    for (int row = 0; row < num_rows; ++row) {
      for (int j = 0; j < sub_dim; ++j)
        points[static_cast<size_t>(row) * sub_dim + j] =
            unit[static_cast<size_t>(row) * dim + m * sub_dim + j] / scale;
    }
    pq_kernels_.nearest(bytes, sub_dim, pq.num_codes(), points.data(), num_rows, codes);
    WritePqCodes(pq, m, codes, strip);
    for (int row = 0; row < num_rows; ++row) {
      for (int j = 0; j < sub_dim; ++j) {
        decoded[static_cast<size_t>(row) * dim + m * sub_dim + j] =
            scale *
            static_cast<float>(bytes[static_cast<size_t>(j) * pq.num_codes() + codes[row]] - 128);
      }
    }
  }
  for (int row = 0; row < num_rows; ++row) {
    const size_t at = static_cast<size_t>(row) * dim;
    const uint16_t gain =
        GainBits(&unit[at], &decoded[at], dim, norms[static_cast<size_t>(row)], &replaced);
    std::memcpy(strip + 2 * row, &gain, 2);
  }
  return replaced;
}

void PqRung::DecodeCentroids(Part part, const StripShape& shape, const std::byte* strip, int first,
                             int count, float* rows) const {
  const PqShape pq = ShapeOf(shape);
  const PqCentroids centroids = CentroidsOf(part, shape);
  const int sub_dim = pq.sub_dim();
  uint16_t codes[kMaxPageTokens];
  for (int m = 0; m < pq.subspaces; ++m) {
    ReadPqCodes(pq, strip, m, codes);
    for (int j = 0; j < sub_dim; ++j) {
      const int d = m * sub_dim + j;
      const uint8_t* bytes = centroids.bytes + static_cast<size_t>(d) * pq.num_codes();
      for (int i = 0; i < count; ++i) {
        rows[static_cast<size_t>(i) * shape.dim + d] =
            centroids.scales[m] * static_cast<float>(bytes[codes[first + i]] - 128);
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    const float gain = ReadPqGain(strip, first + i);
    float* row = rows + static_cast<size_t>(i) * shape.dim;
    for (int d = 0; d < shape.dim; ++d) row[d] *= gain;
  }
}

void PqRung::Decode(Part part, const StripShape& shape, const std::byte* strip, int first,
                    int count, float* rows) const {
  DecodeCentroids(part, shape, strip, first, count, rows);
  if (!IsRotated(part)) return;
  const std::vector<float> turned(rows, rows + static_cast<size_t>(count) * shape.dim);
  std::fill_n(rows, turned.size(), 0.0f);
  AddUnrotated(part, shape, turned.data(), count, rows);
}

size_t PqRung::PreparedRowBytes(const StripShape& shape, int total_rows) const {
  const bool table = ChoosePqKeyMethod(pq_kernels_, size_.bits, total_rows) == PqKeyMethod::kTables;
  return PqQueryBytes(ShapeOf(shape), table);
}

void PqRung::PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                          std::byte* prepared) const {
  const PqShape pq = ShapeOf(shape);
  const PqCentroids centroids = CentroidsOf(Part::kKey, shape);
  const size_t stride = PreparedRowBytes(shape, num_rows);
  const bool table = ChoosePqKeyMethod(pq_kernels_, size_.bits, num_rows) == PqKeyMethod::kTables;
  if (IsRotated(Part::kKey)) {
    float* turned = Scratch(0, static_cast<size_t>(num_rows) * shape.dim);
    Rotate(Part::kKey, shape, queries, num_rows, turned);
    queries = turned;
  }
  for (int row = 0; row < num_rows; ++row) {
    pq_kernels_.prepare_query(pq, centroids, queries + static_cast<size_t>(row) * shape.dim, table,
                              prepared + row * stride);
  }
}

void PqRung::Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
                    int num_rows, int num_tokens, float* scores, size_t scores_stride,
                    ReadAhead* ahead) const {
  const PqShape pq = ShapeOf(shape);
  const bool table = HasPqTable(prepared);
  const PqScoresArgs args = {pq,
                             CentroidsOf(Part::kKey, shape),
                             strip,
                             num_tokens,
                             prepared,
                             PqQueryBytes(pq, table),
                             num_rows,
                             scores,
                             scores_stride,
                             ahead};
  // Whether there are tables was decided for all rows of the request; these may be some of them.
  if (table) {
    return size_.bits == 4 ? pq_kernels_.scores_nibbles(args) : pq_kernels_.scores_tables(args);
  }
  if (ChoosePqKeyMethod(pq_kernels_, size_.bits, num_rows) == PqKeyMethod::kBytes)
    return pq_kernels_.scores_bytes[size_.bits - kMinPqBits](args);

  const size_t dim = static_cast<size_t>(shape.dim);
  float* rows = Scratch(0, dim * shape.page_tokens);
  DecodeCentroids(Part::kKey, shape, strip, 0, shape.page_tokens, rows);
  float* plain = Scratch(1, dim * shape.page_tokens);
  f32_.Encode(Part::kKey, shape, rows, shape.page_tokens, reinterpret_cast<std::byte*>(plain));
  float* queries = Scratch(2, dim * static_cast<size_t>(num_rows));
  for (int row = 0; row < num_rows; ++row) {
    std::memcpy(queries + row * dim,
                prepared + row * args.query_stride + PqQueryFloatOffset(shape.dim),
                dim * sizeof(float));
  }
  f32_.Scores(shape, reinterpret_cast<const std::byte*>(plain),
              reinterpret_cast<const std::byte*>(queries), num_rows, num_tokens, scores,
              scores_stride, ahead);
}

void PqRung::AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                           size_t weights_stride, const float* weight_sum, int num_rows,
                           float* accumulators, ReadAhead* ahead) const {
  const PqShape pq = ShapeOf(shape);
  const size_t dim = static_cast<size_t>(shape.dim);
  const PqValueMethod method = ChoosePqValueMethod(pq_kernels_, size_.bits, pq.sub_dim());
  if (method == PqValueMethod::kDecode) {
    float* rows = Scratch(0, dim * shape.page_tokens);
    float* plain = Scratch(1, dim * shape.page_tokens);
    for (const ValuePage& page : pages) {
      DecodeCentroids(Part::kValue, shape, page.strip, 0, shape.page_tokens, rows);
      f32_.Encode(Part::kValue, shape, rows, shape.page_tokens,
                  reinterpret_cast<std::byte*>(plain));
      const ValuePage decoded = {reinterpret_cast<const std::byte*>(plain), page.first, page.count,
                                 page.weights};
      f32_.AddValuePages(shape, {&decoded, 1}, weights_stride, weight_sum, num_rows, accumulators,
                         ahead);
    }
  } else {
    PqValuePage runs[kMaxValuePages];
    for (size_t p = 0; p < pages.size(); ++p) runs[p] = {pages[p].strip, pages[p].weights};
    const PqValuesArgs args = {pq,
                               CentroidsOf(Part::kValue, shape),
                               {runs, pages.size()},
                               weights_stride,
                               num_rows,
                               accumulators,
                               ahead};
    method == PqValueMethod::kBytes ? pq_kernels_.add_values_bytes[size_.bits - kMinPqBits](args)
                                    : pq_kernels_.add_values_centroids(args);
  }
}

void PqRung::FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                          float* output) const {
  if (IsRotated(Part::kValue))
    return AddUnrotated(Part::kValue, shape, accumulators, num_rows, output);
  kernels().add_scaled(output, accumulators, static_cast<size_t>(num_rows) * shape.dim, 1.0f);
}

}  // namespace varve
