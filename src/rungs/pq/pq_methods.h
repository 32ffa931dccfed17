// PqMethods: how attention works on pq strips. Every method gives the same answer up to rounding;
// which is fastest depends on the instruction set and the size of codes, and was measured
// (docs/decisions/0006-product-quantization.md).
//
//   keys    bytes    centroids looked up as bytes in registers, times the query's levels
//           tables   the query's products with all centroids once, then M reads per token
//           decode   the strip as f32 in a scratch buffer, then the kernel of f32
//   values  bytes    centroids looked up as bytes in registers, times the weights' levels
//           centroids  weights added up per code, multiplied by the centroids once per 16 pages
//           decode   the strip as f32 in a scratch buffer, then the kernel of f32

#ifndef VARVE_RUNGS_PQ_PQ_METHODS_H_
#define VARVE_RUNGS_PQ_PQ_METHODS_H_

namespace varve {

struct PqKernels;

enum class PqKeyMethod { kAuto, kBytes, kTables, kDecode };
enum class PqValueMethod { kAuto, kBytes, kCentroids, kDecode };

struct PqMethods {
  PqKeyMethod keys = PqKeyMethod::kAuto;
  PqValueMethod values = PqValueMethod::kAuto;
};

// What benchmarks and tests force; auto otherwise. Not while attention runs. A method that cannot
// take the codes (bytes above 8 bits) is not used for them.
void SetPqMethods(const PqMethods& methods);

// What is used for codes of that many bits by those kernels. Tables of more than 16 entries
// are not made for more than kMaxTableRows rows: then the strip is decoded.
inline constexpr int kMaxTableRows = 16;
PqKeyMethod ChoosePqKeyMethod(const PqKernels& kernels, int bits, int total_rows);
PqValueMethod ChoosePqValueMethod(const PqKernels& kernels, int bits, int sub_dim);

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_PQ_METHODS_H_
