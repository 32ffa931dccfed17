// Pages written on the device against those of the CPU's scalar kernels: the same bytes.

#include "cuda/device_encode.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cuda/testing/check.h"
#include "cuda/testing/cpu_rungs.h"
#include "cuda/testing/device_buffer.h"

namespace varve::cuda::testing {
namespace {

using enum DeviceRung;
constexpr DeviceRung kSealed[] = {kF16, kBF16, kQ8_0, kQ8_0r, kQ4_0, kQ4_0r, kT4, kT3, kT2};

// Rows with all sizes of values, zeros, equal magnitudes; with `wild` also what no format holds.
std::vector<float> MakeRows(int count, int dim, bool wild, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> rows(static_cast<size_t>(count) * dim);
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t bits = random.Next();
    const float x = static_cast<float>(static_cast<int64_t>(bits)) * 0x1p-62f;
    const int row = static_cast<int>(i / dim);
    rows[i] = row % 7 == 3   ? 0.0f
              : row % 7 == 4 ? (bits % 2 == 0 ? 0.5f : -0.5f)
                             : x * std::exp2(static_cast<float>(row % 11 - 5));
    if (!wild || bits % 97 != 0) continue;
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float wilds[] = {kInf, -kInf, std::nanf("1"), 1e30f, -70000.0f, 1e-42f, -0.0f, 65504.0f};
    rows[i] = wilds[bits / 97 % 8];
  }
  return rows;
}

std::vector<std::byte> CpuStrip(DeviceRung rung, Part part, int dim, int page_tokens,
                                const float* rows, int num_rows, uint64_t* replaced) {
  const StripShape shape = {0, 0, dim, page_tokens};
  std::vector<std::byte> strip(CpuRung(rung)->StripBytes(part, shape), std::byte{0xFF});
  *replaced += CpuRung(rung)->Encode(part, shape, rows, num_rows, strip.data());
  return strip;
}

// One page of `heads` KV heads, K and V in the same rung.
std::vector<std::byte> CpuPage(DeviceRung rung, int dim, int page_tokens, int heads,
                               const std::vector<float>& rows, int num_rows, uint64_t* replaced) {
  std::vector<std::byte> page;
  const size_t strip_floats = static_cast<size_t>(page_tokens) * dim;
  for (int head = 0; head < heads; ++head) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      const float* from =
          &rows[(2 * static_cast<size_t>(head) + (part == Part::kValue)) * strip_floats];
      const auto strip = CpuStrip(rung, part, dim, page_tokens, from, num_rows, replaced);
      page.insert(page.end(), strip.begin(), strip.end());
    }
  }
  return page;
}

// The rows that the CPU reads back from a page.
std::vector<float> CpuDecode(DeviceRung rung, int dim, int page_tokens, int heads,
                             const std::vector<std::byte>& page, int num_rows) {
  const size_t strip_floats = static_cast<size_t>(page_tokens) * dim;
  std::vector<float> rows(2 * heads * strip_floats, 0.0f);
  const StripShape shape = {0, 0, dim, page_tokens};
  size_t at = 0;
  for (size_t strip = 0; strip < 2 * static_cast<size_t>(heads); ++strip) {
    const Part part = strip % 2 == 0 ? Part::kKey : Part::kValue;
    CpuRung(rung)->Decode(part, shape, &page[at], 0, num_rows, &rows[strip * strip_floats]);
    at += CpuRung(rung)->StripBytes(part, shape);
  }
  return rows;
}

void ExpectSameBytes(const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                     const char* what, int dim) {
  size_t different = 0, first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i]) continue;
    if (different++ == 0) first = i;
  }
  CHECK_THAT(different == 0, "%s, head_dim %d: %zu of %zu bytes differ, the first is %zu", what,
             dim, different, expected.size(), first);
}

void ExpectEncoded(DeviceRung from, DeviceRung to, int dim, int page_tokens, int num_rows,
                   bool wild, uint64_t seed) {
  constexpr int kHeads = 2;
  uint64_t ignored = 0, replaced = 0;
  const auto source =
      CpuPage(from, dim, page_tokens, kHeads, MakeRows(2 * kHeads * page_tokens, dim, wild, seed),
              num_rows, &ignored);
  const auto rows = CpuDecode(from, dim, page_tokens, kHeads, source, num_rows);
  // A part whose rung stays is copied.
  const auto expected =
      from == to ? source : CpuPage(to, dim, page_tokens, kHeads, rows, num_rows, &replaced);

  DeviceBuffer<std::byte> from_page(source), to_page(expected.size());
  DeviceEncodeJob job;
  job.from = from_page.data();
  job.to = to_page.data();
  job.from_key = job.from_value = from;
  job.to_key = job.to_value = to;
  job.rows = num_rows;
  DeviceBuffer<DeviceEncodeJob> jobs(std::vector<DeviceEncodeJob>{job});
  DeviceBuffer<unsigned long long> count(std::vector<unsigned long long>{0});
  DeviceEncode call;
  call.shape = {dim, kHeads, page_tokens, 0, 0};
  call.jobs = jobs.data();
  call.num_jobs = 1;
  call.replaced = count.data();
  const DeviceStatus status = Encode(call, nullptr);
  CHECK_THAT(status.ok(), "%s", status.message());
  Must(cudaDeviceSynchronize(), "encode");
  const std::string what = std::string(DeviceRungName(from)) + " to " + DeviceRungName(to);
  ExpectSameBytes(to_page.Download(), expected, what.c_str(), dim);
  CHECK_THAT(count.Download()[0] == replaced, "%s: %llu replaced, not %llu", what.c_str(),
             count.Download()[0], static_cast<unsigned long long>(replaced));
}

VARVE_CUDA_TEST(Encode, GivesTheBytesOfTheCpu) {
  uint64_t seed = 1000;
  for (const int dim : {64, 96, 128, 256}) {
    for (const DeviceRung rung : kSealed) ExpectEncoded(kF16, rung, dim, 64, 64, false, ++seed);
  }
}

VARVE_CUDA_TEST(Encode, TakesShortPagesAndPagesOf128) {
  uint64_t seed = 1100;
  for (const DeviceRung rung : kSealed) {
    ExpectEncoded(kBF16, rung, 128, 64, 37, false, ++seed);
    ExpectEncoded(kF16, rung, 64, 128, 101, false, ++seed);
  }
}

VARVE_CUDA_TEST(Encode, ReplacesWhatFormatsCannotHold) {
  uint64_t seed = 1200;
  for (const DeviceRung rung : kSealed) {
    ExpectEncoded(kBF16, rung, 128, 64, 64, true, ++seed);
    ExpectEncoded(kF16, rung, 96, 64, 64, true, ++seed);
  }
}

VARVE_CUDA_TEST(Encode, DemotesFromEveryRung) {
  uint64_t seed = 1300;
  for (const DeviceRung from : kSealed) {
    for (const DeviceRung to : {kQ4_0, kT2, kF16})
      ExpectEncoded(from, to, 128, 64, 50, false, ++seed);
  }
}

VARVE_CUDA_TEST(Append, WritesRowsOfEveryTypeBehindOthers) {
  constexpr int kDim = 96, kHeads = 3, kRows = 5, kFirst = 30;
  const StripShape shape = {0, 0, kDim, 64};
  for (const DeviceRung rung : {kF16, kBF16}) {
    for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
      const PageShape page_shape = {kDim, kHeads, 64, 0, 0};
      std::vector<float> rows = MakeRows(2 * kRows * kHeads, kDim, true, 77);  // keys, then values
      std::vector<uint32_t> words;  // as the device gets them
      std::vector<uint16_t> halves;
      for (float& x : rows) {
        if (type == TensorType::kF32) words.push_back(std::bit_cast<uint32_t>(x));
        if (type == TensorType::kF16) halves.push_back(F32ToF16(x)), x = F16ToF32(halves.back());
        if (type == TensorType::kBF16) halves.push_back(F32ToBF16(x)), x = BF16ToF32(halves.back());
      }
      const size_t page_bytes = DevicePageBytes(rung, rung, page_shape);
      std::vector<std::byte> expected(page_bytes, std::byte{0xFF});
      const size_t strip_bytes = page_bytes / (2 * kHeads);
      uint64_t replaced = 0;
      for (size_t strip = 0; strip < 2 * kHeads; ++strip) {
        // Rows are [token][head][dim]: the rows of a head are kHeads apart.
        const float* from = &rows[(strip % 2 * kRows * kHeads + strip / 2) * kDim];
        replaced += CpuRung(rung)->WriteRows(strip % 2 == 0 ? Part::kKey : Part::kValue, shape,
                                             &expected[strip * strip_bytes], kFirst, kRows, from,
                                             kHeads * kDim);
      }
      DeviceBuffer<std::byte> page(page_bytes);
      DeviceBuffer<uint32_t> as_words(words);
      DeviceBuffer<uint16_t> as_halves(halves);
      const bool wide = type == TensorType::kF32;
      const size_t part = static_cast<size_t>(kRows) * kHeads * kDim;
      DeviceAppendJob job;
      job.page = page.data();
      job.keys = wide ? static_cast<const void*>(as_words.data()) : as_halves.data();
      job.values =
          wide ? static_cast<const void*>(as_words.data() + part) : as_halves.data() + part;
      job.first_row = kFirst;
      job.num_rows = kRows;
      DeviceBuffer<DeviceAppendJob> jobs(std::vector<DeviceAppendJob>{job});
      DeviceAppend call;
      call.shape = page_shape;
      call.rung = rung;
      call.jobs = jobs.data();
      call.num_jobs = 1;
      call.type = type;
      call.keys = call.values = {kHeads * kDim, kDim};
      DeviceBuffer<unsigned long long> count(std::vector<unsigned long long>{0});
      call.replaced = count.data();
      const DeviceStatus status = Append(call, nullptr);
      CHECK_THAT(status.ok(), "%s", status.message());
      Must(cudaDeviceSynchronize(), "append");
      ExpectSameBytes(page.Download(), expected, DeviceRungName(rung), static_cast<int>(type));
      CHECK_THAT(count.Download()[0] == replaced, "%s: %llu replaced, not %llu",
                 DeviceRungName(rung), count.Download()[0],
                 static_cast<unsigned long long>(replaced));
    }
  }
}

}  // namespace
}  // namespace varve::cuda::testing
