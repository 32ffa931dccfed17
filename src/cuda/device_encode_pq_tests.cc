// Strips of product quantization written on the device, against the CPU's nearest centroids.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cuda/device_encode.h"
#include "cuda/testing/check.h"
#include "cuda/testing/cpu_rungs.h"
#include "cuda/testing/device_buffer.h"
#include "cuda/testing/pq_book.h"
#include "kernels/pq_kernels.h"

namespace varve::cuda::testing {
namespace {

constexpr int kTokens = 64;

float Uniform(SplitMix64& random) {
  return static_cast<float>(static_cast<int64_t>(random.Next())) * 0x1p-63f;
}

// As PqRung::Encode does it.
std::vector<std::byte> CpuStrip(const PqBook& book, const std::vector<float>& rows, int num_rows) {
  const int dim = book.shape.dim, sub_dim = book.shape.sub_dim(),
            codes_each = book.shape.num_codes();
  std::vector<std::byte> strip(book.shape.strip_bytes(), std::byte{0});
  std::vector<float> unit(rows.size(), 0.0f), norms;
  for (int row = 0; row < num_rows; ++row) {
    double sum = 0;
    for (int d = 0; d < dim; ++d)
      sum += static_cast<double>(rows[row * dim + d]) * rows[row * dim + d];
    norms.push_back(static_cast<float>(std::sqrt(sum)));
    const float inverse = norms.back() > 0 ? static_cast<float>(1.0 / std::sqrt(sum)) : 0.0f;
    for (int i = 0; i < dim; ++i) {
      float turned = rows[row * dim + i] * inverse;
      if (!book.rotation.empty()) {
        const int from = (i * 5 + 3) % dim;
        turned = (i % 3 == 0 ? -1.0f : 1.0f) * (rows[row * dim + from] * inverse);
      }
      unit[static_cast<size_t>(row) * dim + i] = turned;
    }
  }
  std::vector<double> dot(kTokens, 0.0), energy(kTokens, 0.0);
  for (int m = 0; m < book.shape.subspaces; ++m) {
    std::vector<float> points;
    for (int row = 0; row < num_rows; ++row) {
      for (int j = 0; j < sub_dim; ++j) {
        points.push_back(unit[static_cast<size_t>(row) * dim + m * sub_dim + j] / book.scales[m]);
      }
    }
    uint16_t codes[kTokens] = {};
    const uint8_t* bytes = &book.centroids[static_cast<size_t>(m) * sub_dim * codes_each];
    ScalarPqKernels().nearest(bytes, sub_dim, codes_each, points.data(), num_rows, codes);
    WritePqCodes(book.shape, m, codes, strip.data());
    for (int row = 0; row < num_rows; ++row) {
      for (int j = 0; j < sub_dim; ++j) {
        const float centroid =
            book.scales[m] * static_cast<float>(bytes[j * codes_each + codes[row]] - 128);
        dot[row] +=
            static_cast<double>(unit[static_cast<size_t>(row) * dim + m * sub_dim + j]) * centroid;
        energy[row] += static_cast<double>(centroid) * centroid;
      }
    }
  }
  for (int row = 0; row < num_rows; ++row) {
    const double gain = energy[row] > 0 ? norms[row] * dot[row] / energy[row] : 0.0;
    const uint16_t bits = F32ToF16(static_cast<float>(std::clamp(gain, 0.0, 65504.0)));
    std::memcpy(&strip[2 * static_cast<size_t>(row)], &bits, 2);
  }
  return strip;
}

void ExpectEncoded(int dim, int subspaces, int bits, bool rotated, int num_rows, uint64_t seed) {
  SplitMix64 random(seed);
  const PqBook book = MakePqBook(dim, subspaces, bits, kTokens, rotated, seed + 1);
  const StripShape float_shape = {0, 0, dim, kTokens};
  std::vector<std::byte> source;
  std::vector<std::byte> expected;
  for (const Part part : {Part::kKey, Part::kValue}) {
    std::vector<float> rows(static_cast<size_t>(kTokens) * dim);
    for (float& x : rows) x = F16ToF32(F32ToF16(4.0f * Uniform(random)));
    std::vector<std::byte> strip(CpuRung(DeviceRung::kF16)->StripBytes(part, float_shape));
    CpuRung(DeviceRung::kF16)->Encode(part, float_shape, rows.data(), num_rows, strip.data());
    source.insert(source.end(), strip.begin(), strip.end());
    const auto coded = CpuStrip(book, rows, num_rows);
    expected.insert(expected.end(), coded.begin(), coded.end());
  }
  DeviceBuffer<std::byte> from(source), to(expected.size());
  DeviceBuffer<uint8_t> centroids(book.centroids);
  DeviceBuffer<float> scales(book.scales);
  DeviceBuffer<uint16_t> rotation(book.rotation);
  DeviceEncodeJob job;
  job.from = from.data();
  job.to = to.data();
  job.to_key = job.to_value = DeviceRung::kPq;
  job.rows = num_rows;
  DeviceBuffer<DeviceEncodeJob> jobs(std::vector<DeviceEncodeJob>{job});
  DeviceEncode call;
  call.shape = {dim, 1, kTokens, subspaces, bits};
  call.jobs = jobs.data();
  call.num_jobs = 1;
  call.key_codebook.centroids = centroids.data();
  call.key_codebook.scales = scales.data();
  if (rotated) call.key_codebook.rotation = rotation.data();
  call.value_codebook = call.key_codebook;
  const DeviceStatus status = Encode(call, nullptr);
  CHECK_THAT(status.ok(), "%s", status.message());
  Must(cudaDeviceSynchronize(), "encode");
  const std::vector<std::byte> got = to.Download();
  size_t different = 0;
  for (size_t i = 0; i < got.size(); ++i) different += got[i] != expected[i] ? 1 : 0;
  // Norms are summed in another order, which moves few codes.
  CHECK_THAT(different <= got.size() / 200, "pq%dx%d, head_dim %d: %zu of %zu bytes differ",
             subspaces, bits, dim, different, got.size());
}

VARVE_CUDA_TEST(EncodePq, FindsTheNearestCentroids) {
  uint64_t seed = 3000;
  for (const bool rotated : {false, true}) {
    ExpectEncoded(64, 32, 8, rotated, 64, ++seed);
    ExpectEncoded(64, 32, 4, rotated, 64, ++seed);
    ExpectEncoded(96, 24, 6, rotated, 37, ++seed);
    ExpectEncoded(128, 128, 5, rotated, 64, ++seed);
  }
}

VARVE_CUDA_TEST(EncodePq, RefusesSizesWithoutAKernel) {
  DeviceEncode call;
  call.shape = {128, 1, 64, 64, 9};
  CHECK_THAT(Encode(call, nullptr).code() == StatusCode::kUnimplemented, "9 bits");
  call.shape = {128, 1, 64, 48, 8};
  CHECK_THAT(Encode(call, nullptr).code() == StatusCode::kUnimplemented, "48 sub-spaces");
}

}  // namespace
}  // namespace varve::cuda::testing
