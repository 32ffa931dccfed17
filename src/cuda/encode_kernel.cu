// Encoding of pages. A block makes one strip: its warps decode the rows of the source into shared
// memory, encode them to codes of a byte each, and write these in the order of the strip.

#include "cuda/encode_params.h"
#include "cuda/row_encode.cuh"
#include "cuda/strip_decode.cuh"

namespace varve::cuda {
namespace {

constexpr int kWarps = kEncodeThreads / 32;

// Shared memory of a block, by page_tokens and D.
template <int D>
struct EncodeShared {
  float* rows;       // [page_tokens][D]
  uint8_t* codes;    // [page_tokens][D]
  uint16_t* scales;  // [page_tokens][D / 32]
  float* norms;      // [page_tokens]
  uint16_t* mean;    // [D]

  __device__ EncodeShared(unsigned char* base, int page_tokens) {
    rows = reinterpret_cast<float*>(base);
    norms = rows + page_tokens * D;
    scales = reinterpret_cast<uint16_t*>(norms + page_tokens);
    mean = scales + page_tokens * (D / 32);
    codes = reinterpret_cast<uint8_t*>(mean + D);
  }
};

template <int D>
__device__ __forceinline__ void LoadRow(const float* row, int lane, float (&v)[D / 32]) {
#pragma unroll
  for (int k = 0; k < D / 32; ++k) v[k] = row[32 * k + lane];
}

__device__ __forceinline__ bool IsTurned(DeviceRung rung) {
  return rung == DeviceRung::kQ8_0r || rung == DeviceRung::kQ4_0r || rung >= DeviceRung::kT4;
}

__device__ __forceinline__ void StoreHalf(std::byte* base, int index, uint16_t bits) {
  reinterpret_cast<uint16_t*>(base)[index] = bits;
}

// The rows of the source, as they go into the destination's arithmetic.
template <int D>
__device__ void DecodeRows(DeviceRung from, const std::byte* strip, DeviceRung to,
                           const StripPlace& at, const PqTables& pq, int num_rows, int warp,
                           int lane, EncodeShared<D>& shared, int* replaced) {
  for (int token = warp; token < num_rows; token += kWarps) {
    float v[D / 32];
    DecodeRow<D>(from, strip, at, pq, token, lane, v);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      if (IsTurned(to) || to == DeviceRung::kPq) v[k] = Sanitize(v[k], kMostHalf, replaced);
      shared.rows[token * D + 32 * k + lane] = v[k];
    }
  }
}

// Takes the mean of the rows off them, as it is stored.
template <int D>
__device__ void CentreRows(int num_rows, EncodeShared<D>& shared) {
  for (int d = threadIdx.x; d < D; d += kEncodeThreads) {
    float sum = 0.0f;
    for (int token = 0; token < num_rows; ++token) sum = __fadd_rn(sum, shared.rows[token * D + d]);
    const uint16_t bits =
        F32ToF16(num_rows > 0 ? __fdiv_rn(sum, static_cast<float>(num_rows)) : 0.0f);
    shared.mean[d] = bits;
    const float mean = F16ToF32(bits);
    for (int token = 0; token < num_rows; ++token) {
      shared.rows[token * D + d] = __fsub_rn(shared.rows[token * D + d], mean);
    }
  }
}

// Rows to codes and scales; those of missing rows are zero.
template <int D>
__device__ void QuantizeRows(DeviceRung to, const StripPlace& at, int num_rows, int warp, int lane,
                             EncodeShared<D>& shared, int* replaced) {
  for (int token = warp; token < at.page_tokens; token += kWarps) {
    uint8_t* codes = shared.codes + token * D;
    uint16_t* scales = shared.scales + token * (D / 32);
    if (token >= num_rows) {
#pragma unroll
      for (int k = 0; k < D / 32; ++k) codes[32 * k + lane] = 0;
      if (lane < D / 32) scales[lane] = 0;
      continue;
    }
    float v[D / 32];
    LoadRow<D>(shared.rows + token * D, lane, v);
    if (IsTurned(to)) {
      ApplySigns<D>(v, lane);
      Hadamard<D>(v, lane);
    }
    switch (to) {
      case DeviceRung::kQ8_0:
      case DeviceRung::kQ8_0r:
        EncodeQ8Row<D>(v, lane, at.key ? 0x80 : 0, codes, scales, replaced);
        break;
      case DeviceRung::kQ4_0:
      case DeviceRung::kQ4_0r:
        EncodeQ4Row<D>(v, lane, codes, scales, replaced);
        break;
      case DeviceRung::kT4:
        EncodeTurnedRow<D, 4>(v, lane, codes, scales, replaced);
        break;
      case DeviceRung::kT3:
        EncodeTurnedRow<D, 3>(v, lane, codes, scales, replaced);
        break;
      default:
        EncodeTurnedRow<D, 2>(v, lane, codes, scales, replaced);
        break;
    }
  }
}

// To f16 or bf16, as FloatRung does it.
__device__ __forceinline__ uint16_t NarrowSaturated(DeviceRung to, float x, int* replaced) {
  const bool half = to == DeviceRung::kF16;
  const uint16_t bits = half ? F32ToF16(x) : F32ToBF16(x);
  if (!Overflowed(x, bits, half ? kF16Infinity : kBF16Infinity)) return bits;
  ++*replaced;
  return static_cast<uint16_t>(bits - 1);
}

template <int D>
__device__ void WriteFloats(DeviceRung to, const StripPlace& at, int num_rows,
                            const EncodeShared<D>& shared, std::byte* strip, int* replaced) {
  for (int i = threadIdx.x; i < at.page_tokens * D; i += kEncodeThreads) {
    const int token = i / D, d = i % D;
    uint16_t bits = 0;
    if (token < num_rows) bits = NarrowSaturated(to, shared.rows[token * D + d], replaced);
    StoreHalf(strip, FloatIndex(at, token, d), bits);
  }
}

template <int D>
__device__ void WriteCodes(DeviceRung to, const StripPlace& at, const EncodeShared<D>& shared,
                           std::byte* strip) {
  const CodeRows rows = {shared.codes, D};
  const bool turned = to >= DeviceRung::kT4;
  if (turned) {
    for (int token = threadIdx.x; token < at.page_tokens; token += kEncodeThreads) {
      StoreHalf(strip + TurnedScalesOffset(at), token, shared.scales[token * (D / 32)]);
    }
    for (int d = threadIdx.x; at.key && d < D; d += kEncodeThreads)
      StoreHalf(strip, d, shared.mean[d]);
  } else {
    for (int i = threadIdx.x; i < at.page_tokens * (D / 32); i += kEncodeThreads) {
      const int token = i / (D / 32), block = i % (D / 32);
      StoreHalf(strip, ScaleIndex(at, token, block), shared.scales[i]);
    }
  }
  auto* words =
      reinterpret_cast<uint32_t*>(strip + (turned ? TurnedCodesAt(at) : BlockCodesOffset(at)));
  const bool q8 = to == DeviceRung::kQ8_0 || to == DeviceRung::kQ8_0r;
  const int bits = q8 ? 8 : to == DeviceRung::kT3 ? 3 : to == DeviceRung::kT2 ? 2 : 4;
  for (int word = threadIdx.x; word < at.page_tokens * D * bits / 32; word += kEncodeThreads) {
    words[word] = q8                      ? BlockWord<false>(at, rows, word)
                  : !turned               ? BlockWord<true>(at, rows, word)
                  : to == DeviceRung::kT4 ? TurnedWord<4>(at, rows, word)
                  : to == DeviceRung::kT3 ? TurnedWord<3>(at, rows, word)
                                          : TurnedWord<2>(at, rows, word);
  }
}

// --- pq ---

// Rows divided by their norms and turned.
template <int D>
__device__ void NormalizeRows(const PqTables& pq, int num_rows, int warp, int lane,
                              EncodeShared<D>& shared) {
  for (int token = warp; token < num_rows; token += kWarps) {
    float v[D / 32];
    LoadRow<D>(shared.rows + token * D, lane, v);
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      sum = __dadd_rn(sum, __dmul_rn(static_cast<double>(v[k]), static_cast<double>(v[k])));
    }
    sum = SumOverLanes(sum);
    const auto norm = static_cast<float>(sqrt(sum));
    // A row below the normal numbers has no gain in f16, and its inverse norm is none.
    const float inverse = norm >= 1.17549435e-38f ? static_cast<float>(1.0 / sqrt(sum)) : 0.0f;
    if (lane == 0) shared.norms[token] = norm;
    float y[D / 32];
#pragma unroll
    for (int k = 0; k < D / 32; ++k) v[k] = __fmul_rn(v[k], inverse), y[k] = v[k];
    if (pq.rotation != nullptr) {
#pragma unroll
      for (int k = 0; k < D / 32; ++k) y[k] = 0.0f;
#pragma unroll
      for (int block = 0; block < D / 32; ++block) {
        for (int j = 0; j < 32; ++j) {
          const float x = __shfl_sync(0xFFFFFFFFu, v[block], j);
#pragma unroll
          for (int k = 0; k < D / 32; ++k) {
            const float r = F16ToF32(pq.rotation[(32 * k + lane) * D + 32 * block + j]);
            y[k] = __fadd_rn(y[k], __fmul_rn(x, r));
          }
        }
      }
    }
#pragma unroll
    for (int k = 0; k < D / 32; ++k) shared.rows[token * D + 32 * k + lane] = y[k];
  }
}

// Codes [page_tokens][subspaces], a byte each: lanes of a warp have the same sub-space, so that
// they read the same centroids.
template <int D>
__device__ void FindCentroids(const PqTables& pq, int page_tokens, int num_rows, int warp, int lane,
                              EncodeShared<D>& shared) {
  const int sub_dim = D / pq.subspaces;
  for (int m = warp; m < pq.subspaces; m += kWarps) {
    for (int token = lane; token < page_tokens; token += 32) {
      int code = 0;
      if (token < num_rows) {
        float* point = shared.rows + token * D + m * sub_dim;
        // The rows are wanted again, for the gain: undone below.
        float scaled[32];
        for (int j = 0; j < sub_dim; ++j) scaled[j] = __fdiv_rn(point[j], pq.scales[m]);
        code =
            NearestCentroid(pq.centroids + (m * sub_dim << pq.bits), sub_dim, 1 << pq.bits, scaled);
      }
      shared.codes[token * pq.subspaces + m] = static_cast<uint8_t>(code);
    }
  }
}

// The gain that brings gain * centroids closest to the row.
template <int D>
__device__ void FindGains(const PqTables& pq, int page_tokens, int num_rows, int warp, int lane,
                          EncodeShared<D>& shared, int* replaced) {
  const int sub_dim = D / pq.subspaces;
  for (int token = warp; token < page_tokens; token += kWarps) {
    if (token >= num_rows) {
      if (lane == 0) shared.scales[token] = 0;
      continue;
    }
    double dot = 0.0, energy = 0.0;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      const int d = 32 * k + lane, m = d / sub_dim;
      const int code = shared.codes[token * pq.subspaces + m];
      const float centroid = __fmul_rn(
          pq.scales[m],
          static_cast<float>(static_cast<int>(pq.centroids[(d << pq.bits) + code]) - 128));
      dot += static_cast<double>(shared.rows[token * D + d]) * centroid;
      energy += static_cast<double>(centroid) * centroid;
    }
    dot = SumOverLanes(dot);
    energy = SumOverLanes(energy);
    if (lane != 0) continue;
    const double gain = energy > 0.0 ? shared.norms[token] * dot / energy : 0.0;
    if (gain > kMostHalf) ++*replaced;
    shared.scales[token] = F32ToF16(static_cast<float>(fmin(fmax(gain, 0.0), double{kMostHalf})));
  }
}

template <int D>
__device__ uint32_t PqByte(const PqLayout& layout, const EncodeShared<D>& shared, int offset) {
  const int tokens = layout.page_tokens, base = 2 * tokens, planes = layout.plane_offset();
  const auto code = [&](int m, int token) {
    return m < layout.subspaces ? shared.codes[token * layout.subspaces + m] : 0;
  };
  if (offset < base) return shared.scales[offset / 2] >> (offset % 2 * 8) & 255;
  if (offset < planes) {
    const int row = (offset - base) / tokens, token = (offset - base) % tokens;
    if (layout.bits >= 8) return code(row, token);
    return (code(2 * row, token) & 15) | (code(2 * row + 1, token) & 15) << 4;
  }
  const int at = offset - planes, row = at / (tokens / 8);
  if (layout.planes() == 0 || row >= layout.subspaces * layout.planes()) return 0;
  uint32_t byte = 0;
  for (int k = 0; k < 8; ++k) {
    byte |= (code(row / layout.planes(), at % (tokens / 8) * 8 + k) >>
                 (layout.base_bits() + row % layout.planes()) &
             1)
            << k;
  }
  return byte;
}

template <int D>
__device__ void EncodePq(const PqTables& pq, const StripPlace& at, int num_rows, int warp, int lane,
                         EncodeShared<D>& shared, std::byte* strip, int* replaced) {
  NormalizeRows<D>(pq, num_rows, warp, lane, shared);
  __syncthreads();
  FindCentroids<D>(pq, at.page_tokens, num_rows, warp, lane, shared);
  __syncthreads();
  FindGains<D>(pq, at.page_tokens, num_rows, warp, lane, shared, replaced);
  __syncthreads();
  const PqLayout layout = {at.page_tokens, pq.subspaces, pq.bits};
  auto* words = reinterpret_cast<uint32_t*>(strip);
  for (int word = threadIdx.x; word < layout.strip_bytes() / 4; word += kEncodeThreads) {
    uint32_t bytes = 0;
    for (int k = 0; k < 4; ++k) bytes |= PqByte<D>(layout, shared, 4 * word + k) << (8 * k);
    words[word] = bytes;
  }
}

// Grid: jobs, KV heads, K and V.
template <int D>
__global__ void __launch_bounds__(kEncodeThreads)
    EncodePages(VARVE_KERNEL_PARAMETER(EncodeParams) params) {
  VARVE_DYNAMIC_SHARED(shared_bytes);
  const DeviceEncode& call = params.call;
  EncodeShared<D> shared(shared_bytes, call.shape.page_tokens);
  const DeviceEncodeJob job = call.jobs != nullptr ? call.jobs[blockIdx.x] : call.job;
  const int kv_head = blockIdx.y;
  const bool key = blockIdx.z == 0;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const StripPlace at = {key, D, call.shape.page_tokens};
  const DeviceRung from = key ? job.from_key : job.from_value;
  const DeviceRung to = key ? job.to_key : job.to_value;
  const auto strip_offset = [&](DeviceRung key_rung, DeviceRung value_rung) {
    const uint32_t keys = params.key_bytes[static_cast<int>(key_rung)];
    return static_cast<size_t>(kv_head) *
               (keys + params.value_bytes[static_cast<int>(value_rung)]) +
           (key ? 0 : keys);
  };
  const std::byte* source = job.from + strip_offset(job.from_key, job.from_value);
  std::byte* strip = job.to + strip_offset(job.to_key, job.to_value);
  if (from == to) {  // one part of the page goes on as it is
    const uint32_t bytes =
        key ? params.key_bytes[static_cast<int>(to)] : params.value_bytes[static_cast<int>(to)];
    for (uint32_t word = threadIdx.x; word < bytes / 4; word += kEncodeThreads) {
      reinterpret_cast<uint32_t*>(strip)[word] = reinterpret_cast<const uint32_t*>(source)[word];
    }
    return;
  }
  PqTables pq;
  if (from == DeviceRung::kPq || to == DeviceRung::kPq) {
    pq = TablesOf(key ? call.key_codebook : call.value_codebook, call.shape, kv_head);
  }
  int replaced = 0;
  DecodeRows<D>(from, source, to, at, pq, job.rows, warp, lane, shared, &replaced);
  __syncthreads();
  if (to == DeviceRung::kF16 || to == DeviceRung::kBF16) {
    WriteFloats<D>(to, at, job.rows, shared, strip, &replaced);
  } else if (to == DeviceRung::kPq) {
    EncodePq<D>(pq, at, job.rows, warp, lane, shared, strip, &replaced);
  } else {
    if (key && to >= DeviceRung::kT4) CentreRows<D>(job.rows, shared);
    __syncthreads();
    QuantizeRows<D>(to, at, job.rows, warp, lane, shared, &replaced);
    __syncthreads();
    WriteCodes<D>(to, at, shared, strip);
  }
  if (call.replaced == nullptr) return;
  replaced = SumOverLanes(replaced);
  if (lane == 0 && replaced > 0) {
    atomicAdd(call.replaced, static_cast<unsigned long long>(replaced));
  }
}

__device__ __forceinline__ float WidenTensor(TensorType type, const void* data, int64_t at) {
  if (type == TensorType::kF32) return static_cast<const float*>(data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  return type == TensorType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

// Grid: jobs, KV heads, K and V.
__global__ void __launch_bounds__(kAppendThreads)
    AppendRows(VARVE_KERNEL_PARAMETER(AppendParams) params) {
  const DeviceAppend& call = params.call;
  const DeviceAppendJob job = call.jobs != nullptr ? call.jobs[blockIdx.x] : call.job;
  const bool key = blockIdx.z == 0;
  const int dim = call.shape.head_dim;
  const StripPlace at = {key, dim, call.shape.page_tokens};
  std::byte* strip =
      job.page + (2 * static_cast<size_t>(blockIdx.y) + (key ? 0 : 1)) * params.strip_bytes;
  const void* rows = key ? job.keys : job.values;
  const RowStrides stride = key ? call.keys : call.values;
  int replaced = 0;
  for (int i = threadIdx.x; i < job.num_rows * dim; i += kAppendThreads) {
    const int row = i / dim, d = i % dim;
    const float x = WidenTensor(call.type, rows, row * stride.token + blockIdx.y * stride.head + d);
    StoreHalf(strip, FloatIndex(at, job.first_row + row, d),
              NarrowSaturated(call.rung, x, &replaced));
  }
  if (call.replaced != nullptr && replaced > 0) {
    atomicAdd(call.replaced, static_cast<unsigned long long>(replaced));
  }
}

}  // namespace

const void* EncodeKernel(int head_dim) {
  switch (head_dim) {
    case 64:
      return reinterpret_cast<const void*>(&EncodePages<64>);
    case 96:
      return reinterpret_cast<const void*>(&EncodePages<96>);
    case 128:
      return reinterpret_cast<const void*>(&EncodePages<128>);
    default:
      return reinterpret_cast<const void*>(&EncodePages<256>);
  }
}

const void* AppendKernel() { return reinterpret_cast<const void*>(&AppendRows); }

size_t EncodeSharedBytes(const PageShape& shape) {
  const size_t tokens = static_cast<size_t>(shape.page_tokens);
  const size_t dim = static_cast<size_t>(shape.head_dim);
  return tokens * dim * 5 + tokens * 4 + tokens * (dim / 32) * 2 + dim * 2;
}

}  // namespace varve::cuda
